"""Settings of this process: one frozen value; ``GLAIVE_*`` variables are read here only."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from glaive.errors import OptionError

__all__ = ["Settings", "settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings from the environment.

    Parameters
    ----------
    kernels
        ``GLAIVE_KERNELS``: ``auto`` (compiled kernels for large inputs, numpy for small ones
        while numba is not loaded), ``numba`` (always compiled), ``numpy`` (never) or
        ``checked`` (always compiled, with every access to memory checked: slow, for tests).
    kernel_cache
        ``GLAIVE_KERNEL_CACHE``: folder for compiled kernels; by default beside the package,
        or the user's cache where that is read-only.
    threads
        ``GLAIVE_THREADS``: decoding threads per scan; 0 means one per core.
    fsync
        ``GLAIVE_FSYNC``: ``1`` to force data, manifest and directory to disk in a commit.
    io_concurrency
        ``GLAIVE_IO_CONCURRENCY``: requests in flight per scan on object stores.
    """

    kernels: str = "auto"
    kernel_cache: str = ""
    threads: int = 0
    fsync: bool = False
    io_concurrency: int = 32


def _from_environment() -> Settings:
    values: dict[str, object] = {}
    for field in fields(Settings):
        variable = f"GLAIVE_{field.name.upper()}"
        text = os.environ.get(variable)
        if text is None:
            continue
        if field.name == "kernels":
            if text not in ("auto", "numba", "numpy", "checked"):
                expected = "auto, numba, numpy or checked"
                raise OptionError(f"{variable}: expected {expected}, found {text!r}")
            values[field.name] = text
        elif field.type == "str":
            values[field.name] = text
        elif field.type == "bool":
            if text.lower() not in ("0", "1", "true", "false", "on", "off"):
                raise OptionError(f"{variable}: expected 0 or 1, found {text!r}")
            values[field.name] = text.lower() in ("1", "true", "on")
        else:
            if not text.isdecimal():
                raise OptionError(f"{variable}: expected an integer ≥ 0, found {text!r}")
            values[field.name] = int(text)
    return Settings(**values)  # type: ignore[arg-type]  # checked against the fields above


settings = _from_environment()
"""The settings of this process, read once at import."""
