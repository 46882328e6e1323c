"""Kill a process in the middle of an operation, to check the files it leaves.

``left_by_kills`` copies the files before each change: one run of the operation gives all of them.
``killed_at_step`` and ``killed_after`` run the operation in a forked child, which is killed without
any cleanup: a run for each kill. Only for local directories on systems with ``fork``.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, get_ident

__all__ = ["before_changes", "killed_after", "killed_at_step", "left_by_kills"]

_STEPS = frozenset(
    {"open", "os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
)
"""Audit events that change a directory; ``open`` only for writing."""
_FAILED = 70


def killed_at_step(directory: str, operation: Callable[[], object], step: int) -> bool:
    """Run an operation in a child process that is killed before its n-th file change.

    Parameters
    ----------
    directory
        Changes of files below this directory count.
    operation
        Runs in the child.
    step
        Number of the change, from 1.

    Returns
    -------
    bool
        Whether the child was killed; otherwise the operation has fewer steps and completed.

    Raises
    ------
    RuntimeError
        The operation failed.
    """
    child = os.fork()
    if child:
        return _outcome(child)
    remaining = step

    def count() -> None:
        nonlocal remaining
        remaining -= 1
        if not remaining:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted() -> None:
        with before_changes(directory, count):
            operation()

    _run(counted)
    return False


def left_by_kills(directory: Path, operation: Callable[[], object], into: Path) -> list[Path]:
    """Run an operation once, and return copies of what kills of it would have left.

    Parameters
    ----------
    directory
        Changes of files below this directory count. It need not exist.
    operation
        Runs in this process, to its end.
    into
        A folder for the copies. Each copy has the name of the directory.

    Returns
    -------
    list[Path]
        The directory before each change, and at the end. States that differ in no file are one.
    """
    copies: list[Path] = []
    last: dict[str, bytes | None] = {}
    one_by_one = Lock()

    def copy() -> None:
        nonlocal last
        with one_by_one:
            made = into / f"{len(copies) + 1}" / directory.name
            _copied(directory, made)
            found = {
                str(path.relative_to(made)): path.read_bytes() if path.is_file() else None
                for path in made.rglob("*")
            }
            if found == last and copies:
                shutil.rmtree(made.parent)
            else:
                last = found
                copies.append(made)

    with before_changes(str(directory), copy):
        operation()
    copy()
    return copies


def _copied(directory: Path, made: Path) -> None:
    """Copy a directory, once more if a thread renames a file meanwhile."""
    made.parent.mkdir(parents=True)
    for _ in range(5):
        try:
            if directory.exists():
                shutil.copytree(directory, made)
        except (shutil.Error, FileNotFoundError):
            shutil.rmtree(made)
        else:
            return
    raise AssertionError(f"{directory} changes all the time")


@contextmanager
def before_changes(directory: str, call: Callable[[], object]) -> Iterator[None]:
    """Call a function before each change of a file that this process makes in the block.

    Copies that the function takes of the directory are what a kill of the process, and of all
    others that change it, would have left there.

    Parameters
    ----------
    directory
        Changes of files below this directory count.
    call
        Its own changes do not count.
    """
    watching = True
    calling: set[int] = set()  # threads

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        thread = get_ident()
        if not watching or thread in calling or event not in _STEPS or not arguments:
            return
        if not _path(event, arguments).startswith(directory):
            return
        if event == "open" and not _writes(arguments):
            return
        calling.add(thread)
        try:
            call()
        finally:
            calling.remove(thread)

    sys.addaudithook(hook)  # for as long as the process lives
    try:
        yield
    finally:
        watching = False


def killed_after(operation: Callable[[], object], seconds: float) -> bool:
    """Run an operation in a child process that is killed after some time.

    Returns whether it was killed; otherwise the operation completed before.

    Raises
    ------
    RuntimeError
        The operation failed.
    """
    child = os.fork()
    if not child:
        _run(operation)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return _outcome(child)


def _path(event: str, arguments: tuple[object, ...]) -> str:
    """The path of the file; it may be relative to the descriptor of an open directory."""
    name = str(arguments[0])
    descriptor = arguments[-1] if event in ("os.remove", "os.rmdir") else -1
    if isinstance(descriptor, int) and descriptor >= 0:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink() / name)
    return name


def _writes(arguments: tuple[object, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 else 0
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _run(operation: Callable[[], object]) -> None:
    """Run the operation and exit immediately, without the cleanup of the test runner."""
    try:
        operation()
    except BaseException:
        traceback.print_exc()
        os._exit(_FAILED)
    os._exit(0)


def _outcome(child: int) -> bool:
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) == signal.SIGKILL
    if os.WEXITSTATUS(status):
        raise RuntimeError("the operation failed in the child; its error was printed there")
    return False
