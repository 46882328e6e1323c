"""Conditions made ready for pages, and what pages answer: one bit per row.

On words of fixed width every condition comes down to ranges of unsigned words
(``glaive.encodings.integer_ranges``). On a dictionary the condition is asked once per entry, and
the indices of those that pass are ranges again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block, Constant, Dictionary, FixedWidth
from glaive.arrow.buffers import all_set
from glaive.arrow.build import all_null, to_array
from glaive.arrow.conditions import Condition, HasText, IsNull, IsOneOf
from glaive.arrow.slices import slice_bits
from glaive.encodings.integer_ranges import word_test
from glaive.encodings.protocol import Leaf
from glaive.errors import SchemaError
from glaive.kernels.fsst_search import TextTest
from glaive.kernels.levels import validity_from_levels
from glaive.kernels.match import WordTest, match_pieces, test_of_flags
from glaive.memory import as_array, as_buffer
from glaive.types import Where

__all__ = [
    "EntryTest",
    "Matches",
    "Probe",
    "all_or_none",
    "array_matches",
    "block_matches",
    "joined_matches",
    "leaf_matches",
    "masked",
    "match_array",
    "probe_entries",
    "probe_for",
]

_MOST_WORDS = 4
"""Texts of a set up to which each is searched for in turn."""


class Matches(NamedTuple):
    """Row i passes if bit ``begin + i`` of ``bits`` is set."""

    bits: pa.Buffer
    begin: int = 0


class EntryTest(NamedTuple):
    """Which entries of a dictionary pass, and whether nulls do."""

    flags: NDArray[np.bool_]
    nulls: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A condition on a column, as pages want it.

    ``passing`` is the condition on Arrow values of type ``kind`` (of a dictionary column: on
    its items). ``words`` is the same on words, None when it cannot be told from words of
    fixed width. ``every`` is whether all values that are not null pass, None when that
    depends on the value. ``nulls`` is whether nulls pass, None when ``passing`` is to be
    asked. ``text`` is the condition on the bytes of text, where it is as simple as that.
    """

    kind: pa.DataType
    passing: Callable[[pa.Array], pa.BooleanArray]
    words: WordTest | None
    every: bool | None
    nulls: bool | None
    text: TextTest | None = None

    @property
    def any_width(self) -> bool:
        """Whether values of fixed width can be tested without a dictionary."""
        return self.words is not None or self.every is not None or pa.types.is_boolean(self.kind)

    def same(self, other: Probe) -> bool:
        """Whether both ask the same, as far as can be told without looking at values."""
        return self.passing == other.passing

    def test_entries(self, entries: Any) -> EntryTest:
        """Ask the condition of the entries of a dictionary, and of a null."""
        null = all_null(entries.type, 1)
        mask: Any = self.passing(pa.concat_arrays([entries, null]))
        flags = np.asarray(mask)
        return EntryTest(flags[:-1], bool(flags[-1]))

    def null_passes(self) -> bool:
        """Whether nulls pass."""
        if self.nulls is not None:
            return self.nulls
        mask: Any = self.passing(all_null(self.kind, 1))
        return bool(mask[0].as_py())


def probe_for(condition: Condition, kind: pa.DataType) -> Probe:
    """The probe of a condition on a column of this (storage) type.

    Raises
    ------
    SchemaError
        The condition is on values of another type.
    """
    value: Any = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    if isinstance(condition, IsNull):
        return Probe(
            kind=value,
            passing=condition.mask,
            words=None,
            every=condition.negated,
            nulls=not condition.negated,
        )
    bounds: list[Any] = []
    if isinstance(condition, HasText):
        if not _is_text(value):
            raise SchemaError(f"a condition on text, on a column of type {value}")
    elif isinstance(condition, IsOneOf):
        bounds.append(condition.values.type)
    else:
        bounds += [one.type for one in (condition.low, condition.high) if one is not None]
    for bound in bounds:
        if bound != value:
            raise SchemaError(f"a condition on values of type {bound}, on a column of type {value}")
    return Probe(
        kind=value,
        passing=condition.mask,
        words=word_test(condition, value) if value is kind else None,
        every=None,
        nulls=False,
        text=_text_test(condition, value),
    )


def probe_entries(passing: Callable[[pa.Array], pa.BooleanArray], kind: pa.DataType) -> Probe:
    """The probe of any test on values of a column of this type, for dictionaries only."""
    value: Any = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    return Probe(kind=value, passing=passing, words=None, every=None, nulls=None)


# ---------------------------------------------------------------------- lowering


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind)
    return text or types.is_binary(kind) or types.is_large_binary(kind)


def _text_test(condition: Condition, kind: pa.DataType) -> TextTest | None:
    """None for texts of no bytes: those are everywhere."""
    if isinstance(condition, HasText):
        word = condition.word.encode()
        return TextTest((word,), condition.begins, condition.ends) if word else None
    if not isinstance(condition, IsOneOf) or condition.negated or not _is_text(kind):
        return None
    words: list[Any] = condition.values.drop_null().cast(pa.large_binary()).to_pylist()
    if not all(words) or len(words) > _MOST_WORDS:
        return None
    return TextTest(tuple(words), begins=True, ends=True)


# ---------------------------------------------------------------------- matching


