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

from glaive.arrow.blocks import spread
from glaive.arrow.chunked import decode_large
from glaive.arrow.conditions import IsOneOf, python_values
from glaive.dataclass import dataclass
from glaive.encodings.predicate import integer_ranges
from glaive.errors import SchemaError
from glaive.expr.coerce import is_list
from glaive.expr.filters import Term
from glaive.expr.tree import Literal
from glaive.format.manifest import Feature
from glaive.kernels.hashing import StringTable, WordTable
from glaive.kernels.strings import Strings
from glaive.scan.filter_scan import FilteredScan
from glaive.scan.filter_search import Search, answers_of
from glaive.scan.options import Meter, ScanOptions
from glaive.scan.projection import ROW_ADDRESS, ROW_ID, refuse_taken
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.views import Views
from glaive.types import Int64s, as_buffer, items_of

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion
    from glaive.scan.snapshot import Snapshot


# --- Codes of key values: equal values have equal codes, whatever their type ------------
# Numbers, times, booleans and floats are hashed as machine words, by their bits; strings, binary
# and wide decimals by their bytes, structs and lists by their texts. Equality is that of pylance:
# -0.0 differs from 0.0, and NaNs are equal if their bits are.


class KeyValues:
    """The values of one column of the source.

    Parameters
    ----------
    name
        The column, for messages.
    array
        Its values.

    Attributes
    ----------
    codes
        For each value the position of the first equal one; for a null ``size - 1``, the number
        of values.

    Raises
    ------
    SchemaError
        Values of the type cannot be compared.
    """

    def __init__(self, name: str, array: Any) -> None:
        array = _storage_of(array)
        self._are_words = is_word_type(array.type)
        if not (self._are_words or _is_byte_string(array.type)):
            raise SchemaError(f"rows cannot be matched by column {name!r} of type {array.type}")
        self.size = len(array) + 1
        self._rows: Int64s | None = None
        given = array
        if array.null_count:
            self._rows = np.flatnonzero(~_nulls_of(array))
            given = array.drop_null()
        self._table: Any = (
            WordTable(_words_of(given))
            if self._are_words
            else StringTable(_strings_of(given), len(given))
        )
        self.codes: Int64s = self._table.firsts
        if self._rows is not None:
            self.codes = np.full(len(array), len(array), np.int64)
            self.codes[self._rows] = self._rows[self._table.firsts]

    def find(self, array: Any) -> Int64s:
        """The codes of other values, -1 for those not in the source."""
        array = _storage_of(array)
        codes: Int64s
        if self._are_words:
            codes = self._table.find(_words_of(array))
        else:
            codes = self._table.find(_strings_of(array), len(array))
        if self._rows is not None:
            known = codes >= 0
            codes[known] = self._rows[codes[known]]
        if array.null_count:
            codes[_nulls_of(array)] = self.size - 1
        return codes


def _storage_of(array: Any) -> Any:
    """The array without extension types, dictionaries and views; nested values as texts."""
    types = pa.types
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if types.is_dictionary(array.type):
        array = decode_large(array)
    kind = array.type
    if types.is_string_view(kind) or types.is_binary_view(kind) or types.is_null(kind):
        return array.cast(pa.large_binary())
    if types.is_struct(kind) or types.is_map(kind) or is_list(kind, fixed=True):
        texts = [None if value is None else repr(value) for value in python_values(array)]
        return pa.array(texts, pa.large_string())
    return array


def is_word_type(data_type: pa.DataType) -> bool:
    """Whether values fit in a machine word of 64 bits."""
    types = pa.types
    if types.is_boolean(data_type):
        return True
    wide = types.is_decimal(data_type) or types.is_primitive(data_type)
    return bool(wide and data_type.bit_width in (8, 16, 32, 64))


def _nulls_of(array: Any) -> NDArray[np.bool_]:
    """Which values are null."""
    mask: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return mask


class Combined:
    """Rows of several codes as one code: the position of the first equal row.

    Parameters
    ----------
    parts
        For each column the codes of all rows, and an exclusive upper bound of them.
    """

    def __init__(self, parts: list[tuple[Int64s, int]]) -> None:
        self._tables: list[tuple[int, WordTable]] = []
        codes, _ = parts[0]
        self.codes = codes
        for codes, size in parts[1:]:
            table = WordTable(_joined(self.codes, codes, size))
            self._tables.append((size, table))
            self.codes = table.firsts

    def find(self, parts: list[Int64s]) -> Int64s:
        """The position of the first row with these codes; with one column, its codes."""
        rows = parts[0]
        for (size, table), codes in zip(self._tables, parts[1:], strict=True):
            unknown = (rows < 0) | (codes < 0)
            rows = table.find(_joined(rows, codes, size))
            rows[unknown] = -1
        return rows


def _joined(high: Int64s, low: Int64s, size: int) -> NDArray[np.uint64]:
    # Both are below 2^31, so the result is below 2^63.
    return (high * size + low).view(np.uint64)


def _words_of(array: Any) -> NDArray[np.uint64]:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    width = array.type.bit_width // 8
    if not len(array):
        return np.empty(0, np.uint64)
    words = items_of(array.buffers()[1], f"<u{width}", len(array), array.offset * width)
    return words.astype(np.uint64, copy=False)


def _is_byte_string(data_type: pa.DataType) -> bool:
    types = pa.types
    wide = (
        types.is_fixed_size_binary(data_type)
        or types.is_decimal(data_type)
        or types.is_interval(data_type)
    )
    return bool(_offset_bits(data_type) or wide)


def _offset_bits(data_type: pa.DataType) -> int:
    types = pa.types
    if types.is_string(data_type) or types.is_binary(data_type):
        return 32
    return 64 if types.is_large_string(data_type) or types.is_large_binary(data_type) else 0


def _strings_of(array: Any) -> Strings:
    """The values as byte strings."""
    bits = _offset_bits(array.type)
    if not len(array):
        return Strings(as_buffer(np.zeros(1, np.int64)), 64, _EMPTY)
    buffers = array.buffers()
    if bits:
        return Strings(buffers[1].slice(array.offset * bits // 8), bits, buffers[2] or _EMPTY)
    width = int(array.type.bit_width) // 8
    offsets = np.arange(len(array) + 1, dtype=np.int64) * width
    return Strings(as_buffer(offsets), 64, buffers[1].slice(array.offset * width))


_EMPTY: Any = pa.py_buffer(b"")


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
    addresses = _joined_columns(parts[ROW_ADDRESS], np.uint64)
    return Matches(
        addresses,
        _joined_columns(parts[ROW_ID], np.uint64) if stable else addresses,
        _joined_columns(parts["source"], np.int64),
    )


def ambiguous_source(key: str) -> SchemaError:
    """The error for several rows of the source that match the same row of the dataset."""
    return SchemaError(
        "Ambiguous merge inserts are prohibited: multiple source rows match the same "
        "target row: several rows of the source match the same row of the dataset: those "
        f"with {key}. Keep one row per key in the source, or have the "
        "condition of when_matched_update_all choose one."
    )


def _joined_columns(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
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
        self.values = [KeyValues(name, column) for name, column in zip(names, columns, strict=True)]
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
