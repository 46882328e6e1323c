"""Page predicates: conditions prepared for encoded pages, and their results, one bit per row.

On values of fixed width every condition becomes ranges of unsigned integers
(``glaive.encodings.predicate``). On a dictionary the condition is evaluated once per entry,
and the indices of passing entries are ranges again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import (
    Block,
    Constant,
    Dictionary,
    FixedWidth,
    all_set,
    ascending,
    slice_bits,
)
from glaive.arrow.build import all_null, offset_bits, to_array
from glaive.arrow.chunked import as_numpy
from glaive.arrow.conditions import (
    Condition,
    HasText,
    InRange,
    IsNull,
    IsOneOf,
    constants,
    filled,
    float_order,
)
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.levels import Leaf
from glaive.errors import SchemaError
from glaive.kernels._bitpack import WORD_BITS
from glaive.kernels.fsst import StringTest
from glaive.kernels.levels import validity_from_levels
from glaive.kernels.match import IntegerRanges, match_plain, test_of_flags
from glaive.types import Flags, UInt64s, Where, as_array, as_buffer, items_of

# --- Conditions on numbers, times and floats as ranges of unsigned integers: their machine words
#
# - Unsigned values have the same range.
# - Signed values, dates, … have one, which may wrap around from the largest word to 0.
# - Floats have one for positive and one for negative numbers, whose words descend.
# - Members of a set have one per run of consecutive words, or (negated) the gaps between the runs.

_ONE = np.uint64(1)

_SET_RANGES: WeakKeyDictionary[IsOneOf, IntegerRanges] = WeakKeyDictionary()
"""Ranges of sets for as long as the condition lives; large sets take long to sort."""


def integer_ranges(condition: Condition, kind: pa.DataType) -> IntegerRanges | None:
    """Return the ranges of words of a type, or ``None`` for other conditions.

    Ranges of a set are cached, because each window of a scan needs them.
    """
    types = pa.types
    if not isinstance(condition, InRange | IsOneOf):
        return None
    known = types.is_integer(kind) or types.is_floating(kind) or types.is_temporal(kind)
    if not known or types.is_interval(kind):
        return None
    bits = int(kind.bit_width)
    if bits not in WORD_BITS:
        return None
    if isinstance(condition, IsOneOf):
        set_ranges = _SET_RANGES.get(condition)
        if set_ranges is None:
            set_ranges = _SET_RANGES[condition] = IntegerRanges.of(bits, *_of_set(condition))
        return set_ranges
    ranges = _of_range(condition, kind)
    lows = np.array([low for low, _ in ranges], np.uint64)
    spans = np.array([span for _, span in ranges], np.uint64)
    return IntegerRanges.of(bits, lows, spans)


def _of_range(condition: InRange, kind: pa.DataType) -> list[tuple[int, int]]:
    """Return the pairs of low and span, ascending by low."""
    bits = int(kind.bit_width)
    half = 1 << (bits - 1)
    signed = not pa.types.is_unsigned_integer(kind)
    low, high = (-half, half - 1) if signed else (0, 2 * half - 1)
    if condition.low is not None:
        low = _key(condition.low) + (not condition.low_included)
    if condition.high is not None:
        high = _key(condition.high) - (not condition.high_included)
    if low > high:
        return []
    if not pa.types.is_floating(kind):
        return [(low % (2 * half), high - low)]
    # Float number k < 0 in their order has the word half + (-1 - k).
    pairs = []
    if high >= 0:
        pairs.append((max(low, 0), high - max(low, 0)))
    if low < 0:
        top = min(high, -1)
        pairs.append((half - 1 - top, top - low))
    return pairs


def _key(value: Any) -> int:
    """Return a value as the integer that its type orders by."""
    array = pa.repeat(value, 1)
    bits = array.type.bit_width
    unsigned = pa.types.is_unsigned_integer(array.type)
    words = items_of(array.buffers()[1], f"<{'u' if unsigned else 'i'}{bits // 8}", 1)
    if pa.types.is_floating(array.type):
        words = float_order(words)
    return int(words[0])


def _of_set(condition: IsOneOf) -> tuple[UInt64s, UInt64s, UInt64s | None]:
    """Return the lows and spans of the runs of consecutive words, or of the gaps between them.

    Also return the words in the runs.
    """
    values: Any = condition.values
    empty = np.empty(0, np.uint64)
    if condition.negated and values.null_count:
        return empty, empty, None
    values = values.drop_null()
    bits = values.type.bit_width
    offset = values.offset * bits // 8
    items = items_of(values.buffers()[1], f"<u{bits // 8}", len(values), offset)
    words = ascending(items).astype(np.uint64)
    top = np.uint64((1 << bits) - 1)
    if not len(words):
        every = np.zeros(1, np.uint64), np.full(1, top), None
        return every if condition.negated else (empty, empty, words)
    # Overflow is harmless: words ascend.
    ends = (np.diff(words) != 1).nonzero()[0]
    lows, highs = words[np.append(0, ends + 1)], words[np.append(ends, len(words) - 1)]
    if not condition.negated:
        return lows, highs - lows, words
    # Gaps: from 0 or the end of a run to the next run or the largest word.
    starts = np.concatenate([np.zeros(1, np.uint64), highs + _ONE])
    stops = np.append(lows - _ONE, top)
    kept = np.ones(len(starts), np.bool_)
    kept[0], kept[-1] = lows[0] > 0, highs[-1] < top
    return starts[kept], (stops - starts)[kept], None


_MAX_SEARCHED_STRINGS = 4
"""Maximum strings of a set to search for one by one."""


class RowBits(NamedTuple):
    """Row i passes if bit ``begin + i`` of ``bits`` is set."""

    bits: pa.Buffer
    begin: int = 0


class EntryTest(NamedTuple):
    """Which entries of a dictionary pass, and whether nulls pass."""

    flags: Flags
    nulls: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePredicate:
    """A condition on a column, prepared for pages.

    ``passing`` is the condition on Arrow values of type ``kind`` (of a dictionary column: on
    its items). ``ranges`` is the same on integers of fixed width, or ``None`` for other
    conditions. ``every`` is whether all valid values pass, ``None`` when that depends
    on the value. ``nulls`` is whether nulls pass, ``None`` when ``passing`` must be evaluated.
    ``text`` is the condition on the bytes of text, where it is that simple.
    """

    kind: pa.DataType
    passing: Callable[[pa.Array], pa.BooleanArray]
    ranges: IntegerRanges | None
    every: bool | None
    nulls: bool | None
    text: StringTest | None = None

    @property
    def any_width(self) -> bool:
        """Whether plain values of fixed width can be tested, as well as dictionaries."""
        return self.ranges is not None or self.every is not None or pa.types.is_boolean(self.kind)

    def same(self, other: PagePredicate) -> bool:
        """Return whether both are known to be the same; values are never compared."""
        return self.passing == other.passing

    def test_entries(self, entries: Any) -> EntryTest:
        """Evaluate the condition on the entries of a dictionary, and on a null."""
        null = all_null(entries.type, 1)
        mask: Any = self.passing(pa.concat_arrays([entries, null]))
        flags = as_numpy(mask)
        return EntryTest(flags[:-1], bool(flags[-1]))

    def null_passes(self) -> bool:
        """Return whether nulls pass."""
        if self.nulls is not None:
            return self.nulls
        mask: Any = self.passing(all_null(self.kind, 1))
        return bool(mask[0].as_py())


def page_predicate(condition: Condition, kind: pa.DataType) -> PagePredicate:
    """Return the predicate of a condition on a column of this (storage) type.

    Raises
    ------
    SchemaError
        The condition is on values of another type.
    """
    value: Any = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    if isinstance(condition, IsNull):
        return PagePredicate(
            kind=value,
            passing=condition.mask,
            ranges=None,
            every=condition.negated,
            nulls=not condition.negated,
        )
    bounds: list[Any] = []
    if isinstance(condition, HasText):
        if offset_bits(value) is None:
            raise SchemaError(f"a condition on text, on a column of type {value}")
    elif isinstance(condition, IsOneOf):
        bounds.append(condition.values.type)
    else:
        bounds += [end.type for end in (condition.low, condition.high) if end is not None]
    for bound in bounds:
        if bound != value:
            raise SchemaError(f"a condition on values of type {bound}, on a column of type {value}")
    return PagePredicate(
        kind=value,
        passing=condition.mask,
        ranges=integer_ranges(condition, value) if value is kind else None,
        every=None,
        nulls=False,
        text=_text_test(condition, value),
    )


def entry_predicate(
    passing: Callable[[pa.Array], pa.BooleanArray], kind: pa.DataType
) -> PagePredicate:
    """Return the predicate of any test on values of this type, for dictionaries only."""
    value: Any = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    return PagePredicate(kind=value, passing=passing, ranges=None, every=None, nulls=None)


# ---------------------------------------------------------------------- lowering


def _text_test(condition: Condition, kind: pa.DataType) -> StringTest | None:
    """Return the search for text; ``None`` for empty strings, which are found everywhere."""
    if isinstance(condition, HasText):
        word = condition.word.encode()
        return StringTest((word,), condition.begins, condition.ends) if word else None
    if not isinstance(condition, IsOneOf) or condition.negated or offset_bits(kind) is None:
        return None
    words: list[Any] = condition.values.drop_null().cast(pa.large_binary()).to_pylist()
    if not all(words) or len(words) > _MAX_SEARCHED_STRINGS:
        return None
    return StringTest(tuple(words), begins=True, ends=True)


# ---------------------------------------------------------------------- matching


def block_matches(block: Block, predicate: PagePredicate, where: Where) -> pa.Buffer | None:
    """Return which values of a block pass, one bit each; ``None`` when only Arrow can test them."""
    if predicate.every is not None:
        return all_or_none(block.count, passing=predicate.every)
    if isinstance(block, Constant):
        value = to_array(block.value, predicate.kind, None, 0, where) if block.count else None
        flag = value is not None and bool(predicate.test_entries(value).flags[0])
        return all_or_none(block.count, passing=flag)
    if isinstance(block, Dictionary):
        items = to_array(block.items, predicate.kind, None, 0, where)
        test = test_of_flags(block.indices.bits, predicate.test_entries(items).flags)
        return _match_integers(block.indices, test, where)
    if not isinstance(block, FixedWidth):
        return None
    if block.bits == 1 and pa.types.is_boolean(predicate.kind):
        false, true = predicate.test_entries(constants([False, True], pa.bool_())).flags.tolist()
        if false == true:
            return all_or_none(block.count, passing=true)
        if true:
            return block.values
        return as_buffer(~as_array(block.values)[: (block.count + 7) // 8])
    if predicate.ranges is None or predicate.ranges.bits != block.bits:
        return None
    return _match_integers(block, predicate.ranges, where)


def _match_integers(block: FixedWidth, test: IntegerRanges, where: Where) -> pa.Buffer:
    starts, counts = np.zeros(1, np.int64), np.array([block.count], np.int64)
    return match_plain(block.values, starts, counts, test, where)


def all_or_none(count: int, *, passing: bool) -> pa.Buffer:
    """Return the bits that are all set, or all clear."""
    return all_set(count) if passing else as_buffer(np.zeros((count + 7) // 8, np.uint8))


def joined_matches(
    bits: pa.Buffer | None, validity: pa.Buffer | None, count: int, *, nulls: bool
) -> pa.Buffer:
    """Combine the bits of passing values with their validity.

    If ``bits`` is ``None``, all values fail. If ``validity`` is ``None``, all are valid.
    """
    size = (count + 7) // 8
    if bits is None:
        bits = as_buffer(np.zeros(size, np.uint8))
    if validity is None:
        return bits
    valid, values = as_array(validity)[:size], as_array(bits)[:size]
    return as_buffer((values & valid) | ~valid if nulls else values & valid)


def leaf_matches(leaf: Leaf, predicate: PagePredicate, where: Where) -> RowBits | None:
    """Return which rows of a flat column pass; ``None`` when only Arrow can test them."""
    if leaf.rep is not None or leaf.shape is not None or len(leaf.layers) != 1:
        return None
    if leaf.values is None:
        return RowBits(all_or_none(leaf.rows, passing=bool(leaf.rows) and predicate.null_passes()))
    if leaf.values.count != leaf.rows:
        return None
    validity = leaf.validity
    if leaf.definition is not None:
        validity, _, _ = validity_from_levels(leaf.definition, slot_max=1, null_level=1)
    bits = block_matches(leaf.values, predicate, where)
    if bits is None:
        return None
    nulls = validity is not None and predicate.null_passes()
    return RowBits(joined_matches(bits, validity, leaf.rows, nulls=nulls))


def array_matches(array: Any, predicate: PagePredicate, where: Where) -> RowBits | None:
    """Return which slots of an array pass; ``None`` when only the condition's mask can tell."""
    count, nulls = len(array), array.null_count
    validity = None
    if nulls:
        bitmap = array.buffers()[0]
        validity = None if bitmap is None else slice_bits(bitmap, array.offset, count)
    if nulls == count or not count:
        return RowBits(all_or_none(count, passing=bool(count) and predicate.null_passes()))
    encoded = pa.types.is_dictionary(array.type)
    # The validity omits slots of null items, which files of 0.1 have.
    if predicate.every is not None and not (encoded and array.dictionary.null_count):
        bits: pa.Buffer | None = all_or_none(count, passing=predicate.every)
        null_passes = predicate.null_passes()
    elif encoded:
        return _dictionary_matches(array, predicate, where)
    else:
        block = _plain_block(array)
        bits = None if block is None else block_matches(block, predicate, where)
        if bits is None:
            return None
        null_passes = bool(nulls) and predicate.null_passes()
    return RowBits(joined_matches(bits, validity, count, nulls=null_passes))