def block_matches(block: Block, probe: Probe, where: Where) -> pa.Buffer | None:
    """Which values of a block pass, one bit each; None when only Arrow can tell."""
    if probe.every is not None:
        return all_or_none(block.count, passing=probe.every)
    if isinstance(block, Constant):
        one = to_array(block.value, probe.kind, None, 0, where) if block.count else None
        flag = one is not None and bool(probe.test_entries(one).flags[0])
        return all_or_none(block.count, passing=flag)
    if isinstance(block, Dictionary):
        items = to_array(block.items, probe.kind, None, 0, where)
        test = test_of_flags(block.indices.bits, probe.test_entries(items).flags)
        return _match_words(block.indices, test, where)
    if not isinstance(block, FixedWidth):
        return None
    if block.bits == 1 and pa.types.is_boolean(probe.kind):
        return _match_flags(block, probe)
    if probe.words is None or probe.words.bits != block.bits:
        return None
    return _match_words(block, probe.words, where)


def _match_words(block: FixedWidth, test: WordTest, where: Where) -> pa.Buffer:
    starts, counts = np.zeros(1, np.int64), np.array([block.count], np.int64)
    return match_pieces(block.values, starts, counts, test, where)


def _match_flags(block: FixedWidth, probe: Probe) -> pa.Buffer:
    false, true = probe.test_entries(pa.array([False, True])).flags.tolist()
    if false == true:
        return all_or_none(block.count, passing=true)
    if true:
        return block.values
    return as_buffer(~as_array(block.values)[: (block.count + 7) // 8])


def all_or_none(count: int, *, passing: bool) -> pa.Buffer:
    """Bits that are all set, or all clear."""
    return all_set(count) if passing else as_buffer(np.zeros((count + 7) // 8, np.uint8))


def joined_matches(
    found: pa.Buffer | None, validity: pa.Buffer | None, count: int, *, nulls: bool
) -> pa.Buffer:
    """What passes of values with this validity, where the values alone say ``found``.

    None is nothing found, or no nulls.
    """
    size = (count + 7) // 8
    if found is None:
        found = as_buffer(np.zeros(size, np.uint8))
    if validity is None:
        return found
    valid, values = as_array(validity)[:size], as_array(found)[:size]
    return as_buffer((values & valid) | ~valid if nulls else values & valid)


def leaf_matches(leaf: Leaf, probe: Probe, where: Where) -> Matches | None:
    """Which rows of a column that is not nested pass; None when only Arrow can tell."""
    if leaf.rep is not None or leaf.shape is not None or len(leaf.layers) != 1:
        return None
    if leaf.values is None:
        return Matches(all_or_none(leaf.rows, passing=bool(leaf.rows) and probe.null_passes()))
    if leaf.values.count != leaf.rows:
        return None
    validity = leaf.validity
    if leaf.definition is not None:
        validity, _, _ = validity_from_levels(leaf.definition, slot_max=1, null_level=1)
    found = block_matches(leaf.values, probe, where)
    if found is None:
        return None
    nulls = validity is not None and probe.null_passes()
    return Matches(joined_matches(found, validity, leaf.rows, nulls=nulls))


def array_matches(array: Any, probe: Probe, where: Where) -> Matches | None:
    """Which slots of an array pass; None when only the condition's own mask can tell."""
    count, nulls = len(array), array.null_count
    validity = None
    if nulls:
        bitmap = array.buffers()[0]
        validity = None if bitmap is None else slice_bits(bitmap, array.offset, count)
    if nulls == count or not count:
        return Matches(all_or_none(count, passing=bool(count) and probe.null_passes()))
    if probe.every is not None:
        found: pa.Buffer | None = all_or_none(count, passing=probe.every)
        null_passes = probe.null_passes()
    elif pa.types.is_dictionary(array.type):
        return _dictionary_matches(array, probe, where)
    else:
        block = _plain_block(array)
        found = None if block is None else block_matches(block, probe, where)
        if found is None:
            return None
        null_passes = bool(nulls) and probe.null_passes()
    return Matches(joined_matches(found, validity, count, nulls=null_passes))


def _dictionary_matches(array: Any, probe: Probe, where: Where) -> Matches | None:
    """The indices under nulls are arbitrary, and items may be null."""
    indices, count = array.indices, len(array)
    entries = probe.test_entries(array.dictionary)
    validity = None
    if indices.null_count:
        validity = slice_bits(indices.buffers()[0], indices.offset, count)
        indices = indices.fill_null(0)
    block = _plain_block(indices)
    if block is None or not len(array.dictionary):
        return None
    test = test_of_flags(block.bits, entries.flags)
    found = _match_words(block, test, where)
    return Matches(joined_matches(found, validity, count, nulls=entries.nulls))


def masked(array: pa.Array, probe: Probe) -> Matches:
    """Which slots of an array pass, by the condition's own mask."""
    mask: Any = probe.passing(array)
    return Matches(mask.buffers()[1], mask.offset)


def match_array(array: Any, test: WordTest, where: Where) -> pa.Buffer:
    """Which numbers of an array without nulls pass a test."""
    count, bits = len(array), int(array.type.bit_width)
    values = array.buffers()[1].slice(array.offset * bits // 8)
    return _match_words(FixedWidth(values, bits, count), test, where)


def _plain_block(array: Any) -> FixedWidth | None:
    """The values of an array of numbers, times or booleans."""
    kind = array.type
    if not pa.types.is_primitive(kind):
        return None
    bits, values = int(kind.bit_width), array.buffers()[1]
    if bits == 1:
        return FixedWidth(slice_bits(values, array.offset, len(array)), 1, len(array))
    return FixedWidth(values.slice(array.offset * bits // 8), bits, len(array))
