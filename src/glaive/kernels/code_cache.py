"""A cache of kernels' machine code on disk, which later processes read.

Each file has the code of one kernel for one processor. Its name has a hash of all kernels'
sources, of the compiler's versions and of the processor's features. Its first bytes are the hash
of its contents. Processes may race: a file is complete before it gets its name.
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
    """Return a hash of all that code depends on: sources, compiler, settings, processor."""
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
    """Return the folders for code, in the order of use.

    The result is empty for a package in an archive: without its sources the key of its code is
    unknown.
    """
    if not _LOOPS.is_dir():
        return ()
    if settings.kernel_cache:
        return (Path(settings.kernel_cache),)
    local = _LOOPS / "__pycache__"
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME", ""))
        home = home if home.is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # the user lacks a home folder
        return (local,)
    return (local, home / "glaive" / "kernels")


def _file(folder: Path, module: str, name: str) -> Path:
    return folder / f"{module}.{name}-{_key()}.kernel"


def read_code(module: str, name: str) -> bytes | None:
    """Return the code of a kernel from a trusted file, or ``None``."""
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
    """Return whether a file, also an untrusted one, has code of a kernel, or of any kernel."""
    file = _file(Path(), module, name).name
    return any(next(folder.glob(file), None) is not None for folder in _folders())


def shared_folder() -> Path | None:
    """Return the folder where this process can store code, or ``None``."""
    for folder in _folders():
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            if _is_private(folder) and os.access(folder, os.W_OK):
                return folder
        except OSError:
            continue
    return None


def _digest(path: Path, code: bytes) -> bytes:
    """Return the head of a file: a hash of its code and of its name."""
    return sha256(path.name.encode() + b"\0" + code).digest()


def _is_ours(status: os.stat_result, others: int = 0o022) -> bool:
    """Return whether only this user or root can write to a file, as its code will run."""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & others


def _is_private(folder: Path) -> bool:
    """Return whether a folder protects our files from other users.

    A group may write to it: many users have a personal group.
    """
    status = folder.stat()
    return _is_ours(status, 0 if status.st_mode & stat.S_ISVTX else 0o002)


def keep_code(module: str, name: str, code: bytes) -> None:
    """Write code for later processes, if a folder permits it."""
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
    _LOG.warning(missing_folder())


def missing_folder() -> str:
    """Say that no folder can store code, and what to do."""
    places = " or ".join(map(str, _folders())) or "an archive"
    return (
        f"machine code of kernels cannot be kept in {places}: every process compiles for seconds. "
        "Set GLAIVE_KERNEL_CACHE to a folder that you own and only you can write to, or run "
        "`glaive warmup` where glaive is installed."
    )
