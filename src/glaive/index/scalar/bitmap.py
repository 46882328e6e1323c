"""BITMAP and LABEL_LIST: for each distinct value or list item, the set of rows that have it.

Specification: "BITMAP" and "LABEL_LIST" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.arrow.conditions import IsNull, IsOneOf
from glaive.errors import UnsupportedFeatureError
from glaive.index.address_map import AddressMap
from glaive.index.protocol import (
    BuiltSegment,
    Candidates,
    HasLabels,
    IndexKind,
    IndexQuery,
    IndexSource,
    RebuiltSegment,
    ScalarIndex,
    ValueBatch,
    index_kind,
    stored_batches,
)
from glaive.index.row_set import RowNumbers, RowSet
from glaive.index.scalar.key_sets import (
    KEYS_AT_ONCE,
    LOOKUP,
    STATS,
    KeySets,
    grouped,
    merged_keys,
    write_keys,
)
from glaive.index.scalar.ordering import is_sortable
from glaive.index.scalar.rowsets import (
    RowLimit,
    encode_rowset,
    remap_rowsets,
    row_set_of,
    union_of_rowsets,
)
from glaive.index.scalar.sorting import sorted_runs
from glaive.index.scalar.zones import check_same_type, check_type, no_parameters
from glaive.index.segment import IndexFile, Segment, SegmentWriter

# --- BITMAP and LABEL_LIST, searched: the sets of the keys that pass are read, and joined
# Specification: "BITMAP" and "LABEL_LIST" in ``docs/format/indices.md``.


class OpenedBitmap(ScalarIndex):
    """All values, and the rows of each.

    Parameters
    ----------
    key_sets
        The values.
    """

    def __init__(self, key_sets: KeySets) -> None:
        self._keys = key_sets

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return self._keys.nbytes

    def answers(self, query: IndexQuery) -> bool:
        """Whether it is a condition on values of this type; nulls may be unknown."""
        is_known = self._keys.has_nulls or not isinstance(query, IsNull)
        return is_known and self._keys.accepts(query)

    def estimate(self, query: IndexQuery) -> int:
        """Rows of the keys that pass, by the bytes of their sets."""
        condition: Any = query
        return self._keys.estimate(self._keys.select(condition))

    def compared(self, query: IndexQuery) -> int:
        """Keys whose rows are joined."""
        condition: Any = query
        return len(self._keys.select(condition))

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find rows, exactly unless nulls are unknown. One read of the sets at most."""
        condition: Any = query
        rows = self._keys.rows(self._keys.select(condition))
        if not nulls:
            return Candidates(rows, None, exact=True)
        return Candidates(rows, self._unknown(condition), exact=self._keys.has_nulls)

    def _unknown(self, condition: Any) -> RowSet:
        """Rows for which a condition is null."""
        if isinstance(condition, IsNull):
            return NO_ROWS
        if isinstance(condition, IsOneOf) and condition.values.null_count:
            # What is not equal to a known value may be equal to the null.
            equal = self._keys.select(IsOneOf(condition.values.drop_null()))
            return self._keys.rows(np.setdiff1d(np.arange(len(self._keys.keys)), equal))
        return self._keys.rows(self._keys.select(IsNull()))


