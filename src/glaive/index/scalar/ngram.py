"""NGRAM: for each trigram, the set of rows that contain it.

Specification: "NGRAM" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.errors import UnsupportedFeatureError
from glaive.index.address_map import Addresses, AddressMap
from glaive.index.protocol import BuiltSegment, IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.row_set import RowNumbers
from glaive.index.scalar.key_sets import (
    KEYS_AT_ONCE,
    KeyBatch,
    SetFormat,
    grouped,
    merged_keys,
)
from glaive.index.scalar.ngram_search import NULL_TOKEN, OpenedNGram
from glaive.index.scalar.parameters import check_type, no_parameters
from glaive.index.scalar.rowsets import RowLimit, ascending_sets, remap_sets
from glaive.index.scalar.sorted_runs import sorted_runs
from glaive.index.scalar.treemaps import decode_treemap, encode_halves, halves_of
from glaive.index.scalar.trigrams import trigrams_of
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.index.source import IndexSource, ValueBatch
from glaive.types import Int64s, UInt32s

__all__ = ["NGram"]

POSTINGS = "ngram_postings.lance"


@index_kind
class NGram(IndexKind):
    """A set of rows per trigram."""

    name: ClassVar[str] = "ngram"
    newest: ClassVar[int] = 0
    indexes_dictionaries: ClassVar[bool] = False
    markers: ClassVar[tuple[str, ...]] = (POSTINGS,)

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the sets; trigrams without surviving rows keep an empty set."""
        file = segment.open(POSTINGS)
        _check_columns(file)
        names = ["tokens", "posting_list"]
        schema = pa.schema([file.schema.field(name) for name in names])
        rebuilt = out.create(POSTINGS, schema.with_metadata(file.schema.metadata))
        limit = RowLimit(address_map, file.path)
        for rows in file.windows(names, KEYS_AT_ONCE):
            file.check_present(rows["posting_list"])
            stored: Any = rows["posting_list"].to_pylist()
            change = _remap if address_map.moves else _without
            lists = pa.array(change(stored, address_map, file.path, limit), pa.binary())
            rebuilt.write(pa.table([rows["tokens"], lists], schema=schema))
        rebuilt.finish()
        return RebuiltSegment()

    def open(self, segment: Segment) -> OpenedNGram:
        """Read the tokens."""
        file = segment.open(POSTINGS)
        return OpenedNGram(file, _tokens_of(file), segment.keep)

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Sort the trigrams, within the source's limit of memory; there are no parameters."""
        no_parameters("NGRAM", parameters)
        _check_texts(source)
        with sorted_runs(_trigrams(source), source.memory_limit) as runs:
            return _write(grouped(runs, source.memory_limit, _TREEMAPS), out)

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Distinct trigrams, with that of nulls."""
        return {"num_ngrams": segment.open(POSTINGS).num_rows}

    def value_type(self, segment: Segment) -> pa.DataType:
        """Texts."""
        return pa.string()

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Join the sets of equal trigrams; all encoded sets are in memory."""
        batches = chain.from_iterable(map(_stored, segments))
        if source is None:
            return _write(merged_keys(batches, _TREEMAPS), out)
        _check_texts(source)
        with sorted_runs(_trigrams(source), source.memory_limit) as runs:
            new = grouped(runs, source.memory_limit, _TREEMAPS)
            return _write(merged_keys(chain(batches, new), _TREEMAPS), out)


_BATCH_ROWS = 1 << 14
"""Texts whose trigrams are made at a time."""


def _check_texts(source: IndexSource) -> None:
    kind = source.field.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    check_type("NGRAM", source.field, supported=is_text)


def _trigrams(source: IndexSource) -> Iterator[ValueBatch]:
    """The trigrams of all texts with their rows, and those that are null."""
    for batch in source.batches():
        if batch.values.null_count:
            absent = batch.rows[np.asarray(batch.values.is_null())]
            yield ValueBatch(pa.array(np.full(len(absent), NULL_TOKEN, np.uint32)), absent)
        for start in range(0, len(batch.values), _BATCH_ROWS):
            tokens, owners = trigrams_of(batch.values[start : start + _BATCH_ROWS])
            yield ValueBatch(pa.array(tokens), batch.rows[start + owners])


def _encode(rows: RowNumbers, bounds: Int64s) -> pa.Array:
    from pyroaring import BitMap64

    rows, bounds = ascending_sets(rows, bounds)
    sets = [BitMap64(rows[start:stop]).serialize() for start, stop in pairwise(bounds.tolist())]
    return pa.array(sets, pa.binary())


