"""Comparisons of arrays of one type.

Floats are ordered by their bits: ``-0.0 < 0.0``; NaN is the largest, and equals itself.
Simplification makes comparisons with a constant zero include both zeros. Lists and structs are
equal if all their items are equal; nulls equal nulls. Lists are ordered lexicographically.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow import compute as pc
from glaive.arrow.blocks import flag_array, number_array, slice_bits
from glaive.arrow.chunked import as_numpy, row_bytes
from glaive.arrow.conditions import (
    FALSE,
    IsOneOf,
    comparable_decimals,
    filled,
    float_order,
    valid_where,
)
from glaive.errors import FilterError
from glaive.expr.rows import (
    MAX_LIST_ITEMS,
    check_values,
    count_rows,
    largest,
    map_constants,
    repeat,
)
from glaive.kernels.offsets import contains
from glaive.kernels.strings import Strings

_FUNCTIONS: dict[str, str] = {
    "=": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_WORDS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_UNSIGNED = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compare(op: str, left: Any, right: Any) -> Any:
    """Compute ``left op right``; null if a side is null.

    Parameters
    ----------
    left, right
        Arrays or scalars of one type, at least one of them an array.
    """
    if pa.types.is_null(left.type):
        return pa.nulls(count_rows((left, right)), pa.bool_())
    if pa.types.is_nested(left.type):
        return _nested(op, left, right)
    if pa.types.is_floating(left.type) and isinstance(right, pa.Scalar) and right.is_valid:
        return _with_float(op, left, right)
    return getattr(pc, _FUNCTIONS[op])(comparable(left), comparable(right))


def distinct(left: Any, right: Any) -> Any:
    """Compute ``IS DISTINCT FROM``; never null."""
    unequal = pc.fill_null(compare("!=", left, right), FALSE)
    return pc.or_(unequal, pc.xor(pc.is_null(left), pc.is_null(right)))


def among(array: Any, values: Any) -> Any:
    """Return whether items are among ``values``, which are valid; null for null items."""
    if pa.types.is_nested(array.type):
        rows = [compare("=", array, value) for value in values]
        result = rows[0]
        for row in rows[1:]:
            result = pc.or_kleene(result, row)
        return result
    one_of = IsOneOf(_plain_array(values)).mask(_plain_array(array))
    return one_of if not array.null_count else valid_where(pc.is_valid(array), one_of)


def comparable(values: Any) -> Any:
    """Convert values to a type that Arrow orders as defined here: floats to integers.

    Decimals with a negative scale get another scale; all keep one type.
    """
    kind = values.type
    if pa.types.is_floating(kind):
        constant = isinstance(values, pa.Scalar)
        return _ordered(repeat(values, 1))[0] if constant else _ordered(values)
    if kind == pa.string_view():
        return values.cast(pa.large_string())
    if kind == pa.binary_view():
        return values.cast(pa.large_binary())
    return comparable_decimals(values)


def _plain_array(array: Any) -> Any:
    return array if pa.types.is_floating(array.type) else comparable(array)


def _ordered(array: Any) -> Any:
    words: Any = array.view(_WORDS[array.type.bit_width])
    keys = float_order(as_numpy(filled(words, 0)))
    nulls = as_numpy(words.is_null()) if words.null_count else None
    return number_array(keys, nulls=nulls)


def floats_of(ordered: Any, kind: Any) -> Any:
    """Convert ordered integers back to floats; see :func:`comparable`."""
    bits = float_order(as_numpy(filled(ordered, 0)))
    nulls = as_numpy(ordered.is_null())
    return number_array(bits.view(f"f{kind.bit_width // 8}"), kind, nulls=nulls)


def _with_float(op: str, array: Any, number: Any) -> Any:
    """Compare with one float by bits, which are in order.

    As signed integers, positive numbers are in order. As unsigned integers, negative numbers are in
    reverse order after the positive numbers.
    """
    width = array.type.bit_width
    bits: Any = repeat(number, 1).view(_WORDS[width])
    if op in _FLIPPED and bits[0].as_py() < 0:
        op, bits, array = _FLIPPED[op], bits.view(_UNSIGNED[width]), array.view(_UNSIGNED[width])
    else:
        array = array.view(_WORDS[width])
    return getattr(pc, _FUNCTIONS[op])(array, bits[0])


def _nested(op: str, left: Any, right: Any) -> Any:
    rows = len(left) if isinstance(left, pa.Array) else len(right)
    arrays: list[Any] = [left, right]
    left, right = (side if isinstance(side, pa.Array) else repeat(side, rows) for side in arrays)
    both = pc.and_(pc.is_valid(left), pc.is_valid(right))
    if op in {"=", "!="}:
        flags = flag_array(same(left, right))
        return valid_where(both, flags if op == "=" else pc.invert(flags))
    if pa.types.is_struct(left.type):
        raise FilterError(f"structs have no order: {op} is not for {left.type}; compare members")
    from glaive.expr.functions.library import engine_operation

    return engine_operation(op, left, right)


def same(left: Any, right: Any, rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
    """Return flags of equal items; nulls equal nulls.

    Parameters
    ----------
    rows
        Item of ``right`` to compare with, for each item of ``left``; default: the item at the same
        index. Memory depends on the bytes of ``left``, even if many items are compared with one
        long item: only values of the same length are copied.
    """
    kind = left.type
    here, there = _valid(left), _of_rows(_valid(right), rows)
    if pa.types.is_struct(kind):
        matching: NDArray[np.bool_] = here == there
        for i in range(kind.num_fields):
            matching &= ~here | same(left.field(i), right.field(i), rows)
        return matching
    if not pa.types.is_nested(kind):
        return np.where(here & there, _equal(left, right, rows), here == there)
    first, (starts, sizes) = list_spans(left), list_spans(right)
    second = _of_rows(starts, rows), _of_rows(sizes, rows)
    matching = np.asarray((here == there) & (~here | (first[1] == second[1])))
    chosen = np.flatnonzero(matching & here)
    owner, at = _within(chosen, first, first[1][chosen])
    other = _within(chosen, second, second[1][chosen])[1]
    matching[owner[~same(left.values.take(number_array(at)), right.values, other)]] = False
    return matching


def _of_rows(values: NDArray[Any], rows: NDArray[np.int64] | None) -> NDArray[Any]:
    return values if rows is None else values[rows]


def _equal(left: Any, right: Any, rows: NDArray[np.int64] | None) -> NDArray[np.bool_]:
    """Return flags of equal values of flat types; nulls are unequal."""
    if rows is not None:
        sizes, wanted = row_bytes(left), row_bytes(right)
        if not isinstance(sizes, int) and not isinstance(wanted, int):
            equal: NDArray[np.bool_] = sizes == wanted[rows]
            chosen = np.flatnonzero(equal)
            right = right.take(number_array(rows[chosen]))
            equal[chosen] = _equal(left.take(number_array(chosen)), right, None)
            return equal
        right = right.take(number_array(rows))
    flags = pc.fill_null(compare("=", left, right), FALSE)
    return as_numpy(flags)


def _valid(array: Any) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = as_numpy(pc.is_valid(array))
    return flags


def list_spans(array: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the items of each list start in its values, and their number."""
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        starts = (np.arange(len(array), dtype=np.int64) + array.offset) * size
        return starts, np.full(len(array), size, np.int64)
    offsets = as_numpy(array.offsets).astype(np.int64)
    return offsets[:-1], np.diff(offsets)


