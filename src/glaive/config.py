"""Settings of this process: an immutable value; only this module reads ``GLAIVE_*`` variables."""

from __future__ import annotations

import os
import re
from dataclasses import field, fields
from functools import cache
from typing import Any, Final

from glaive.dataclass import dataclass
from glaive.errors import OptionError

USUAL_RATIO: Final = 64
"""Ratio of decoded bytes to file size above which limits on decoding apply.

A file of a gigabyte may decode to many bytes. Limits are for few bytes that encode many.
"""

_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}
_SIZE: Final = r"(?ai)(\d{1,18}(?:\.\d{1,9})?)\s*([a-z]*)"

_MAX_CONCURRENCY: Final = 1024
"""Most threads, and most requests at a time: more start slowly, or the system refuses them."""

_MAX_DEFAULT_MEMORY_BYTES: Final = 2 * 1024**3
_DEFAULT_MEMORY_SHARE: Final = 4
"""Largest default of ``memory_limit``, and its largest share of the machine's memory."""


def memory_size(name: str, given: object) -> int:
    """Convert an integer, or a string with a unit (``"2GB"``, ``"512 MiB"``), to bytes.

    Parameters
    ----------
    name
        Name of the option or variable, for messages.

    Raises
    ------
    OptionError
        The value is something else, less than one byte, or 2^63 bytes and more.
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
    """Return the default rows per batch of scans.

    ``LANCE_DEFAULT_BATCH_SIZE`` is read for each scan, as in pylance. Only a
    positive integer counts.
    """
    text = os.environ.get("LANCE_DEFAULT_BATCH_SIZE", "")
    return (int(text) if re.fullmatch(r"[0-9]{1,18}", text) else 0) or 8192


def _default_memory_limit() -> int:
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # unknown on this system
        return _MAX_DEFAULT_MEMORY_BYTES
    return max(1, min(_MAX_DEFAULT_MEMORY_BYTES, memory // _DEFAULT_MEMORY_SHARE))


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings from the environment.

    Parameters
    ----------
    kernels
        ``GLAIVE_KERNELS``: ``auto``, ``numba`` or ``checked``. ``auto`` is machine code of the
        wheel, else compiled by numba. ``numba`` is compiled for this processor. ``checked`` is
        compiled, too, and checks every access to memory: slow, for tests.
    kernel_cache
        ``GLAIVE_KERNEL_CACHE``: folder for compiled kernels. The default is a folder next to the
        package, or the user's cache if that folder is read-only.
    threads
        ``GLAIVE_THREADS``: decoding threads per scan, at most 1024; 0 means one per core.
    fsync
        ``GLAIVE_FSYNC``: ``1`` to force data, manifest and directory to disk in a commit.
    io_concurrency
        ``GLAIVE_IO_CONCURRENCY``: concurrent requests per dataset on object stores, at most 1024.
    memory_limit
        ``GLAIVE_MEMORY_LIMIT``: bytes that a merge holds of its source, with units such as
        ``2GB``; larger sources are written to a temporary file. The default is 2 GiB, at most a
        quarter of the machine's memory.
    verify
        ``GLAIVE_VERIFY``: ``1`` to compare everything that is read of data files with checksums,
        ``0`` to trust all files. The default is to compare manifests, deletion files, the input of
        compactions, and bytes from a network.
    checksums
        ``GLAIVE_CHECKSUMS``: ``1`` to write data files with checksums, ``0`` without. By default
        files that are written over a network have checksums.
    max_decoded_bytes_per_page
        ``GLAIVE_MAX_DECODED_BYTES_PER_PAGE``: bytes that the compressed buffers of one page or
        dictionary may decode to, with units. A file that needs more, and more than 64 times its
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
            digits, limit = text.lstrip("0") or text[:1], _MAX_CONCURRENCY
            if not text.isdecimal() or len(digits) > len(str(limit)) or int(digits) > limit:
                expected = f"an integer from 0 to {limit}"
                raise OptionError(f"{variable}: expected {expected}, found {text!r:.80}")
            values[setting.name] = int(digits)
    return Settings(**values)  # type: ignore[arg-type]  # checked against the fields above


settings = _from_environment()
"""The settings of this process, read once at import."""

MAX_IMPLIED_BYTES: Final = min(2**31, 2 * settings.max_decoded_bytes_per_page)
"""Most bytes of an array that few bytes of a file encode.

For example, a repeated value, nulls, items of a dictionary, or many pages. Rows that need more are
read in parts.
"""


# --- Find what installed packages add to glaive -----------------------------------------
# A package names its additions as entry points, for example in its ``pyproject.toml``::
#
#     [project.entry-points."glaive.functions"]
#     twice = "my_package:twice"
#
# The groups are ``glaive.encodings``, ``glaive.indices``, ``glaive.functions``, ``glaive.stores``
# and ``glaive.formats``. glaive reads entry points only for names that it lacks itself, as reading
# them takes time. Source: "Extensions" in ``docs/guide/extensions.md``.


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
        Importing an entry point failed; a note names it.
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