def _union(parts: Sequence[bytes]) -> bytes:
    from pyroaring import BitMap64

    joined = BitMap64()
    for part in parts:
        joined |= decode_treemap(part, "a set of rows")
    serialized: bytes = joined.serialize()
    return serialized


_TREEMAPS = SetFormat(_encode, _union)


def _check_columns(file: IndexFile) -> None:
    if "tokens" in file.schema.names and file.schema.field("tokens").type == pa.string():
        raise UnsupportedFeatureError(
            f"{file.path}: trigrams as texts, as Lance up to 0.24 wrote them, are not read: create "
            "the index again"
        )
    file.check(tokens=pa.uint32(), posting_list=pa.binary())


def _tokens_of(file: IndexFile) -> UInt32s:
    _check_columns(file)
    column = file.read(["tokens"])["tokens"]
    file.check_present(column)
    tokens = column.to_numpy()
    if bool((tokens[1:] <= tokens[:-1]).any()):
        raise file.corrupt_column("tokens", "distinct tokens in ascending order", "others")
    return tokens


def _stored(segment: Segment) -> Iterator[KeyBatch]:
    file = segment.open(POSTINGS)
    _tokens_of(file)
    size = 0
    for rows in file.windows(["tokens", "posting_list"]):
        file.check_present(rows["posting_list"])
        size += rows.nbytes
        file.check_decoded(size, "sets of rows")  # all are held together
        for batch in rows.to_batches():
            yield KeyBatch(batch.column(0), batch.column(1))


def _write(batches: Iterable[KeyBatch], out: SegmentWriter) -> BuiltSegment:
    posting_list: pa.Field[Any] = pa.field(
        "posting_list", pa.binary(), nullable=False, metadata={"lance-encoding:compression": "none"}
    )
    schema = pa.schema([pa.field("tokens", pa.uint32()), posting_list])
    file = out.create(POSTINGS, schema)
    for tokens, sets in batches:
        file.write(pa.record_batch([tokens, sets], schema=schema))
    file.finish()
    return BuiltSegment("/lance.table.NGramIndexDetails")


def _without(
    sets: Sequence[bytes], address_map: AddressMap, where: str, limit: RowLimit
) -> Sequence[bytes]:
    """The sets without the rows that are dropped; no other row is looked at for each set."""
    from pyroaring import BitMap, BitMap64

    rows = [decode_treemap(row_set, where) for row_set in sets]
    dropped: dict[int, BitMap] = {}
    size = sum(map(len, sets))
    for upper, lower in halves_of(BitMap64.union(*rows), where):
        if upper in address_map.rewritten:
            addresses = limit.addresses(upper, lower, size)
            kept = addresses[address_map.apply(addresses)[1]].astype(np.uint32)
            dropped[upper] = lower - BitMap(array("I", kept.tobytes()))
    absent = decode_treemap(encode_halves(dropped), where)
    return [
        (one - absent).serialize() if one.intersect(absent) else row_set
        for one, row_set in zip(rows, sets, strict=True)
    ]


def _remap(
    sets: Sequence[bytes], address_map: AddressMap, where: str, limit: RowLimit
) -> list[bytes]:
    """The sets with new addresses; only bits of rewritten fragments become address arrays."""
    from pyroaring import BitMap

    rest: list[dict[int, BitMap]] = []

    def relocated() -> Iterator[Addresses]:
        for row_set in sets:
            halves = dict(halves_of(decode_treemap(row_set, where), where))
            moved = [upper for upper in halves if upper in address_map.rewritten]
            size = len(row_set) // max(1, len(halves))  # about
            parts = [limit.addresses(upper, halves.pop(upper), size) for upper in moved]
            rest.append(halves)
            yield np.concatenate([np.empty(0, np.uint64), *parts])

    remapped = []
    for at, addresses in enumerate(remap_sets(relocated(), address_map)):
        halves, uppers = rest[at], addresses >> np.uint64(32)
        edges = np.flatnonzero(np.diff(uppers)) + 1
        for part in np.split(addresses, edges):
            if len(part):
                upper = int(part[0]) >> 32
                halves[upper] = halves.get(upper, BitMap()) | BitMap(part.astype(np.uint32))
        remapped.append(encode_halves(halves))
    return remapped
