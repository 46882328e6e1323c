"""Manifests: what one version of a dataset consists of.

A manifest file is, in order: the index section (if there are indices), the transaction that
made the version, the manifest message, each behind its length as ``u32``, and the footer.
The message says where the first two begin.

:class:`Manifest` keeps the message with its fragments left unparsed, and makes Python values
of those that are asked for: a dataset of 100,000 fragments opens, counts its rows and is
appended to without a step per fragment.

Specification: "Manifest file" in ``docs/format``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from glaive.errors import CorruptFileError, NotFoundError, UnsupportedFeatureError
from glaive.format.fields import LanceSchema
from glaive.format.flags import Feature, check_readable
from glaive.format.footer import ManifestFooter
from glaive.format.fragment import Fragment, SingleFile, check_fragment
from glaive.format.fragment_columns import FragmentColumns
from glaive.format.index_section import decode_index_section
from glaive.format.limits import check_file_name
from glaive.format.paths import NamingScheme
from glaive.format.pb import table_pb2
from glaive.types import FormatVersion

__all__ = ["WRITER", "Manifest", "decode_manifest", "encode_manifest"]

WRITER: Final = ("glaive", "0.1.0")
"""Library and version as manifests name them."""

_LENGTH: Final = struct.Struct("<I")
_FORMATS: Final = {
    text: FormatVersion(*map(int, text.split("."))) for text in ("0.1", "2.0", "2.1", "2.2", "2.3")
}


class Manifest:
    """One version of a dataset.

    Parameters
    ----------
    wire
        The message, each of its fragments in wire form; never changed.
    where
        Full path of the file, for messages.
    scheme
        How this dataset's manifests are named.
    transaction
        Wire form of the transaction that made the version, if the file holds it.
    index_section
        Wire form of the index section, if there is one.
    """

    def __init__(
        self,
        wire: table_pb2.ManifestOutline,
        *,
        where: str,
        scheme: NamingScheme = "V2",
        transaction: bytes | None = None,
        index_section: bytes | None = None,
    ) -> None:
        self.wire = wire
        self.where = where
        self.scheme: NamingScheme = scheme
        self.transaction = transaction
        self.index_section = index_section
        self.version: int = wire.version
        self.stated = FragmentColumns(wire, where)
        """Numbers of all fragments as the file states them; see :attr:`columns`."""
        self.read_rows: Callable[[Manifest], table_pb2.ManifestOutline] | None = None
        """Makes the message with the rows that only data files tell; None if it tells all."""

    def __repr__(self) -> str:
        return f"Manifest(version={self.version}, fragments={self.num_fragments})"

    # ----------------------------------------------------------------- content

    @cached_property
    def schema(self) -> LanceSchema:
        """The columns."""
        wire = self.wire
        schema = LanceSchema.from_wire(wire.fields, wire.schema_metadata, where=self.where)
        if schema.repeated_name is not None:
            raise CorruptFileError(
                "names of columns",
                expected="different ones beside each other",
                found=f"{schema.repeated_name!r:.100} twice",
                where=self.where,
            )
        return schema

    def share_schema(self, other: Manifest) -> None:
        """Take over the columns of another version where the messages have the same fields."""
        mine, theirs = self.wire, other.wire
        if mine.fields == theirs.fields and mine.schema_metadata == theirs.schema_metadata:
            self.__dict__["schema"] = other.schema  # where the cached property would keep it

    @cached_property
    def data_format(self) -> FormatVersion:
        """Format version of new data files."""
        text = self.wire.data_format.version
        if text:
            known = _FORMATS.get(text)
            if known is None:
                raise UnsupportedFeatureError(
                    f"unknown data storage version {text!r} (in {self.where}); this reader knows "
                    f"{', '.join(_FORMATS)}. The dataset was probably written by a newer Lance: "
                    "upgrade glaive."
                )
            return known
        for position in range(self.num_fragments):
            for file in Fragment.from_wire(self._parsed(self.wire, position), self.where).files:
                return file.version
        # Writers of that time knew only whether files are of the second generation.
        second = self.wire.writer_feature_flags & Feature.V2_FILES
        return FormatVersion(2, 2) if second else FormatVersion(0, 1)

    @property
    def timestamp(self) -> datetime:
        """Time of the commit, in microseconds."""
        wire = self.wire.timestamp
        try:
            whole = datetime.fromtimestamp(wire.seconds, UTC)
            return whole.replace(microsecond=wire.nanos // 1000)
        except (ValueError, OverflowError, OSError) as error:
            raise CorruptFileError(
                "timestamp",
                expected="seconds and nanoseconds since 1970",
                found=f"{wire.seconds} and {wire.nanos}",
                where=self.where,
            ) from error

    @property
    def config(self) -> Mapping[str, str]:
        """Table configuration."""
        return dict(self.wire.config)

    @property
    def table_metadata(self) -> Mapping[str, str]:
        """Free metadata of the table."""
        return dict(self.wire.table_metadata)

    @property
    def max_fragment_id(self) -> int:
        """Highest fragment id ever used; -1 while there was none.

        Where the manifest does not tell, as in datasets of old releases, the highest there is.
        """
        if self.wire.HasField("max_fragment_id"):
            return self.wire.max_fragment_id
        return int(self.fragment_ids.max()) if self.num_fragments else -1

    @property
    def first_field_id(self) -> int:
        """Where an overwrite starts to count field ids: at 0 unless ids must not be reused."""
        wire = self.wire
        return wire.max_allocated_field_id + 1 if wire.HasField("max_allocated_field_id") else 0

    def uses(self, feature: Feature) -> bool:
        """Whether a flag is set in one of the two words."""
        return bool((self.wire.reader_feature_flags | self.wire.writer_feature_flags) & feature)

    @cached_property
    def indices(self) -> list[table_pb2.IndexMetadata]:
        """Wire entries of the index section, in order, checked.

        Raises
        ------
        CorruptFileError
            As :func:`glaive.format.index_section.decode_index_section`.
        """
        if self.index_section is None:
            return []
        return decode_index_section(self.index_section, self.where)

    # --------------------------------------------------------------- fragments

    @cached_property
    def complete_wire(self) -> table_pb2.ManifestOutline:
        """The message with the rows of all fragments. Old releases left some to the data files.

        Then one request per fragment whose rows are not known, when first asked for.
        """
        if self.read_rows is None or self.stated.rows_known:
            return self.wire
        return self.read_rows(self)

    @cached_property
    def columns(self) -> FragmentColumns:
        """Ids, rows and row ids of all fragments; one parse of the whole list when asked for."""
        wire = self.complete_wire
        return self.stated if wire is self.wire else FragmentColumns(wire, self.where)

    @property
    def num_fragments(self) -> int:
        """Number of fragments."""
        return len(self.wire.fragments)

    def fragment_wire(self, position: int) -> table_pb2.DataFragment:
        """The message of the fragment at a position of the list, checked: a new one at each call.

        Raises
        ------
        CorruptFileError
            It cannot be parsed, or as :func:`glaive.format.fragment.check_fragment`.
        """
        found = self._parsed(self.complete_wire, position)
        check_fragment(found, self.where)
        return found

    def single_file(self, position: int, max_size: int) -> SingleFile | None:
        """The only file of a fragment; see :meth:`SingleFile.from_wire`."""
        return SingleFile.from_wire(self.fragment_wire(position), max_size)

    def fragment(self, position: int) -> Fragment:
        """The fragment at a position of the list; errors as for :meth:`fragment_wire`."""
        return Fragment.from_wire(self._parsed(self.complete_wire, position), self.where)

    def _parsed(self, wire: table_pb2.ManifestOutline, position: int) -> table_pb2.DataFragment:
        found: table_pb2.DataFragment = _parse(
            table_pb2.DataFragment, wire.fragments[position], "fragment", self.where
        )
        return found

    def fragments(self) -> Iterator[Fragment]:
        """All fragments, in order."""
        return map(self.fragment, range(self.num_fragments))

    @property
    def fragment_ids(self) -> NDArray[np.int64]:
        """Id of each fragment, in list order."""
        return self.stated.ids

    def position_of(self, fragment_id: int) -> int:
        """Position in the list of the fragment with this id.

        Raises
        ------
        NotFoundError
            The version has no such fragment.
        """
        found = np.flatnonzero(self.fragment_ids == fragment_id)
        if not len(found):
            raise NotFoundError(f"version {self.version} has no fragment {fragment_id}")
        return int(found[0])

    @property
    def physical_rows(self) -> NDArray[np.int64]:
        """Rows in the files of each fragment, deleted ones included.

        0 where nothing tells: the manifest is one of releases up to 0.7, and was not read.
        """
        return self.columns.physical_rows

    @property
    def deleted_rows(self) -> NDArray[np.int64]:
        """Deleted rows of each fragment; -1 where only the deletion file tells."""
        return self.columns.deleted_rows

    def count_rows(self) -> int | None:
        """Live rows; ``None`` in an old dataset where only the files tell."""
        return self.columns.count_rows()


def decode_manifest(
    data: pa.Buffer, *, where: str, scheme: NamingScheme = "V2", to_read: bool = True
) -> Manifest:
    """Read a whole manifest file; rows may be read of it unless ``to_read`` is False.

    Raises
    ------
    NotLanceError
        The bytes do not end like a manifest.
    CorruptFileError
        A section does not lie within the file, or is no message.
    UnsupportedFeatureError
        The version needs a feature that this reader does not know; the message names it.
    """
    footer = ManifestFooter.parse(data, data.size, where=where)
    view = memoryview(data)
    end = data.size - ManifestFooter.SIZE
    raw = _section(view, footer.position, end, "manifest", where)
    wire = _parse(table_pb2.ManifestOutline, raw, "manifest", where)
    if to_read:
        check_readable(wire.reader_feature_flags, wire.writer_feature_flags, where=where)
    if wire.transaction_file:
        check_file_name(wire.transaction_file, "name of the transaction's file", where)
    transaction = index_section = None
    if wire.HasField("transaction_section"):
        transaction = bytes(
            _section(view, wire.transaction_section, footer.position, "transaction", where)
        )
    elif wire.HasField("transaction_section_deprecated"):
        at = wire.transaction_section_deprecated
        transaction = bytes(_section(view, at, footer.position, "transaction", where))
    if wire.HasField("index_section"):
        index_section = bytes(
            _section(view, wire.index_section, footer.position, "index section", where)
        )
    manifest = Manifest(
        wire, where=where, scheme=scheme, transaction=transaction, index_section=index_section
    )
    named = wire.HasField("writer_version")
    manifest.stated = FragmentColumns(wire, where, raw, all_rows=named)
    return manifest


def _section(view: memoryview, at: int, end: int, what: str, where: str) -> memoryview:
    """Bytes of the section whose length stands at ``at``; it ends at or before ``end``."""
    if at + _LENGTH.size > end:
        raise CorruptFileError(
            f"position of the {what}", expected=f"below {end}", found=f"{at}", where=where
        )
    (size,) = _LENGTH.unpack_from(view, at)
    start = at + _LENGTH.size
    if start + size > end:
        raise CorruptFileError(
            f"length of the {what}",
            expected=f"at most {end - start} bytes",
            found=f"{size}",
            where=where,
        )
    return view[start : start + size]


def _parse(kind: Any, data: bytes | memoryview, what: str, where: str) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise CorruptFileError(
            what,
            expected="a protobuf message",
            found=f"{len(data)} bytes that are none",
            where=where,
        ) from error


def encode_manifest(
    wire: table_pb2.ManifestOutline,
    *,
    transaction: bytes,
    index_section: bytes | None,
    dictionaries: Sequence[bytes] = (),
) -> list[bytes]:
    """Pieces of a manifest file; sets the positions in ``wire``.

    ``dictionaries`` come first, where the fields of ``wire`` say.
    """
    pieces: list[bytes] = list(dictionaries)
    position = sum(map(len, pieces))
    wire.ClearField("index_section")
    wire.ClearField("transaction_section_deprecated")
    if index_section is not None:
        wire.index_section = position
        pieces += [_LENGTH.pack(len(index_section)), index_section]
        position += _LENGTH.size + len(index_section)
    wire.transaction_section = position
    pieces += [_LENGTH.pack(len(transaction)), transaction]
    position += _LENGTH.size + len(transaction)
    message = wire.SerializeToString()
    pieces += [_LENGTH.pack(len(message)), message, ManifestFooter(position).build()]
    return pieces