def _within(
    rows: NDArray[np.int64], spans: tuple[NDArray[np.int64], NDArray[np.int64]], sizes: Any
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row and index in the values of each of the first ``sizes`` items of ``rows``."""
    check_values(int(sizes.sum()), len(rows), MAX_LIST_ITEMS)
    owner = np.repeat(rows, sizes)
    before = np.cumsum(sizes) - sizes
    inside = np.arange(len(owner), dtype=np.int64) - np.repeat(before, sizes)
    return owner, np.repeat(spans[0][rows], sizes) + inside


# --- LIKE: ``%`` any string, ``_`` one character; and whether strings contain a word ----

_OFFSET_BITS: dict[pa.DataType, Literal[32, 64]] = {
    pa.string(): 32,
    pa.binary(): 32,
    pa.large_string(): 64,
    pa.large_binary(): 64,
}

_MIN_ROWS_PER_MATCH = 4
"""Only rows that contain the word are tested further, if at most one row in this many does."""

_MAX_PATTERN_CHARACTERS = 3_000
"""Maximum characters of a pattern for strings of any length."""

_MAX_COMPARISONS = 2**30
"""Maximum comparisons per string for longer patterns."""

_MAX_PARTS = 1_000
"""Maximum parts of a pattern: LIKE takes time per part for each character."""


def like(strings: Any, pattern: Any, escape: str, *, ignore_case: bool) -> Any:
    """Return flags of strings that match a pattern; null if the string or the pattern is null.

    Parameters
    ----------
    strings
        Array of strings.
    pattern
        Array or scalar of the same type.
    escape
        Character that makes ``%``, ``_`` and itself literal.

    Raises
    ------
    FilterError
        The pattern has too many parts, or is too long for the length of a string.
    """
    if strings.type == pa.string_view():
        strings = strings.cast(pa.large_string())

    def matching(strings: Any, text: str) -> Any:
        return _matching(strings, text, escape, ignore_case=ignore_case)

    return map_constants(pa.bool_(), matching, (strings, pattern))


def _matching(strings: Any, pattern: str, escape: str, *, ignore_case: bool) -> Any:
    parts = pattern_parts(pattern, escape)
    words = [part for part in parts if isinstance(part, str)]
    if not ignore_case and len(words) == len(parts):
        return pc.equal(strings, pa.scalar("".join(words), strings.type))
    if not ignore_case and len(words) == 1 and 1 not in parts:
        if parts[0] is not None:
            return pc.starts_with(strings, words[0])
        return (pc.ends_with if parts[-1] is not None else containing)(strings, words[0])
    if len(parts) > _MAX_PARTS:
        raise FilterError(
            f"LIKE: the pattern {pattern!r:.60} has {len(parts)} parts: words, '_' and '%'; at "
            f"most {_MAX_PARTS} are supported, as each character of a text is compared with all"
        )
    places = sum(len(part) if isinstance(part, str) else 1 for part in parts)
    size = largest(strings) if places > _MAX_PATTERN_CHARACTERS and None in parts else 0
    if places * size > _MAX_COMPARISONS:
        raise FilterError(
            f"LIKE: the pattern {pattern!r:.60} has {places} characters, and a text {size} bytes. "
            f"With '_' or ignored case, their product may be {_MAX_COMPARISONS} at most"
        )
    written = (
        "%" if one is None else "_" if one == 1 else re.sub(r"([\\%_])", r"\\\1", str(one))
        for one in parts
    )
    test = partial(pc.match_like, pattern="".join(written), ignore_case=ignore_case)
    if words and not ignore_case:
        return prefiltered(strings, max(words, key=len), test)
    return test(strings)


@lru_cache(256)
def pattern_parts(pattern: str, escape: str = "\\") -> tuple[str | int | None, ...]:
    """Split a pattern into strings, 1 for ``_``, and ``None`` for one or more ``%`` in a row."""
    parts: list[str | int | None] = []
    word: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape and at + 1 < len(pattern):
            at += 1
            word.append(pattern[at])
        elif character in "%_":
            if word:
                parts.append("".join(word))
                word = []
            special = None if character == "%" else 1
            if special == 1 or not parts or parts[-1] is not None:
                parts.append(special)
        else:
            word.append(character)
        at += 1
    if word:
        parts.append("".join(word))
    return tuple(parts)


def containing(strings: Any, word: str) -> Any:
    """Return flags of strings that contain a word; null for nulls."""
    bits, rows = _OFFSET_BITS.get(strings.type), len(strings)
    validity, *parts = strings.buffers()
    if bits is None or not rows or any(part is None for part in parts):
        return pc.match_substring(strings, word)
    width = bits // 8
    offsets = parts[0].slice(strings.offset * width, (rows + 1) * width)
    passing = contains(Strings(offsets, bits, parts[1]), rows, word.encode())
    nulls = strings.null_count
    bitmap = slice_bits(validity, strings.offset, rows) if nulls else None
    return pa.Array.from_buffers(pa.bool_(), rows, [bitmap, passing], nulls)


def prefiltered(strings: Any, word: str, test: Any) -> Any:
    """Return ``test(strings)``, if only strings that contain ``word`` can pass.

    If few strings contain it, test only these.
    """
    candidates = containing(strings, word)
    rows = np.flatnonzero(as_numpy(pc.fill_null(candidates, FALSE)))
    if len(rows) * _MIN_ROWS_PER_MATCH > len(strings):
        return test(strings)
    flags = np.zeros(len(strings), np.bool_)
    if len(rows):
        flags[rows] = as_numpy(test(strings.take(number_array(rows))))
    nulls = as_numpy(strings.is_null()) if strings.null_count else None
    return flag_array(flags, nulls=nulls)