class OpenedLabelList(ScalarIndex):
    """All items of lists, and the rows with a list that has each.

    Parameters
    ----------
    key_sets
        The items.
    null_lists
        Rows whose list is null; None if an old writer did not say.
    """

    def __init__(self, key_sets: KeySets, null_lists: RowSet | None) -> None:
        self._keys, self._null_lists = key_sets, null_lists

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return self._keys.nbytes + (0 if self._null_lists is None else self._null_lists.nbytes)

    def answers(self, query: IndexQuery) -> bool:
        """Whether it asks for items of this type, or for lists that are null."""
        if isinstance(query, IsNull):
            return self._null_lists is not None and not query.negated
        if not isinstance(query, HasLabels):
            return False
        values = query.values
        same_type = bool(values.type == self._keys.keys.type)
        return same_type and len(values) > 0 and not values.null_count

    def estimate(self, query: IndexQuery) -> int:
        """Rows of the items that are asked for, by the bytes of their sets."""
        if isinstance(query, HasLabels):
            at = self._keys.select(IsOneOf(query.values))
            rows = self._keys.estimate(at)
            return rows // max(1, len(at)) if query.every else rows
        return 0 if self._null_lists is None else self._null_lists.count

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find rows, exactly unless it is not known which lists are null."""
        unknown = self._null_lists
        if not isinstance(query, HasLabels):
            return Candidates(unknown or NO_ROWS, NO_ROWS if nulls else None, exact=True)
        at = self._keys.select(IsOneOf(query.values))
        if not query.every:
            rows = self._keys.rows(at)
        elif len(at) < len(query.values.unique()):
            rows = NO_ROWS
        else:
            # Two sets at a time: a query may have any number of items.
            rows = reduce(_in_both, self._keys.rows_of_each(at))
        if not nulls:
            return Candidates(rows, None, exact=True)
        return Candidates(rows, unknown or NO_ROWS, exact=unknown is not None)


def _in_both(first: RowSet, second: RowSet) -> RowSet:
    return RowSet.intersection([first, second])


NO_ROWS = RowSet(np.empty(0, np.uint64), np.empty(0, np.uint64))


NULLS = "lance:label_list_nulls"


@index_kind
class Bitmap(IndexKind):
    """A set of rows per value."""

    name: ClassVar[str] = "bitmap"
    newest: ClassVar[int] = 0
    indexes_dictionaries: ClassVar[bool] = False
    markers: ClassVar[tuple[str, ...]] = (LOOKUP,)

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the sets; keys without surviving rows are left out."""
        lookup = segment.open(LOOKUP)
        lookup.check(keys=None, bitmaps=pa.binary())
        schema = pa.schema([lookup.schema.field(name) for name in ("keys", "bitmaps")])
        if is_sortable(schema.field("keys").type):
            # A few bytes can stand for many equal keys, which are not rebuilt one by one.
            KeySets.open(lookup)
        file = out.create(LOOKUP, schema.with_metadata(lookup.schema.metadata))
        for key, data in _nulls(lookup, address_map).items():
            file.add_metadata({key: str(file.add_buffer(data))})
        count, has_null, limit = 0, False, RowLimit(address_map, lookup.path)
        for rows in lookup.windows(["keys", "bitmaps"], KEYS_AT_ONCE):
            lookup.check_present(rows["bitmaps"])
            sets: Any = rows["bitmaps"].to_pylist()
            remapped = remap_rowsets(sets, address_map, lookup.path, limit)
            surviving = np.flatnonzero([row_set is not None for row_set in remapped])
            keys = rows["keys"] if len(surviving) == len(remapped) else rows["keys"].take(surviving)
            bitmaps = pa.chunked_array([pa.array([remapped[at] for at in surviving], pa.binary())])
            file.write(pa.table([keys, bitmaps], schema=schema))
            count, has_null = count + len(surviving), has_null or bool(keys.null_count)
        metadata = {key: value for key, value in lookup.metadata.items() if key != NULLS}
        if has_null or STATS in metadata:  # else a reader knows no nulls
            metadata[STATS] = f'{{"num_bitmaps":{count}}}'
        file.add_metadata(metadata)
        file.finish()
        return RebuiltSegment()

    def open(self, segment: Segment) -> ScalarIndex:
        """Read the keys, and the sets if they are small."""
        return OpenedBitmap(KeySets.open(segment.open(LOOKUP), segment.keep))

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Sort the values, within the source's limit of memory; there are no parameters."""
        no_parameters("BITMAP", parameters)
        kind = source.field.type
        check_type("BITMAP", source.field, supported=is_sortable(kind))
        with sorted_runs(stored_batches(source), source.memory_limit) as runs:
            write_keys(out, kind, grouped(runs, source.memory_limit))
        return BuiltSegment("/lance.table.BitmapIndexDetails")

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Distinct values, a null included."""
        return {"num_bitmaps": segment.open(LOOKUP).num_rows}

    def value_type(self, segment: Segment) -> pa.DataType | None:
        """The type of the keys."""
        lookup = segment.open(LOOKUP)
        lookup.check(keys=None)
        kind: pa.DataType = lookup.schema.field("keys").type
        return kind

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Join the sets of equal values; all encoded sets are in memory."""
        opened = [KeySets.open(segment.open(LOOKUP)) for segment in segments]
        lost = next((keys for keys in opened if not keys.has_nulls), None)
        if lost is not None:
            raise UnsupportedFeatureError(
                f"{lost.file.path}: an old writer may have lost nulls: build it again"
            )
        batches = chain.from_iterable(keys.batches() for keys in opened)
        kind = _shared_type(opened)
        if source is None:
            write_keys(out, kind, merged_keys(batches))
        else:
            check_same_type(opened[0].file, "keys", source.field.type)
            with sorted_runs(stored_batches(source), source.memory_limit) as runs:
                new = grouped(runs, source.memory_limit)
                write_keys(out, kind, merged_keys(chain(batches, new)))
        return BuiltSegment("/lance.table.BitmapIndexDetails")


