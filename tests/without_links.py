"""Children of this process whose system has no hard links, as FAT and many network mounts.

The kernel refuses the calls (seccomp), whoever makes them: nothing of this library is replaced.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Final, Literal

import pytest

System = Literal["links", "exclusive renames", "neither"]
"""What the file system has to name a file only where there is none."""

SYSTEMS: Final[Sequence[System]] = ("links", "exclusive renames", "neither")

_CALLS: Final = {"x86_64": (86, 265, 316), "aarch64": (37, 37, 276)}
"""Numbers of ``link``, ``linkat`` and ``renameat2``."""

needs_seccomp = pytest.mark.skipif(
    not sys.platform.startswith("linux") or platform.machine() not in _CALLS,
    reason="calls of the system cannot be refused here",
)

_LOAD, _IS, _ANSWER = 0x20, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_FLAGS_OF_RENAME: Final = 16 + 8 * 4
_FAILED: Final = 70


class _Step(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("jt", ctypes.c_ubyte),
        ("jf", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("size", ctypes.c_ushort), ("steps", ctypes.POINTER(_Step)))


def restrict(system: System) -> None:
    """Take from this process, for good, what the file system is not to have."""
    if system == "links":
        return
    link, linkat, rename = _CALLS[platform.machine()]
    steps = [(_LOAD, 0, 0, 0)]
    for number in (link, linkat):
        steps += [(_IS, 0, 1, number), (_ANSWER, 0, 0, _REFUSE | errno.EPERM)]
    if system == "neither":
        steps += [(_IS, 0, 3, rename), (_LOAD, 0, 0, _FLAGS_OF_RENAME)]
        steps += [(_IS, 1, 0, 0), (_ANSWER, 0, 0, _REFUSE | errno.EINVAL)]
    steps.append((_ANSWER, 0, 0, _ALLOW))
    program = _Program(len(steps), (_Step * len(steps))(*(_Step(*one) for one in steps)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "calls of the system cannot be refused here")


def begin(system: System, work: Callable[[], object]) -> int:
    """Begin work in a child; its process id. The child ends with 0 if it returned."""
    child = os.fork()
    if child:
        return child
    try:
        restrict(system)
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(_FAILED)
    os._exit(0)


def end(children: Sequence[int]) -> None:
    """Wait for children, all of which must have returned."""
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * len(codes), "a child failed; its error was printed"


def run(system: System, work: Callable[[], object]) -> None:
    """Do some work in a child."""
    end([begin(system, work)])
