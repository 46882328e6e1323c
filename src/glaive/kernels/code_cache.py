"""Machine code of kernels on disk, which later processes find there.

Code is kept per kernel, processor and source: a file has the hash of all kernels' sources, of the
versions of the compiler and of what the processor can do in its name, and that of its contents
at its head. Processes may race: a file is complete before it gets its name.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from glaive.config import settings
from glaive.kernels.library import digest as sources_digest
from glaive.kernels.machine import processor

_LOG = logging.getLogger(__name__)

_LOOPS: Final = Path(__file__).parent / "loops"

_READING: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
_DIGEST: Final = 32


@cache
def _key() -> str:
    """What machine code depends on: sources, compiler and its settings, processor."""
    import llvmlite
    import llvmlite.binding as llvm

    numba = find_spec("numba")
    version = Path((numba.origin if numba is not None else None) or "numba")
    digest = sha256(sources_digest().encode())
    if version.with_name("_version.py").exists():
        digest.update(version.with_name("_version.py").read_bytes())
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


def read_code(module: str, name: str) -> bytes | None:
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


def has_code(module: str = "*", name: str = "*") -> bool:
    """Whether there is code of a kernel, or of any kernel, to rely on or not."""
    file = _file(Path(), module, name).name
    return any(next(folder.glob(file), None) is not None for folder in _folders())


def shared_folder() -> Path | None:
    """The folder in which this process would keep code; None where it cannot."""
    for folder in _folders():
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            if _is_private(folder) and os.access(folder, os.W_OK):
                return folder
        except OSError:
            continue
    return None


def _digest(path: Path, code: bytes) -> bytes:
    """The head of a file: of its code, and of its name, which says what the code is for."""
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


def keep_code(module: str, name: str, code: bytes) -> None:
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
    _warn_once()


@cache
def _warn_once() -> None:
    _LOG.warning(without_a_place())


def without_a_place() -> str:
    """Say why no kernel can be kept, and what to do."""
    places = " or ".join(map(str, _folders())) or "an archive"
    return (
        f"machine code of kernels cannot be kept in {places}: every process compiles for seconds. "
        "Set GLAIVE_KERNEL_CACHE to a folder that you own and only you can write to, or run "
        "`glaive warmup` where glaive is installed."
    )
