"""Find the rows of a dataset that have a key of the source, while key columns are decoded.

The keys become a predicate on each column: numbers and times are tested while encoded,
dictionaries once per entry, and other columns window by window. Keys are looked up only for rows
that pass. Reads only the key columns.

Keys have one or more columns. A key with a null in one of its columns matches nothing; a null
within a struct or a list is a value like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import spread
from glaive.arrow.conditions import IsOneOf
from glaive.arrow.python_values import python_values
from glaive.dataclass import dataclass
from glaive.dataset.merging.key_values import Combined, KeyValues, is_word_type, key_values
from glaive.encodings.integer_ranges import integer_ranges
from glaive.errors import SchemaError
from glaive.expr.filters import Term
from glaive.expr.tree import Literal
from glaive.format.flags import Feature
from glaive.scan.filter.scan import FilteredScan
from glaive.scan.filter.search import Search, answers_of
from glaive.scan.metrics import Meter
from glaive.scan.options import ScanOptions
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.system_columns import ROW_ADDRESS, ROW_ID, refuse_taken
from glaive.scan.views import Views
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion
    from glaive.scan.snapshot import Snapshot

__all__ = ["Matches", "SourceKeys", "ambiguous_source", "find_matches"]

Addresses = NDArray[np.uint64]
_MAX_PREFILTER_RATIO: Final = 0.25
"""Filtering rows before the look-up pays up to this ratio of source rows to dataset rows."""

_STREAMED_ROWS: Final = 1 << 20
"""Rows of a dataset beyond which keys are not all decoded before the first is looked up."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Matched rows of the dataset, in its order.

    Parameters
    ----------
    addresses, ids
        Addresses and ids of the rows; the same without stable row ids.
    source
        The first row of the source with the key of each row.
    """

    addresses: Addresses
    ids: Addresses
    source: Int64s

    def only(self, kept: NDArray[np.bool_] | Int64s | slice) -> Matches:
        """Those that a mask, positions or a range select."""
        addresses = self.addresses[kept]
        ids = addresses if self.ids is self.addresses else self.ids[kept]
        return Matches(addresses, ids, self.source[kept])

    @classmethod
    def joined(cls, parts: Sequence[Matches]) -> Matches:
        """Matches one after the other; at least one part."""
        return cls(
            np.concatenate([part.addresses for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.source for part in parts]),
        )

    def in_order_of_source(self, rows: int) -> Matches:
        """The same in the order of the source, which has ``rows`` rows."""
        if bool((self.source[1:] >= self.source[:-1]).all()):
            return self
        matched = np.full(rows, -1, np.int64)
        matched[self.source] = np.arange(len(self.source))
        order = matched[matched >= 0]
        if len(order) < len(self.source):  # several rows match one source row
            order = np.argsort(self.source, kind="stable")
        return self.only(order)


def find_matches(
    dataset: OpenedVersion,
    keys: SourceKeys,
    meter: Meter,
    *,
    use_index: bool = True,
    fragments: tuple[int, ...] | None = None,
) -> Matches:
    """Look up the keys of all live rows among those of the source.

    With ``use_index`` scalar indices say which rows may have them, where that is quicker.
    ``fragments`` are ids of those to look at; default: all.

    Memory: a few windows of the key columns, and 24 bytes per match.
    """
    snapshot = dataset.snapshot
    stable = snapshot.manifest.uses(Feature.STABLE_ROW_IDS)
    system = [ROW_ADDRESS, *([ROW_ID] if stable else [])]
    refuse_taken(snapshot.manifest.schema, *system)
    columns = (*keys.names, *system)
    source = Views(snapshot).scan(columns, inputs=keys.names)
    terms = _terms(keys) if keys.rows <= _MAX_PREFILTER_RATIO * snapshot.num_rows else ()
    run = ScanRun(source, ScanOptions(fragments=fragments), meter)
    answers = answers_of(run, [_indexed(term, snapshot) for term in terms]) if use_index else {}
    search = Search(run, terms, answers=answers)
    num_keys = len(keys.names)
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in (*system, "source")}
    stream = snapshot.num_rows > _STREAMED_ROWS
    for chunk in FilteredScan.of(search).chunks(stream=stream):
        with meter.step("look up"):
            rows = keys.find(chunk[:num_keys])
            matched = rows >= 0
        for name, column in zip((*system, "source"), (*chunk[num_keys:], rows), strict=True):
            values = column if name == "source" else column.to_numpy()
            parts[name].append(values if matched.all() else values[matched])
    addresses = _joined(parts[ROW_ADDRESS], np.uint64)
    return Matches(
        addresses,
        _joined(parts[ROW_ID], np.uint64) if stable else addresses,
        _joined(parts["source"], np.int64),
    )


def ambiguous_source(key: str) -> SchemaError:
    """The error for several rows of the source that match the same row of the dataset."""
    return SchemaError(
        "Ambiguous merge inserts are prohibited: multiple source rows match the same "
        "target row: several rows of the source match the same row of the dataset: those "
        f"with {key}. Keep one row per key in the source, or have the "
        "condition of when_matched_update_all choose one."
    )


def _joined(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *(part.view(dtype) for part in parts)])


def _indexed(term: _KeyTerm, snapshot: Snapshot) -> Term:
    """The term as a condition that indices answer, if the column has texts."""
    stored: Any = snapshot.manifest.schema.find(term.path)[-1].to_arrow().type
    values: Any = term.keys
    text = pa.types.is_string(stored) or pa.types.is_large_string(stored)
    if term.condition is not None or not text or values.type != stored:
        return term
    return replace(term, condition=(term.path, IsOneOf(values.drop_null())))


def _terms(keys: SourceKeys) -> tuple[_KeyTerm, ...]:
    """Predicates that all rows with a key of the source pass, and few other rows."""
    terms = []
    for name, column, values in zip(keys.names, keys.columns, keys.values, strict=True):
        if isinstance(column.type, pa.BaseExtensionType) or pa.types.is_nested(column.type):
            continue  # files may store another type
        condition = None
        if is_word_type(column.type):
            condition = name, IsOneOf(column.drop_null())
            integer_ranges(condition[1], column.type)  # computed once here, not in each thread
        terms.append(
            _KeyTerm(expression=_ANY, condition=condition, path=name, values=values, keys=column)
        )
    return tuple(sorted(terms, key=lambda term: term.condition is None))  # the fast ones first


_ANY: Final = Literal(True, pa.bool_())


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyTerm(Term):
    """Whether a column has one of the source's values."""

    path: str
    values: KeyValues
    keys: pa.Array

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.path,)

    def mask(self, batch: pa.RecordBatch) -> Any:
        array: Any = batch.column(batch.schema.get_field_index(self.path))
        codes = self.values.find(array)
        return pa.array((codes >= 0) & (codes < self.values.size - 1))


