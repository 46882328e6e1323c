"""Machine code of all kernels in a shared library, which is part of a wheel.

``tools/build_kernels.py`` makes one library for each level of processors. Its name has a digest of
the kernels' sources: a checkout with changed kernels ignores it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from hashlib import sha256
from typing import Any, Final, cast

from glaive.config import settings

_V2: Final = frozenset(["cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"])
_V3: Final = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
_V4: Final = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_WITH_PERMUTES: Final = _V4 | {
    "avx512vbmi",
    "avx512_vbmi2",
    "avx512_vnni",
    "avx512_bitalg",
    "avx512_vpopcntdq",
}

LEVELS: Final = {"x86_64_v4": _WITH_PERMUTES, "x86_64_v3": _V3, "x86_64_v2": _V2}
"""Flags in ``/proc/cpuinfo`` of processors of each level, the best level first.

The highest level has instructions that Ice Lake and Zen 4 added; several kernels use them."""

_LAYOUT: Final = b"5"
"""Version of the calls: it changes when older code becomes incompatible."""


_FOLDER: Final = os.path.dirname(__file__)


@cache
def _archived() -> Any:
    """Return the package if it is in an archive; ``None`` if it is a folder."""
    if os.path.isdir(_FOLDER):
        return None
    from importlib.resources import files

    return files("glaive.kernels")


def _read(*names: str) -> bytes:
    """Return the bytes of a file of this package."""
    archive = _archived()
    if archive is not None:
        return cast("bytes", archive.joinpath(*names).read_bytes())
    with open(os.path.join(_FOLDER, *names), "rb") as file:
        return file.read()


@cache
def digest() -> str:
    """Return the digest of the sources of machine code."""
    archive = _archived()
    if archive is None:
        names = os.listdir(os.path.join(_FOLDER, "loops"))
    else:
        names = [path.name for path in (archive / "loops").iterdir()]
    found = sha256(_LAYOUT + _read("records.py"))  # kernels import only this module
    for name in sorted(names):
        if name.endswith(".py"):
            found.update(_read("loops", name))
    return found.hexdigest()[:20]


@cache
def level() -> str | None:
    """Return the level of this processor; ``None`` if all libraries are for others."""
    if sys.platform != "linux" or sys.maxsize < 2**63 - 1:
        return None
    machine = os.uname().machine
    if machine == "aarch64":
        return machine if sys.byteorder == "little" else None
    if machine != "x86_64":
        return None
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            lines = file.read(8192).decode("ascii", "replace").splitlines()
    except OSError:
        return None
    has = next((set(line.split()) for line in lines if line.startswith("flags")), set())
    return next((name for name, needed in LEVELS.items() if needed <= has), None)


@cache
def library() -> ctypes.PyDLL | None:
    """Return the library for this processor and these sources, or ``None``."""
    best = level() if settings.kernels == "auto" else None
    if best is None:
        return None
    levels = [*LEVELS]
    for name in levels[levels.index(best) :] if best in LEVELS else [best]:
        try:
            return _loaded(f"{name}-{digest()}.so")
        except OSError as error:
            import logging

            logging.getLogger(__name__).debug("no machine code for %s: %s", name, error)
    return None


def _loaded(name: str) -> ctypes.PyDLL:
    if _archived() is None:
        return ctypes.PyDLL(os.path.join(_FOLDER, "code", name))
    # A file in memory works without a folder, and has a name while it is open.
    code, file = _read("code", name), os.memfd_create("glaive")
    try:
        os.write(file, code)
        return ctypes.PyDLL(f"/proc/self/fd/{file}")
    finally:
        os.close(file)


def find(symbol: str) -> tuple[int, ...] | None:
    """Return the addresses of a kernel's entry and of its parameters' names, if it has code."""
    found = library()
    if found is None:
        return None
    try:
        parts = [ctypes.c_char.in_dll(found, name) for name in (symbol, f"{symbol}_names")]
    except ValueError:  # only other kernels call this kernel
        return None
    return tuple(map(ctypes.addressof, parts))
