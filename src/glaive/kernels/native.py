"""Compiled kernels as machine code: loaded without the compiler, kept on disk.

``native.offsets.unpack`` is the kernel ``unpack`` of ``glaive.kernels.loops.offsets``: a builtin
function that releases the interpreter lock. On first use it is read from the cache on disk and
linked by llvmlite, which takes about a millisecond, after 40 for the first kernel of a process.
Only where the cache has none is numba imported, the kernel compiled, and its code kept for
later processes.

Code is kept per kernel, processor and source: a file has the hash of all kernels' sources, of the
versions of the compiler and of what the processor can do in its name, and that of its contents
at its head. Processes may race: a file is complete before it gets its name.

Decision and figures: ``docs/adr/0002-kernels.md``.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from glaive.config import settings
from glaive.kernels.machine import has_linked, link, processor

if TYPE_CHECKING:  # what the names of this module stand for: ``__getattr__`` finds them
    from glaive.kernels.loops import bitpack as bitpack
    from glaive.kernels.loops import byte_products as byte_products
    from glaive.kernels.loops import bytesplit as bytesplit
    from glaive.kernels.loops import chunks as chunks
    from glaive.kernels.loops import code_scan as code_scan
    from glaive.kernels.loops import codes as codes
    from glaive.kernels.loops import compact as compact
    from glaive.kernels.loops import contains as contains
    from glaive.kernels.loops import distances as distances
    from glaive.kernels.loops import end_offsets as end_offsets
    from glaive.kernels.loops import flat as flat
    from glaive.kernels.loops import fsst as fsst
    from glaive.kernels.loops import fsst_encode as fsst_encode
    from glaive.kernels.loops import fsst_pages as fsst_pages
    from glaive.kernels.loops import fsst_search as fsst_search
    from glaive.kernels.loops import fsst_train as fsst_train
    from glaive.kernels.loops import full_zip as full_zip
    from glaive.kernels.loops import graph as graph
    from glaive.kernels.loops import graph_build as graph_build
    from glaive.kernels.loops import graph_search as graph_search
    from glaive.kernels.loops import hashing as hashing
    from glaive.kernels.loops import item_lists as item_lists
    from glaive.kernels.loops import json_members as json_members
    from glaive.kernels.loops import level_bits as level_bits
    from glaive.kernels.loops import level_cuts as level_cuts
    from glaive.kernels.loops import levels as levels
    from glaive.kernels.loops import list_entries as list_entries
    from glaive.kernels.loops import list_levels as list_levels
    from glaive.kernels.loops import list_rows as list_rows
    from glaive.kernels.loops import list_takes as list_takes
    from glaive.kernels.loops import locate as locate
    from glaive.kernels.loops import lookup as lookup
    from glaive.kernels.loops import match as match
    from glaive.kernels.loops import nearest as nearest
    from glaive.kernels.loops import offsets as offsets
    from glaive.kernels.loops import postings as postings
    from glaive.kernels.loops import products as products
    from glaive.kernels.loops import rotation as rotation
    from glaive.kernels.loops import row_takes as row_takes
    from glaive.kernels.loops import runs as runs
    from glaive.kernels.loops import spaced as spaced
    from glaive.kernels.loops import suffixes as suffixes
    from glaive.kernels.loops import text_search as text_search
    from glaive.kernels.loops import wavelet as wavelet
    from glaive.kernels.loops import xxh64 as xxh64

__all__ = ["SHARED_SOURCES", "is_loaded"]

_LOG = logging.getLogger(__name__)

_LOOPS: Final = Path(__file__).parent / "loops"
SHARED_SOURCES: Final = tuple(
    _LOOPS.with_name(name)
    for name in (
        "records.py",
        "string_records.py",
        "take_records.py",
        "text_records.py",
        "vector_records.py",
        "machine.py",
    )
)
"""What kernels read beside each other: where members of records lie, and what entries call."""

_READING: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
_DIGEST: Final = 32
_LAYOUT: Final = b"3"
"""Counts up when code of before cannot be called any more."""

_LOCK = RLock()


def _after_fork() -> None:
    """Replace a lock that a thread of the parent may have held."""
    global _LOCK  # noqa: PLW0603  # its threads are not there to release it
    _LOCK = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Kernels:
    """The kernels of one module, each linked on first use."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        with _LOCK:
            if name not in self.__dict__:  # else another thread was first
                kernel = _compiled if settings.kernels == "checked" else _linked
                self.__dict__[name] = kernel(self._module, name)
        return self.__dict__[name]


