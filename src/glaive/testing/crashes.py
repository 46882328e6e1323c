"""End a process in the middle of an operation, and look at what is left.

The operation runs in a forked child, which is killed by the operating system: nothing is
tidied up. Local directories only; where there is no ``fork`` nothing can be done.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

__all__ = ["killed_after", "killed_at_step"]

_STEPS = frozenset(
    {"open", "os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
)
"""What changes a directory, as the interpreter reports it; ``open`` only for writing."""
_FAILED = 70


def killed_at_step(place: str, operation: Callable[[], object], step: int) -> bool:
    """Carry out an operation in a child that dies before its n-th change of a file.

    Parameters
    ----------
    place
        Changes of files below this directory count.
    operation
        What the child does.
    step
        Which change, counted from 1.

    Returns
    -------
    bool
        Whether the child was killed; otherwise the operation has fewer steps and is done.

    Raises
    ------
    RuntimeError
        The operation failed.
    """
    child = os.fork()
    if child:
        return _outcome(child)
    left = step

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event not in _STEPS or not arguments or not _path(event, arguments).startswith(place):
            return
        if event == "open" and not _writes(arguments):
            return
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    _run(operation)
    return False


def killed_after(operation: Callable[[], object], seconds: float) -> bool:
    """Carry out an operation in a child that is killed after some time.

    Returns whether it was killed; otherwise it was done before.

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
    """The file concerned; names may be relative to the descriptor of an opened folder."""
    name = str(arguments[0])
    folder = arguments[-1] if event in ("os.remove", "os.rmdir") else -1
    if isinstance(folder, int) and folder >= 0:
        return str(Path(f"/proc/self/fd/{folder}").readlink() / name)
    return name


def _writes(arguments: tuple[object, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 else 0
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _run(operation: Callable[[], object]) -> None:
    """Carry out the operation and leave the process, without what a test would do at its end."""
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