def _dictionary_matches(array: Any, predicate: PagePredicate, where: Where) -> RowBits | None:
    """Match a dictionary array: indices of nulls are arbitrary, and items may be null."""
    indices, count = array.indices, len(array)
    entries = predicate.test_entries(array.dictionary)
    validity = None
    if indices.null_count:
        validity = slice_bits(indices.buffers()[0], indices.offset, count)
        indices = filled(indices, 0)
    block = _plain_block(indices)
    if block is None or not len(array.dictionary):
        return None
    test = test_of_flags(block.bits, entries.flags)
    bits = _match_integers(block, test, where)
    return RowBits(joined_matches(bits, validity, count, nulls=entries.nulls))


def mask_matches(array: pa.Array, predicate: PagePredicate) -> RowBits:
    """Return which slots of an array pass, by the condition's own mask."""
    mask: Any = predicate.passing(array)
    return RowBits(mask.buffers()[1], mask.offset)


def match_array(array: Any, test: IntegerRanges, where: Where) -> pa.Buffer:
    """Return which integers of an array pass a test; all must be valid."""
    count, bits = len(array), int(array.type.bit_width)
    values = array.buffers()[1].slice(array.offset * bits // 8)
    return _match_integers(FixedWidth(values, bits, count), test, where)


def _plain_block(array: Any) -> FixedWidth | None:
    """Return the values of an array of numbers, times or booleans."""
    kind = array.type
    if not pa.types.is_primitive(kind):
        return None
    bits, values = int(kind.bit_width), array.buffers()[1]
    if bits == 1:
        return FixedWidth(slice_bits(values, array.offset, len(array)), 1, len(array))
    return FixedWidth(values.slice(array.offset * bits // 8), bits, len(array))