def __getattr__(module: str) -> Any:
    if module.startswith("_") or find_spec(f"glaive.kernels.loops.{module}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {module!r}")
    kernels = globals()[module] = _Kernels(module)
    return kernels


def is_loaded() -> bool:
    """Whether kernels of this process are linked already, so that the next one costs little."""
    return has_linked() or "glaive.kernels.loops.memory" in sys.modules


def _compiled(module: str, name: str) -> Any:
    """The kernel as numba makes it; with ``GLAIVE_KERNELS=checked``, what is called."""
    return getattr(import_module(f"glaive.kernels.loops.{module}"), name)


def _linked(module: str, name: str) -> Any:
    code, symbol = _read(module, name), f"glaive_{module}_{name}"
    if code is None:
        from glaive.kernels.loops.entry import compile_entry

        code = compile_entry(_compiled(module, name), symbol)
        _keep(module, name, code)
    return link(code, symbol, name)


# ------------------------------------------------------------------- the cache on disk


@cache
def _key() -> str:
    """What machine code depends on: sources, compiler and its settings, processor."""
    import llvmlite
    import llvmlite.binding as llvm

    numba = find_spec("numba")
    version = Path((numba.origin if numba is not None else None) or "numba")
    from hashlib import sha256

    digest = sha256(_LAYOUT)
    for path in (*sorted(_LOOPS.glob("*.py")), *SHARED_SOURCES, version.with_name("_version.py")):
        if path.exists():
            digest.update(path.read_bytes())
    for fact in (
        llvmlite.__version__,
        llvm.get_process_triple(),
        *processor(),
        *(f"{key}={value}" for key, value in sorted(os.environ.items()) if key[:6] == "NUMBA_"),
        getattr(sys, "abiflags", ""),
    ):
        digest.update(fact.encode() + b"\0")
    return digest.hexdigest()[:20]


@cache
def _folders() -> tuple[Path, ...]:
    """Where code is kept, in the order in which they are tried.

    Nowhere for a package in an archive: without its sources nobody knows what code is of.
    """
    if not _LOOPS.is_dir():
        return ()
    if settings.kernel_cache:
        return (Path(settings.kernel_cache),)
    beside = _LOOPS / "__pycache__"
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME", ""))
        home = home if home.is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # there is no home
        return (beside,)
    return (beside, home / "glaive" / "kernels")


def _file(folder: Path, module: str, name: str) -> Path:
    return folder / f"{module}.{name}-{_key()}.kernel"


def _read(module: str, name: str) -> bytes | None:
    """Code of a kernel; None where there is none to rely on."""
    for folder in _folders():
        path = _file(folder, module, name)
        try:
            with os.fdopen(os.open(path, _READING), "rb") as file:
                if not (_is_ours(os.fstat(file.fileno())) and _is_private(folder)):
                    _LOG.info("%s belongs to others, or they may write to it: not used", path)
                    continue
                content = file.read()
        except OSError:
            continue
        code = content[_DIGEST:]
        if _digest(path, code) == content[:_DIGEST]:
            return code
        _LOG.warning("%s is damaged: compiled again", path)
    return None


def _digest(path: Path, code: bytes) -> bytes:
    """The head of a file: of its code, and of its name, which says what the code is for."""
    from hashlib import sha256

    return sha256(path.name.encode() + b"\0" + code).digest()


def _is_ours(status: os.stat_result, others: int = 0o022) -> bool:
    """Whether nobody else can have written to something: code is run."""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & others


def _is_private(folder: Path) -> bool:
    """Whether nobody else can put files into a folder in place of ours.

    A group may: many users have one of their own.
    """
    status = folder.stat()
    return _is_ours(status, 0 if status.st_mode & stat.S_ISVTX else 0o002)


def _keep(module: str, name: str, code: bytes) -> None:
    """Write code for later processes, where that is allowed."""
    for folder in _folders():
        path = _file(folder, module, name)
        unfinished = path.with_name(f"{path.name}.{os.urandom(6).hex()}")
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not _is_private(folder):
                continue
            fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(_digest(path, code) + code)
                unfinished.replace(path)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
        except OSError as error:
            _LOG.debug("kernels cannot be kept in %s: %s", folder, error)
        else:
            return
    _LOG.info("compiled kernels cannot be kept: every process compiles them again")
