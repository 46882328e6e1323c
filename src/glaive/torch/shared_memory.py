"""Memory in which a worker of a loader hands the tensors of a batch to the process that trains.

torch moves each tensor into memory of its own and sends a descriptor for it through a socket,
which takes longer than reading the batch. Here all tensors of a batch lie in one block, which the
worker keeps: it is used again once the tensors are deleted. The other process maps the block for as
long as a tensor of it lives, and holds nothing else; so nothing is left behind whoever is killed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from threading import Lock
from typing import Any

from glaive.errors import JobError

__all__ = ["HEAD", "BlockAddress", "MappedBlock", "lend", "lends_memory"]

HEAD = 64
"""Bytes of a block before its data: the first one says who uses the block."""

BlockAddress = tuple[int, int, int, int]
"""Process, descriptor and inode of a block, and how many of its bytes are used."""

_FREE, _LENT, _ABANDONED = 0, 1, 2
_MOST_BLOCKS = 64
_MOST_FREE_BLOCKS = 4


class _Forks:
    """Counts the forks of this process: what was mapped before one is mapped in the child, too."""

    count = 0

    @classmethod
    def add(cls) -> None:
        cls.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_Forks.add)


class _Block:
    """A block of memory that has no name and lives until nobody maps it or has it open."""

    def __init__(self, size: int) -> None:
        self.descriptor = os.memfd_create("glaive-batch")
        try:
            os.ftruncate(self.descriptor, size)
            self.inode = os.fstat(self.descriptor).st_ino
            self.memory = mmap.mmap(self.descriptor, size)
            self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        except BaseException:
            os.close(self.descriptor)
            raise

    def __del__(self, close: Any = os.close) -> None:
        if hasattr(self, "memory"):
            close(self.descriptor)


class _Blocks:
    """The blocks of this process. A block that is too small is replaced by a larger one."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._blocks: list[_Block] = []
        self._lock = Lock()

    def lend(self, size: int) -> _Block | None:
        """A free block of ``size`` bytes behind its head; None if too many are in use."""
        with self._lock:
            if self._process != os.getpid():  # a fork: the blocks are the parent's
                self._process, self._blocks = os.getpid(), []
            states = [block.memory[0] for block in self._blocks]
            free = [at for at, state in enumerate(states) if state == _FREE]
            chosen = next((at for at in free if len(self._blocks[at].memory) >= HEAD + size), None)
            unused = [at for at in free if at != chosen]
            # Without one that is large enough, a block that is too small makes room.
            kept = set(unused[: _MOST_FREE_BLOCKS - (chosen is None)])
            block = None if chosen is None else self._blocks[chosen]
            self._blocks = [
                block
                for at, block in enumerate(self._blocks)
                if at in kept or at == chosen or states[at] == _LENT
            ]
            if block is None:
                if len(self._blocks) >= _MOST_BLOCKS:
                    return None
                block = _Block(-(-(HEAD + size + size // 8) // mmap.PAGESIZE) * mmap.PAGESIZE)
                self._blocks.append(block)
            block.memory[0] = _LENT
            return block


_blocks = _Blocks()


def lend(size: int) -> tuple[int, BlockAddress] | None:
    """Where in memory there is a block with ``size`` bytes behind its head, and its address.

    None if other processes hold too many blocks already, or the system has no more.
    """
    try:
        block = _blocks.lend(size)
    except OSError:
        return None  # no descriptors or no memory: torch's way may still work, or say what is wrong
    if block is None:
        return None
    address = (os.getpid(), block.descriptor, block.inode, HEAD + size)
    return block.start, address


class MappedBlock(mmap.mmap):
    """A block of another process; when it is deleted, that process may use the block again."""

    _forks = 0
    _owner = 0

    @classmethod
    def at(cls, address: BlockAddress) -> MappedBlock:
        """Map a block.

        Raises
        ------
        JobError
            The process that has the block has ended.
        """
        process, descriptor, inode, size = address
        place = f"/proc/{process}/fd/{descriptor}"
        try:
            opened = os.open(place, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError, ProcessLookupError) as error:
            raise JobError(_ended(process, str(error))) from error
        try:
            if os.fstat(opened).st_ino != inode:
                raise JobError(_ended(process, f"{place} is another file"))
            block = cls(opened, size)
        finally:
            os.close(opened)
        block._forks, block._owner = _Forks.count, os.getpid()
        return block

    # Defaults, since a program that ends deletes names of modules before its last batches.
    def __del__(self, getpid: Any = os.getpid, forks: Any = _Forks) -> None:
        if self._owner == getpid():
            # A child that was forked meanwhile may still read it: then it is not used again.
            self[0] = _FREE if self._forks == forks.count else _ABANDONED


def _ended(process: int, found: str) -> str:
    return (
        f"DataLoader: process {process} ended before its batch was read ({found}). If the system "
        "killed it, use fewer workers or smaller batches"
    )


def lends_memory() -> bool:
    """Whether the system has what this takes: nameless memory, opened through ``/proc``."""
    if not hasattr(os, "memfd_create"):
        return False
    try:
        # Whether the parent may be looked at is the same question as whether it may look here.
        next(Path(f"/proc/{os.getppid()}/fd").iterdir())
        block = _Block(mmap.PAGESIZE)
        MappedBlock.at((os.getpid(), block.descriptor, block.inode, mmap.PAGESIZE))
    except (OSError, JobError, StopIteration):
        return False
    return True
