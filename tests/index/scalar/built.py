"""Segments of scalar indices for tests: built from a dataset, committed, searched."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

import glaive
from glaive.arrow.conditions import Condition, IsNull, IsOneOf
from glaive.dataset.tasks import commit_operation
from glaive.format.manifest import Feature
from glaive.format.pb import table_pb2
from glaive.index.protocol import (
    BuiltSegment,
    Candidates,
    IndexKind,
    IndexQuery,
    ScalarIndex,
    ValueBatch,
    index_kinds,
)
from glaive.index.row_sets import RowSet
from glaive.index.segment import Segment, SegmentWriter
from glaive.table.index_coverage import holds_addresses
from glaive.table.operations.create_index import CreateIndex

__all__ = ["Rows", "answers", "build", "check", "merge", "opened", "segments", "source_of"]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Live rows of some fragments (an ``IndexSource``)."""

    field: pa.Field
    fragment_ids: Sequence[int]
    stored: Sequence[ValueBatch]
    stable_row_ids: bool = False
    dictionary_type: pa.DataType | None = None
    memory_limit: int = 1 << 30
    read: list[int] = dataclasses.field(default_factory=list)

    @property
    def num_rows(self) -> int:
        return sum(len(batch.values) for batch in self.stored)

    def batches(self) -> Iterator[ValueBatch]:
        for at, batch in enumerate(self.stored):
            self.read.append(at)
            yield batch

    def sample(self, rows: int, seed: int = 0) -> pa.Array:
        return pa.concat_arrays([batch.values for batch in self.stored])[:rows]


def source_of(
    path: Path | str,
    column: str,
    kind: IndexKind,
    fragments: Sequence[int] | None = None,
    batch_rows: int = 1000,
    **options: Any,
) -> Rows:
    """The rows of a column of a dataset, in batches, numbered as a kind wants them."""
    dataset = glaive.dataset(str(path))
    stable = dataset.manifest.uses(Feature.STABLE_ROW_IDS)
    number = "_rowid" if stable and not kind.stores_addresses else "_rowaddr"
    chosen = [
        one for one in dataset.get_fragments() if fragments is None or one.fragment_id in fragments
    ]
    stored = []
    for fragment in chosen:
        rows = fragment.to_table(columns=[column], with_row_id=True, with_row_address=True)
        for batch in rows.to_batches(max_chunksize=batch_rows):
            values: Any = batch.column(column)
            if isinstance(values.type, pa.BaseExtensionType):
                values = values.storage
            stored.append(ValueBatch(values, np.asarray(batch.column(number))))
    extents = [one.fragment_id for one in chosen]
    field = pa.field(column, stored[0].values.type) if stored else dataset.schema.field(column)
    return Rows(field, extents, stored, stable, **options)


def build(
    path: Path | str,
    column: str,
    kind: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    **options: Any,
) -> BuiltSegment:
    """Build a segment over a column, and commit it."""
    made = index_kinds()[kind]
    source = source_of(path, column, made, **options)
    out = _writer(path)
    built = made.build(source, parameters or {}, out)
    fragments = source.fragment_ids
    _commit(path, name or f"{column}_idx", column, built, out, fragments)
    return built


def merge(path: Path | str, column: str, kind: str, *, new: Sequence[int] = ()) -> BuiltSegment:
    """Merge all segments over a column with new fragments, and commit the one in their place."""
    made = index_kinds()[kind]
    source = source_of(path, column, made, new) if new else None
    out = _writer(path)
    before = segments(path)
    built = made.merge(before, source, out)
    covered = [one for old in before for one in BitMap.deserialize(old.entry.fragment_bitmap)]
    removed = tuple(old.entry for old in before)
    _commit(path, before[0].entry.name, column, built, out, [*covered, *new], removed)
    return built


def _writer(path: Path | str) -> SegmentWriter:
    dataset = glaive.dataset(str(path))
    return SegmentWriter(dataset.snapshot.store, dataset.manifest.data_format)


def _commit(
    path: Path | str,
    name: str,
    column: str,
    built: BuiltSegment,
    out: SegmentWriter,
    fragments: Sequence[int],
    removed: tuple[table_pb2.IndexMetadata, ...] = (),
) -> None:
    dataset = glaive.dataset(str(path))
    entry = table_pb2.IndexMetadata(
        name=name,
        fields=[next(one.id for one in dataset.manifest.schema.fields if one.name == column)],
        dataset_version=dataset.version,
        fragment_bitmap=BitMap(fragments).serialize(),
        index_version=built.version,
        files=out.finish(),
    )
    entry.uuid.uuid = out.id.bytes
    entry.index_details.type_url = built.type_url
    entry.index_details.value = built.details
    commit_operation(dataset.opened, CreateIndex(new=(entry,), removed=removed))


def segments(path: Path | str) -> list[Segment]:
    """The segments of the only index."""
    snapshot = glaive.dataset(str(path)).snapshot
    entries = [one for one in snapshot.manifest.indices if one.fields]
    assert len({one.name for one in entries}) == 1
    return [Segment.of(snapshot.store, snapshot.manifest, one) for one in entries]


def opened(path: Path | str) -> list[ScalarIndex]:
    """All segments of the only index, opened."""
    found = []
    for segment in segments(path):
        details = segment.entry.index_details.type_url
        name = details.rpartition(".")[2].removesuffix("IndexDetails").lower()
        found.append(cast("ScalarIndex", index_kinds()[name].open(segment)))
    return found


def answers(path: Path | str, query: IndexQuery, *, nulls: bool = False) -> Candidates:
    """What all segments of the only index know of a query."""
    found = [one.search(query, nulls=nulls) for one in opened(path)]
    unknown = RowSet.union([one.nulls for one in found if one.nulls]) if nulls else None
    rows = RowSet.union([one.rows for one in found])
    return Candidates(rows, unknown, all(one.exact for one in found))


def check(path: Path | str, column: str, query: Condition, *, exact: bool = True) -> int:
    """Searches give the rows that a scan gives, and those it gives null for; the former counted."""
    dataset = glaive.dataset(str(path))
    table = dataset.to_table(columns=[column], with_row_id=True, with_row_address=True)
    values: Any = table[column].combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else values.type
    stable = dataset.manifest.uses(Feature.STABLE_ROW_IDS)
    stored = all(holds_addresses(one.entry) for one in segments(path)) or not stable
    numbers = np.asarray(table["_rowaddr" if stored else "_rowid"])
    passing = np.asarray(query.mask(values))
    for one in opened(path):
        assert one.answers(query)
        assert one.estimate(query) >= 0
    found = answers(path, query, nulls=exact)
    rows = found.rows.rows()
    assert np.isin(numbers[passing], rows).all()
    if exact:
        assert found.exact
        assert found.nulls is not None
        unknown = np.asarray(values.is_null())
        if isinstance(query, IsNull):
            unknown[:] = False
        elif isinstance(query, IsOneOf) and query.values.null_count:
            unknown = ~np.asarray(IsOneOf(query.values.drop_null()).mask(values))
        assert np.array_equal(np.sort(rows[np.isin(rows, numbers)]), np.sort(numbers[passing]))
        nulls = found.nulls.rows()
        assert np.array_equal(np.sort(numbers[unknown]), np.unique(nulls[np.isin(nulls, numbers)]))
    return int(passing.sum())
