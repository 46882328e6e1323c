"""INVERTED: full-text indices.

Specification: "Files" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from glaive.errors import (
    CorruptFileError,
    DataFileMissingError,
    OptionError,
    UnsupportedFeatureError,
)
from glaive.format.pb import table_pb2
from glaive.index.protocol import BuiltSegment, IndexKind, IndexSource, RebuiltSegment, index_kind
from glaive.index.row_sets import AddressMap, RowSet
from glaive.index.segment import STAGING, IndexFile, Segment, SegmentWriter
from glaive.index.text.text_format import (
    METADATA,
    TOKEN_SETS,
    TextFormat,
    TextParams,
    details_by_name,
    read_posting_layout,
)

if TYPE_CHECKING:
    from glaive.index.text.opened import OpenedInverted
    from glaive.index.text.partition import StoredPartition


_IGNORED = "deleted_fragments"
_OLD_TOKENS, _OLD_POSTINGS = "tokens.lance", "invert.lance"

MERGE_MEMORY = 1 << 30
"""Bytes of memory for a merge of segments alone."""


@index_kind
class Inverted(IndexKind):
    """Tokens and the documents that contain them."""

    name: ClassVar[str] = "inverted"
    newest: ClassVar[int] = 3
    indexes_dictionaries: ClassVar[bool] = False
    markers: ClassVar[tuple[str, ...]] = (METADATA, _OLD_POSTINGS)

    def open(self, segment: Segment) -> OpenedInverted:
        """Read the parameters; searches open partitions when they need them."""
        from glaive.index.text.opened import OpenedInverted, OpenedPartition

        file = _described(segment)
        if _is_old(file):
            from glaive.index.text.partition import LegacyPartition

            return OpenedInverted(segment, read_format(segment).params, [LegacyPartition(segment)])
        layout = read_posting_layout(file)
        known = file.metadata.get("token_set_format", "arrow") in TOKEN_SETS
        if layout is None or not known or "partitions" not in file.metadata:
            raise UnsupportedFeatureError(f"{file.path}: a layout that is not known")
        _ignores_any(file, None)  # checks the bitmaps for damage
        params = TextParams.from_json(file.metadata.get("params", "{}"), file.path)
        partitions = [OpenedPartition(segment, number, layout) for number in _partitions(file)]
        return OpenedInverted(segment, params, partitions)

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Remove deleted documents from all partitions."""
        from glaive.index.text.partition import remap_partition

        file = _described(segment)
        if _is_old(file):
            from glaive.index.text.partition import remap_legacy

            built = remap_legacy(segment, read_format(segment), address_map, out)
            return RebuiltSegment(built.details, built.version)
        layout = read_posting_layout(file)
        known = file.metadata.get("token_set_format", "arrow") in TOKEN_SETS
        if layout is None or not known or "partitions" not in file.metadata:
            return None
        if _ignores_any(file, address_map.rewritten):
            # The index ignores documents by fragment: documents moved to others would be found
            # again.
            return None
        out.copy(segment, METADATA)
        for number in _partitions(file):
            remap_partition(segment, number, layout, address_map, out)
        return RebuiltSegment()

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Tokenize the texts of a source, and write the posting lists."""
        from glaive.index.text.partition import build_partitions, write_metadata

        form = form_of(source, parameters)
        write_metadata(out, form, build_partitions(source, form, out))
        return form.built()

    def check_mergeable(self, segment: Segment) -> None:
        """Raise for a segment by pylance up to 0.27, which pylance builds again, too."""
        if _is_old(_described(segment)):
            raise UnsupportedFeatureError(f"{segment.where}: of pylance up to 0.27, build it again")

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Join partitions of segments, and of a source, as far as memory allows."""
        from glaive.index.text.partition import (
            check_column,
            collect_partitions,
            merge_partitions,
            write_metadata,
        )

        form = read_format(segments[0])
        if source is not None:
            is_json = check_column(source.field, by_element=form.by_element)
            if is_json != (form.params.lance_tokenizer == "json"):
                raise UnsupportedFeatureError(
                    f"{segments[0].where} is over {form.params.lance_tokenizer}, column "
                    f"{source.field.name!r} is of type {source.field.type}: build it again"
                )
        stored: list[StoredPartition] = []
        for segment in segments:
            other = read_format(segment)
            if replace(other, token_set=form.token_set) != form:
                raise UnsupportedFeatureError(
                    f"{segment.where} was built with other parameters than {segments[0].where}"
                )
            stored += stored_partitions(segment, form)
        limit = MERGE_MEMORY if source is None else source.memory_limit
        added = iter(()) if source is None else collect_partitions(source, form)
        write_metadata(out, form, merge_partitions(stored, added, form, limit, out))
        return form.built()

    def details(self, entry: table_pb2.IndexMetadata) -> dict[str, Any]:
        """Return the tokenizer parameters."""
        return details_by_name(entry.index_details.value, f"details of index {entry.name!r}")

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """Return the parameters that built the segment."""
        return read_format(segment).options()

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Return tokenizer parameters, and the numbers of tokens and documents."""
        from glaive.index.text.partition import partition_files

        file = _described(segment)
        params = read_format(segment).params
        old = _is_old(file)
        names = [partition_files(one) for one in ([None] if old else _partitions(file))]
        lists = [tokens if old else postings for _, tokens, postings in names]
        return {
            "params": json.loads(params.to_json()),
            "num_tokens": sum(segment.open(name).num_rows for name in lists),
            "num_docs": sum(segment.open(documents).num_rows for documents, _, _ in names),
        }

    def is_outdated(self, entry: table_pb2.IndexMetadata) -> bool:
        """Return whether the details are empty, as before pylance 1.0; pylance compares details."""
        return not entry.index_details.value


def form_of(source: IndexSource, parameters: Mapping[str, Any]) -> TextFormat:
    """Return the format for the options of a user and the column of a source.

    Raises
    ------
    OptionError
        A parameter is wrong.
    UnsupportedFeatureError
        The column has other values than texts.
    """
    from glaive.index.text.partition import check_column

    form = TextFormat.of(parameters)
    if check_column(source.field, by_element=form.by_element):
        form = replace(form, params=replace(form.params, lance_tokenizer="json"))
    return form


def read_format(segment: Segment, name: str = METADATA) -> TextFormat:
    """Read the format of a segment, or of the part of a segment with metadata of this name.

    Raises
    ------
    CorruptFileError, DataFileMissingError
        The metadata is damaged or missing.
    """
    from glaive.index.text.partition import partition_files

    file = _described(segment, name)
    if _is_old(file):
        from glaive.index.text.partition import legacy_format

        return legacy_format(segment, file)
    numbers = _partitions(file) if "partitions" in file.metadata else []
    return TextFormat.read(file, segment.open(partition_files(numbers[0])[0]) if numbers else None)


def stored_partitions(
    segment: Segment, form: TextFormat, name: str = METADATA
) -> Iterator[StoredPartition]:
    """Yield the partitions of a segment, or of a part of a segment.

    Raises
    ------
    UnsupportedFeatureError
        Postings or tokens have an unknown format, or the index ignores documents by fragment.
    """
    from glaive.index.text.partition import StoredPartition

    file = segment.open(name)
    layout = read_posting_layout(file)
    if layout != form.layout or form.token_set not in TOKEN_SETS:
        raise UnsupportedFeatureError(f"{segment.where}: postings of an unknown form")
    if _ignores_any(file, None):
        raise UnsupportedFeatureError(f"{segment.where} ignores the documents of some fragments")
    for number in _partitions(file):
        partition = StoredPartition(segment, number, form.layout)
        if partition.by_element != form.by_element:
            raise file.corrupt(f"documents of partition {number}", form.granularity, "others")
        yield partition


def _described(segment: Segment, name: str = METADATA) -> IndexFile:
    """Open the metadata file of a segment; for old segments, the file of tokens."""
    try:
        return segment.open(name)
    except DataFileMissingError:
        if not segment.has(_OLD_TOKENS):
            raise
    return segment.open(_OLD_TOKENS)


def _is_old(file: IndexFile) -> bool:
    """Return whether a file is the file of tokens of a segment by pylance up to 0.27."""
    return "_token" in file.schema.names


def _partitions(file: IndexFile) -> list[int]:
    """Return the numbers of the partitions."""
    text = file.metadata.get("partitions")
    if text is None:
        raise _corrupt("partitions", "none", file)
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _corrupt("partitions", str(error), file) from error
    numbers = stored if isinstance(stored, list) else [stored]
    good = all(isinstance(number, int) and number >= 0 for number in numbers)
    if not good or len(set(numbers)) != len(numbers):
        raise _corrupt("partitions", text[:80], file)
    return numbers


def _ignores_any(file: IndexFile, fragments: Iterable[int] | None) -> bool:
    """Return whether the index ignores documents of these fragments, or for ``None``, of any.

    Keep the bitmaps compressed: a few bytes may encode billions of fragments.
    """
    if _IGNORED not in file.schema.names or not file.num_rows:
        return False
    kind: Any = file.schema.field(_IGNORED).type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise file.corrupt_column(_IGNORED, "bitmaps", f"{kind}")
    from pyroaring import BitMap

    wanted = None if fragments is None else BitMap(fragments)
    ignored = False
    bitmaps: list[Any] = file.read([_IGNORED])[_IGNORED].to_pylist()
    for bitmap in bitmaps:
        try:
            found = BitMap.deserialize(bitmap) if bitmap else BitMap()
            ignored |= bool(found) if wanted is None else wanted.intersect(found)
        except (ValueError, IndexError, TypeError) as error:
            raise _corrupt(_IGNORED, str(error), file) from error
    return ignored


def _corrupt(name: str, found: str, file: IndexFile) -> CorruptFileError:
    return file.corrupt(f"{name!r} of an index", "integers", found)


# --- Parts of a segment: several workers write them under one id, and one process merges them
# Specification: "Parts" in ``docs/format/text-indices.md``.

_PART = re.compile("part_([0-9]{1,20})_metadata.lance", re.ASCII)


class StagedSegment(Segment):
    """The parts of a segment, in a folder within the segment."""

    __slots__ = ()

    @property
    def folder(self) -> str:
        """Path of the folder within the store."""
        return f"{Segment.folder.fget(self)}/{STAGING}"  # type: ignore[attr-defined]  # a property


def build_part(
    source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
) -> BuiltSegment:
    """Write the documents of a source as a part; its partition numbers are unique.

    Partition numbers begin at the address of the first row of the first fragment.
    """
    from glaive.index.text.partition import build_partitions, write_metadata

    form = form_of(source, parameters)
    first = min(source.fragment_ids, default=0) << 32
    numbers = build_partitions(source, form, out, first)
    write_metadata(out, form, numbers, f"part_{first}_metadata.lance")
    return form.built()


def merge_parts(parts: StagedSegment, out: SegmentWriter) -> list[str]:
    """Write one segment with the documents of all parts; return the paths of the parts' files.

    Raises
    ------
    OptionError
        All parts are missing, or several have the same rows, which searches would find twice.
    UnsupportedFeatureError
        Parts were built with different parameters.
    CorruptFileError, DataFileMissingError
        A file is damaged or missing.
    """
    from glaive.index.text.partition import merge_partitions, write_metadata

    matches = filter(None, map(_PART.fullmatch, parts.sizes()))
    ordered = [found[0] for found in sorted(matches, key=lambda found: int(found[1]))]
    if not ordered:
        raise OptionError(
            f"index_uuid: {parts.where} has no parts. Build them with create_scalar_index(..., "
            '"INVERTED", fragment_ids=..., index_uuid=...)'
        )
    form = read_format(parts, ordered[0])
    stored: list[StoredPartition] = []
    rows: list[RowSet] = []
    for name in ordered:
        if read_format(parts, name) != form:
            raise UnsupportedFeatureError(
                f"{parts.where}: {name} was built with other parameters than {ordered[0]}"
            )
        partitions = list(stored_partitions(parts, form, name))
        if partitions:
            rows.append(RowSet.union([partition.rows() for partition in partitions]))
        stored += partitions
    if rows and RowSet.union(rows).count != sum(one.count for one in rows):
        raise OptionError(
            f"index_uuid: several parts of {parts.where} have the same rows. Build parts over "
            "fragments of their own, under another id"
        )
    write_metadata(out, form, merge_partitions(stored, iter(()), form, MERGE_MEMORY, out))
    return [f"{parts.folder}/{name}" for name in parts.sizes()]
