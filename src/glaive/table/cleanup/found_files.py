"""Files that a clean-up found: packed on their way between processes, and where they wait.

A process that only hands them on holds some 30 bytes of each, not 220.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, Self, get_args, overload

import numpy as np

from glaive.dataclass import dataclass
from glaive.named_tuple import NamedTuple
from glaive.table.references import FileKind, FileSet

__all__ = ["CleanupFile", "FoundFiles", "PlannedFiles", "in_batches"]

_KINDS: Final[tuple[FileKind, ...]] = get_args(FileKind)


class CleanupFile(NamedTuple):
    """A file to delete; ``unverified`` if no known version has used it.

    ``unfinished`` is an empty manifest, deleted only if it is still empty then.
    """

    path: str
    kind: FileKind
    size: int
    unverified: bool
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Some files, compressed where they are pickled, and what a process that keeps them needs.

    Parameters
    ----------
    given
        The files, or what another process packed.
    drawn
        Whether all names are random, so that nobody uses them again.
    counts
        Files of each kind.
    size
        Bytes of all files.
    """

    given: Sequence[CleanupFile] | bytes
    drawn: bool
    counts: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, files: Sequence[CleanupFile], *, drawn: bool) -> Self:
        """These files."""
        kinds = [file.kind for file in files]
        counts = tuple(map(kinds.count, _KINDS))
        return cls(files, drawn, counts, sum(file.size for file in files))

    def __len__(self) -> int:
        return sum(self.counts)

    @property
    def files(self) -> Sequence[CleanupFile]:
        """The files; unpacked with each call."""
        return _unpack(self.given) if isinstance(self.given, bytes) else self.given

    def count(self, kind: FileKind) -> int:
        """Files of a kind."""
        return self.counts[_KINDS.index(kind)]

    def without(self, paths: FileSet | set[str]) -> FoundFiles:
        """The files that are not among these paths."""
        files = [file for file in self.files if file.path not in paths]
        return self if len(files) == len(self) else FoundFiles.of(files, drawn=self.drawn)

    def __reduce__(self) -> tuple[object, ...]:
        packed = self.given if isinstance(self.given, bytes) else _pack(self.given)
        return FoundFiles, (packed, self.drawn, self.counts, self.size)


def _pack(files: Sequence[CleanupFile]) -> bytes:
    kinds = bytes(_KINDS.index(file.kind) for file in files)
    flags = bytes(file.unverified + 2 * file.unfinished for file in files)
    sizes = np.array([file.size for file in files], np.int64).tobytes()
    columns = ([file.path for file in files], kinds, flags, sizes)
    return zlib.compress(pickle.dumps(columns), 1)


def _unpack(packed: bytes) -> list[CleanupFile]:
    # A process of the same job packed them: they trust each other, as Spark's do.
    columns = pickle.loads(zlib.decompress(packed))  # noqa: S301  # see above
    paths, kinds, flags, sizes = columns
    numbers = np.frombuffer(sizes, np.int64).tolist()
    return [
        CleanupFile(path, _KINDS[kind], size, bool(flag & 1), bool(flag & 2))
        for path, kind, flag, size in zip(paths, kinds, flags, numbers, strict=True)
    ]


class PlannedFiles(Sequence[CleanupFile]):
    """All files of a plan, a sequence of values that are made when one is asked for.

    Parameters
    ----------
    runs
        Some of them each, in their order.
    """

    __slots__ = ("runs",)

    def __init__(self, runs: Iterable[FoundFiles] = ()) -> None:
        self.runs = tuple(run for run in runs if len(run))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(run.size for run in self.runs)

    def count_of(self, kind: FileKind) -> int:
        """Files of a kind."""
        return sum(run.count(kind) for run in self.runs)

    def without(self, paths: FileSet | set[str]) -> PlannedFiles:
        """The files that are not among these paths."""
        return PlannedFiles(run.without(paths) for run in self.runs)

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def __iter__(self) -> Iterator[CleanupFile]:
        return chain.from_iterable(run.files for run in self.runs)

    @overload
    def __getitem__(self, at: int) -> CleanupFile: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[CleanupFile, ...]: ...
    def __getitem__(self, at: int | slice) -> CleanupFile | tuple[CleanupFile, ...]:
        chosen = range(len(self))[at]
        if isinstance(chosen, range):
            if chosen.step > 0:
                return tuple(islice(self, chosen.start, chosen.stop, chosen.step))
            return tuple(self)[at]
        return next(islice(self, chosen, None))

    def __repr__(self) -> str:
        return f"PlannedFiles(<{len(self)} files>)"


def in_batches(files: Iterable[CleanupFile], count: int) -> Iterator[list[CleanupFile]]:
    """So many files at a time."""
    left = iter(files)
    while batch := list(islice(left, count)):
        yield batch