@index_kind
class LabelList(Bitmap):
    """A set of rows per list item, and the set of rows with a null list."""

    name: ClassVar[str] = "labellist"
    newest: ClassVar[int] = 1
    indexes_dictionaries: ClassVar[bool] = False
    markers: ClassVar[tuple[str, ...]] = ()

    def open(self, segment: Segment) -> ScalarIndex:
        """Read the items, the rows of null lists, and the sets if they are small."""
        lookup = segment.open(LOOKUP)
        return OpenedLabelList(KeySets.open(lookup, segment.keep), _null_lists(lookup))

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Sort the items, within the source's limit of memory; there are no parameters."""
        no_parameters("LABEL_LIST", parameters)
        kind = _item_type(source.field)
        labels = _Labels(source)
        with sorted_runs(labels.items(), source.memory_limit) as runs:
            nulls = {NULLS: labels.nulls_encoded()}
            write_keys(out, kind, grouped(runs, source.memory_limit), nulls)
        return BuiltSegment("/lance.table.LabelListIndexDetails", version=1)

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Join the sets of equal items; all encoded sets are in memory."""
        files = [segment.open(LOOKUP) for segment in segments]
        absent = next((file for file in files if NULLS not in file.metadata), None)
        if absent is not None:
            raise UnsupportedFeatureError(
                f"{absent.path}: an old writer did not say which lists are null: build it again"
            )
        opened = [KeySets.open(file) for file in files]
        batches = chain.from_iterable(keys.batches() for keys in opened)
        nulls = [file.buffer(file.number(NULLS)).to_pybytes() for file in files]
        kind = _shared_type(opened)
        if source is None:
            write_keys(out, kind, merged_keys(batches), {NULLS: union_of_rowsets(nulls)})
        else:
            check_same_type(files[0], "keys", _item_type(source.field))
            labels = _Labels(source)
            with sorted_runs(labels.items(), source.memory_limit) as runs:
                new = grouped(runs, source.memory_limit)
                every = union_of_rowsets([*nulls, labels.nulls_encoded()])
                write_keys(out, kind, merged_keys(chain(batches, new)), {NULLS: every})
        return BuiltSegment("/lance.table.LabelListIndexDetails", version=1)


class _Labels:
    """The lists of a source: their items, and the rows that are null."""

    def __init__(self, source: IndexSource) -> None:
        self._source = source
        self._nulls: list[RowNumbers] = []

    def items(self) -> Iterator[ValueBatch]:
        """All items, each with the row of its list."""
        for values, rows in self._source.batches():
            lists: Any = values
            if lists.null_count:
                self._nulls.append(rows[np.asarray(lists.is_null())])
            counts = lists.value_lengths().fill_null(0).to_numpy()
            yield ValueBatch(lists.flatten(), np.repeat(rows, counts))

    def nulls_encoded(self) -> bytes:
        """The rows that are null, as a set, once all items were read."""
        return encode_rowset(np.sort(np.concatenate([np.empty(0, np.uint64), *self._nulls])))


def _item_type(field: pa.Field[Any]) -> Any:
    kind: Any = field.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    check_type("LABEL_LIST", field, supported=is_list and is_sortable(kind.value_type))
    return kind.value_type


def _shared_type(opened: Sequence[KeySets]) -> pa.DataType:
    shared: pa.DataType = opened[0].keys.type
    for one in opened:
        if one.keys.type != shared:
            raise one.file.corrupt_column("keys", f"type {shared}", f"{one.keys.type}")
    return shared


def _null_lists(lookup: IndexFile) -> RowSet | None:
    """Rows with a null list, if the file says which."""
    if NULLS not in lookup.metadata:
        return None
    data = lookup.buffer(lookup.number(NULLS)).to_pybytes()
    return row_set_of(pa.array([data], pa.binary()), lookup.path, lookup.size)


def _nulls(lookup: IndexFile, address_map: AddressMap) -> dict[str, bytes]:
    """The set of rows with a null list, if the file has one."""
    if NULLS not in lookup.metadata:
        return {}
    data = lookup.buffer(lookup.number(NULLS)).to_pybytes()
    (null_rows,) = remap_rowsets([data], address_map, lookup.path)
    return {NULLS: encode_rowset(np.empty(0, np.uint64)) if null_rows is None else null_rows}