class SourceKeys:
    """The keys of a source, ready to be looked up.

    Parameters
    ----------
    names
        Names of the key columns, for messages.
    columns
        The key columns, one array each, of equal length.

    Raises
    ------
    SchemaError
        The values of a column cannot be compared.
    """

    def __init__(self, names: Sequence[str], columns: Sequence[pa.Array]) -> None:
        self.names = tuple(names)
        self.columns = tuple(columns)
        self.rows = len(columns[0])
        self.values = [
            key_values(name, column) for name, column in zip(names, columns, strict=True)
        ]
        self._combined = Combined([(value.codes, value.size) for value in self.values])

    @cached_property
    def first_rows(self) -> Int64s:
        """For each source row the first one with the same key; -1 if the key has a null."""
        return self._without_nulls(self._combined.codes, [value.codes for value in self.values])

    @cached_property
    def repeated(self) -> NDArray[np.bool_]:
        """Which source rows share their key with another one."""
        first = self.first_rows
        known = first >= 0
        counts = np.bincount(first[known], minlength=len(first))
        repeated = np.zeros(len(first), np.bool_)
        repeated[known] = counts[first[known]] > 1
        return repeated

    def pairs(self, matches: Matches, most: int) -> Iterator[Matches]:
        """All pairs of a matched row and a source row with its key, ``most`` or a row's at a time.

        The pairs of a matched row are in one part.
        """
        rows = np.flatnonzero(self.first_rows >= 0)
        first = self.first_rows[rows]
        order = rows[np.argsort(first, kind="stable")]
        counts = np.bincount(first, minlength=self.rows)
        starts = np.cumsum(counts) - counts
        sizes = counts[matches.source]
        ends = np.cumsum(sizes)
        begin = done = 0
        while begin < len(sizes):
            end = max(begin + 1, int(np.searchsorted(ends, done + most, side="right")))
            part = matches.only(np.repeat(np.arange(begin, end), sizes[begin:end]))
            sources = order[spread(starts[matches.source[begin:end]], sizes[begin:end])]
            yield replace(part, source=sources)
            begin, done = end, int(ends[end - 1])

    def find(self, columns: Sequence[Any]) -> Int64s:
        """The first source row with the key of each row; -1 for none."""
        parts = [values.find(column) for values, column in zip(self.values, columns, strict=True)]
        return self._without_nulls(self._combined.find(parts), parts)

    def text(self, row: int) -> str:
        """The key of a source row, for messages."""
        columns = zip(self.names, self.columns, strict=True)
        return ", ".join(
            f"{name} = {python_values(column.slice(row, 1))[0]!r}" for name, column in columns
        )

    def _without_nulls(self, rows: Int64s, parts: Sequence[Int64s]) -> Int64s:
        rows = rows.copy()
        for values, codes in zip(self.values, parts, strict=True):
            rows[codes == values.size - 1] = -1
        return rows
