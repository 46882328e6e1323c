"""Settings of this process: one frozen value; ``GLAIVE_*`` variables are read here only."""

from __future__ import annotations

import os
import re
from dataclasses import field, fields
from functools import cache
from typing import Any, Final

from glaive.dataclass import dataclass
from glaive.errors import OptionError

USUAL_RATIO: Final = 64
"""Times its size in a file up to which data may decode to any number of bytes.

A file of a gigabyte may hold much of it; limits are for what a few bytes stand for.
"""

_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}
_SIZE: Final = r"(?ai)(\d{1,18}(?:\.\d{1,9})?)\s*([a-z]*)"

_MOST: Final = 1024
"""Threads, and requests in flight: far more take time to start, and the system may refuse them."""

_MOST_BY_DEFAULT: Final = 2 * 1024**3
_SHARE_BY_DEFAULT: Final = 4
"""Largest default of ``memory_limit``, and which part of the machine's memory it is at most."""


def memory_size(name: str, given: object) -> int:
    """Bytes from an integer, or from text with a unit: ``"2GB"``, ``"512 MiB"``.

    Parameters
    ----------
    name
        The option or variable, for messages.

    Raises
    ------
    OptionError
        It is neither, less than one byte, or 2^63 bytes and more.
    """
    size: float = 0
    if isinstance(given, int) and not isinstance(given, bool):
        size = given
    elif isinstance(given, str) and (match := re.fullmatch(_SIZE, given.strip())):
        size = float(match[1]) * _UNITS.get(match[2].lower(), 0)
    if not 1 <= size < 2**63:
        raise OptionError(
            f"{name}: expected a number of bytes from 1 to 2^63 - 1, or text such as '2GB' or "
            f"'512MiB', found {given!r}"
        )
    return int(size)


def default_batch_size() -> int:
    """Return the rows per batch of scans without ``batch_size``.

    ``LANCE_DEFAULT_BATCH_SIZE`` is looked up for each scan, as pylance does. Text that is no
    positive integer counts as unset.
    """
    text = os.environ.get("LANCE_DEFAULT_BATCH_SIZE", "")
    return (int(text) if re.fullmatch(r"[0-9]{1,18}", text) else 0) or 8192


def _default_memory_limit() -> int:
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not known on this system
        return _MOST_BY_DEFAULT
    return max(1, min(_MOST_BY_DEFAULT, memory // _SHARE_BY_DEFAULT))


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings from the environment.

    Parameters
    ----------
    kernels
        ``GLAIVE_KERNELS``: ``auto`` (machine code of the wheel, else compiled by numba), ``numba``
        (compiled for this very processor) or ``checked`` (compiled, with every access to memory
        checked: slow, for tests).
    kernel_cache
        ``GLAIVE_KERNEL_CACHE``: folder for compiled kernels; by default beside the package,
        or the user's cache where that is read-only.
    threads
        ``GLAIVE_THREADS``: decoding threads per scan, at most 1024; 0 means one per core.
    fsync
        ``GLAIVE_FSYNC``: ``1`` to force data, manifest and directory to disk in a commit.
    io_concurrency
        ``GLAIVE_IO_CONCURRENCY``: requests in flight per scan on object stores, at most 1024.
    memory_limit
        ``GLAIVE_MEMORY_LIMIT``: bytes that a merge holds of its source, with units such as
        ``2GB``; larger sources are written to a temporary file. By default 2 GiB, at most a
        quarter of the machine's memory.
    verify
        ``GLAIVE_VERIFY``: ``1`` to compare all that is read of data files with their checksums,
        ``0`` to compare nothing; by default manifests, deletion files, what a compaction writes
        again, and what is fetched over a network.
    checksums
        ``GLAIVE_CHECKSUMS``: ``1`` to write data files with checksums, ``0`` without; by default
        those that go over a network have them.
    max_decoded_bytes_per_page
        ``GLAIVE_MAX_DECODED_BYTES_PER_PAGE``: bytes that the compressed buffers of one page or
        dictionary may decode to, with units; a file that needs more, and more than 64 times its
        compressed bytes, is refused.
    """

    kernels: str = "auto"
    kernel_cache: str = ""
    threads: int = 0
    fsync: bool = False
    io_concurrency: int = 32
    memory_limit: int = field(default_factory=_default_memory_limit)
    verify: bool | None = None
    checksums: bool | None = None
    max_decoded_bytes_per_page: int = 1024**3


def _from_environment() -> Settings:
    values: dict[str, object] = {}
    for setting in fields(Settings):
        variable = f"GLAIVE_{setting.name.upper()}"
        text = os.environ.get(variable)
        if text is None:
            continue
        if setting.name in ("memory_limit", "max_decoded_bytes_per_page"):
            values[setting.name] = memory_size(variable, text)
        elif setting.name == "kernels":
            if text not in ("auto", "numba", "checked"):
                expected = "auto, numba or checked"
                raise OptionError(f"{variable}: expected {expected}, found {text!r}")
            values[setting.name] = text
        elif setting.name == "kernel_cache":
            if text and not os.path.isabs(text):  # noqa: PTH117  # no other module is needed
                raise OptionError(
                    f"{variable}: expected an absolute path, found {text!r:.200}, which would be "
                    "another folder wherever a process starts, such as in a stranger's dataset"
                )
            values[setting.name] = text
        elif setting.type in ("bool", "bool | None"):
            if text.lower() not in ("0", "1", "true", "false", "on", "off"):
                raise OptionError(f"{variable}: expected 0 or 1, found {text!r}")
            values[setting.name] = text.lower() in ("1", "true", "on")
        else:
            digits = text.lstrip("0") or text[:1]
            if not text.isdecimal() or len(digits) > len(str(_MOST)) or int(digits) > _MOST:
                expected = f"an integer from 0 to {_MOST}"
                raise OptionError(f"{variable}: expected {expected}, found {text!r:.80}")
            values[setting.name] = int(digits)
    return Settings(**values)  # type: ignore[arg-type]  # checked against the fields above


settings = _from_environment()
"""The settings of this process, read once at import."""

MOST_IMPLIED: Final = min(2**31, 2 * settings.max_decoded_bytes_per_page)
"""Bytes of an array at most where few bytes of a file stand for it.

Such as of one repeated value, of nulls, of items of a dictionary, or of many pages. Rows that need
more are read in parts.
"""


# --- Find what installed packages add to glaive -----------------------------------------
# A package names its additions as entry points, for example in its ``pyproject.toml``::
#
#     [project.entry-points."glaive.functions"]
#     twice = "my_package:twice"
#
# The groups are ``glaive.encodings``, ``glaive.indices``, ``glaive.functions``, ``glaive.stores``
# and ``glaive.formats``. glaive looks for entry points where it does not know a name itself, so
# that they cost nothing else. Source: "Extensions" in ``docs/guide/extensions.md``.


@cache
def added(group: str) -> dict[str, Any]:
    """Load the entry points of a group, such as ``"stores"``.

    Returns
    -------
    dict
        The objects by the names of the entry points.

    Raises
    ------
    Exception
        An entry point cannot be imported; a note names it.
    """
    from importlib.metadata import entry_points

    found = {}
    for entry in entry_points(group=f"glaive.{group}"):
        try:
            found[entry.name] = entry.load()
        except Exception as error:
            error.add_note(f"while loading {entry.name!r} = {entry.value} of glaive.{group}")
            raise
    return found
