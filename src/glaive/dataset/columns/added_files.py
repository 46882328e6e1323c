"""Files with new columns of fragments, on their way from tasks to the commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Self

import numpy as np

from glaive.dataclass import dataclass
from glaive.format.fragment import DataFile, Fragment, check_fragment
from glaive.format.fragment_list import FragmentList
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.wire import parse
from glaive.types import Int64s

__all__ = ["AddedFiles"]


@dataclass(frozen=True, slots=True, eq=False)
class AddedFiles:
    """One more file for some fragments of a version; can be pickled.

    Parameters
    ----------
    positions
        Of the fragments in the list of the version; shape ``(files,)``.
    parts
        What is added to each: a fragment with the file, and nothing else.
    """

    positions: Int64s
    parts: FragmentList

    @classmethod
    def of(cls, files: Mapping[int, DataFile]) -> Self:
        """The same from files by position."""
        positions = np.fromiter(files, np.int64, len(files))
        parts = (Fragment(files=(file,), physical_rows=0) for file in files.values())
        return cls(positions, FragmentList.of(parts))

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """The files of several tasks."""
        found = list(parts)
        none = np.empty(0, np.int64)
        positions = np.concatenate([none, *(part.positions for part in found)])
        return cls(positions, FragmentList.joined(part.parts for part in found))

    def __len__(self) -> int:
        return len(self.positions)

    def files(self) -> Iterator[DataFile]:
        """The files."""
        return (file for part in self.parts for file in part.files)

    def added_to(self, manifest: Manifest) -> FragmentList:
        """All fragments of the version, with these files.

        Raises
        ------
        CorruptFileError
            A fragment of the manifest cannot be read.
        """
        number = np.full(manifest.num_fragments, -1, np.int64)
        number[self.positions] = np.arange(len(self))
        before, added = manifest.complete_wire.fragments, self.parts.packed

        def grown() -> Iterator[bytes]:
            for position, part in enumerate(number.tolist()):
                if part < 0:
                    yield before[position]
                    continue
                # Messages that follow each other are read as one with the files of both.
                both = before[position] + added[part]
                message = parse(table_pb2.DataFragment(), both, "fragment", manifest.where)
                check_fragment(message, manifest.where)
                yield message.SerializeToString()

        return FragmentList(grown())
