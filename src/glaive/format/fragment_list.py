"""Lists of fragments in wire format: a million need a tenth of the memory of their values.

Tasks send such lists, and operations keep them: a :class:`Fragment` is made when one is asked for.

Specification: "Fragments and data files" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self, overload

import numpy as np

from glaive.format.fragment import Fragment, check_fragment, storage_version
from glaive.format.fragment_columns import FragmentColumns
from glaive.format.pb import table_pb2
from glaive.format.wire import parse
from glaive.types import FormatVersion, Int64s

__all__ = [
    "FragmentList",
    "encode_lists",
    "file_versions",
    "ids_and_rows",
    "ids_of",
    "messages_of",
    "packed_fragments",
    "packed_of",
    "unpacked_fragments",
]

_TRANSACTION = "the transaction"
"""Source of uncommitted fragments, for messages."""


class FragmentList(Sequence[Fragment]):
    """Fragments in wire format, a sequence of values; can be pickled.

    Parameters
    ----------
    packed
        Messages of fragments.
    """

    __slots__ = ("_wire",)

    def __init__(self, packed: Iterable[bytes] = ()) -> None:
        self._wire = table_pb2.ManifestOutline()
        self._wire.fragments.extend(packed)

    @classmethod
    def of(cls, fragments: Iterable[Fragment]) -> Self:
        """The same fragments."""
        return cls(packed_of(fragments))

    @classmethod
    def joined(cls, parts: Iterable[Iterable[Fragment]]) -> Self:
        """The fragments of several lists."""
        return cls(packed for part in parts for packed in packed_of(part))

    @classmethod
    def read(cls, data: bytes) -> Self:
        """The list from what its pickle holds."""
        made = cls()
        parse(made._wire, data, "fragments", _TRANSACTION)
        return made

    @property
    def packed(self) -> Sequence[bytes]:
        """The messages, as they lie."""
        return self._wire.fragments

    @property
    def ids(self) -> Int64s:
        """Id of each fragment; shape ``(fragments,)``."""
        return FragmentColumns(self._wire, _TRANSACTION).ids

    @property
    def physical_rows(self) -> Int64s:
        """Physical rows of each fragment; shape ``(fragments,)``."""
        return FragmentColumns(self._wire, _TRANSACTION).physical_rows

    @property
    def deleted_rows(self) -> Int64s:
        """Deleted rows of each; -1 if only the deletion file has their number."""
        return FragmentColumns(self._wire, _TRANSACTION).deleted_rows

    @property
    def row_count(self) -> int:
        """Physical rows of all fragments."""
        return int(self.physical_rows.sum())

    @property
    def file_count(self) -> int:
        """Data files and deletion files of all fragments."""
        columns = FragmentColumns(self._wire, _TRANSACTION)
        return columns.file_count + columns.deletion_file_count

    def messages(self) -> Iterator[table_pb2.DataFragment]:
        """A new copy of each message, checked.

        Raises
        ------
        CorruptFileError
            As for :func:`glaive.format.fragment.check_fragment`, or one cannot be parsed.
        """
        for packed in self._wire.fragments:
            message = parse(table_pb2.DataFragment(), packed, "fragment", _TRANSACTION)
            check_fragment(message, _TRANSACTION)
            yield message

    def __len__(self) -> int:
        return len(self._wire.fragments)

    @overload
    def __getitem__(self, at: int) -> Fragment: ...
    @overload
    def __getitem__(self, at: slice) -> FragmentList: ...
    def __getitem__(self, at: int | slice) -> Fragment | FragmentList:
        if isinstance(at, slice):
            return FragmentList(self._wire.fragments[at])
        return _value_of(self._wire.fragments[at])

    def __iter__(self) -> Iterator[Fragment]:
        return map(_value_of, self._wire.fragments)

    def __repr__(self) -> str:
        return f"FragmentList(<{len(self)} fragments>)"

    def __reduce__(self) -> tuple[Any, ...]:
        return FragmentList.read, (self._wire.SerializeToString(),)


def _value_of(packed: bytes) -> Fragment:
    return Fragment.from_wire(parse(table_pb2.DataFragment(), packed, "fragment", _TRANSACTION))


def packed_of(fragments: Iterable[Fragment]) -> Iterable[bytes]:
    """Messages of fragments, as they lie."""
    if isinstance(fragments, FragmentList):
        return fragments.packed
    return (fragment.to_wire().SerializeToString() for fragment in fragments)


def messages_of(fragments: Iterable[Fragment]) -> Iterator[table_pb2.DataFragment]:
    """A new message of each fragment; errors as for :meth:`FragmentList.messages`."""
    if isinstance(fragments, FragmentList):
        return fragments.messages()
    return (fragment.to_wire() for fragment in fragments)


def ids_of(fragments: Iterable[Fragment]) -> list[int]:
    """Ids of fragments."""
    if isinstance(fragments, FragmentList):
        ids: list[int] = fragments.ids.tolist()
        return ids
    return [fragment.id for fragment in fragments]


def ids_and_rows(fragments: Sequence[Fragment]) -> Int64s:
    """Ids and physical rows of fragments; shape ``(2, fragments)``."""
    if isinstance(fragments, FragmentList):
        return np.stack([fragments.ids, fragments.physical_rows])
    pairs = [(fragment.id, fragment.physical_rows) for fragment in fragments]
    return np.array(pairs, np.int64).reshape(-1, 2).T


def file_versions(fragments: Iterable[Fragment]) -> set[FormatVersion]:
    """Format versions of all data files."""
    if not isinstance(fragments, FragmentList):
        return {file.version for fragment in fragments for file in fragment.files}
    numbers = {
        (file.file_major_version, file.file_minor_version)
        for message in fragments.messages()
        for file in message.files
    }
    return {storage_version(*number) for number in numbers}


def encode_lists(
    first: Iterable[Fragment] = (),
    second: Iterable[Fragment] = (),
    third: Iterable[Fragment] = (),
) -> bytes:
    """Part of the message of an operation: its lists, in the fields of these numbers."""
    lists = table_pb2.FragmentLists()
    lists.first.extend(packed_of(first))
    lists.second.extend(packed_of(second))
    lists.third.extend(packed_of(third))
    return lists.SerializeToString()


def packed_fragments(fragments: Iterable[Fragment]) -> tuple[bytes, ...]:
    """Fragments as bytes, for other processes."""
    return tuple(packed_of(fragments))


def unpacked_fragments(packed: Iterable[bytes], where: object) -> FragmentList:
    """Fragments from the bytes of :func:`packed_fragments`.

    Raises
    ------
    CorruptFileError
        They are no such bytes.
    """

    def checked() -> Iterator[bytes]:
        for data in packed:
            check_fragment(parse(table_pb2.DataFragment(), data, "fragment", where), where)
            yield data

    return FragmentList(checked())
