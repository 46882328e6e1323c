"""NGRAM: for each trigram, the set of rows that contain it.

Specification: "NGRAM" in ``docs/format/scalar-indices.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import chain
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import ascending, number_array
from glaive.arrow.chunked import as_numpy
from glaive.arrow.conditions import HasText, constants, filled, scalar
from glaive.errors import UnsupportedFeatureError
from glaive.index.protocol import (
    BuiltSegment,
    Candidates,
    Entries,
    IndexKind,
    IndexQuery,
    MatchesPattern,
    RebuiltSegment,
    ScalarIndex,
    ValueBatch,
    check_type,
    index_kind,
)
from glaive.index.row_sets import (
    NO_ROWS,
    TREEMAPS,
    AddressMap,
    RowSet,
    decode_treemap,
    rows_of_treemap,
)
from glaive.index.scalar.bitmap import KeyBatch, grouped, merged_keys, remapped
from glaive.index.scalar.ordering import is_text
from glaive.index.scalar.sorting import sorted_runs
from glaive.index.segment import IndexFile, Keep, Segment, SegmentWriter, load_uncached
from glaive.index.text.base_tokenizers import lower_case
from glaive.index.text.tokenizers import fold
from glaive.types import Int64s, UInt8s, UInt32s, as_array

# --- Trigrams of texts: three adjacent ASCII digits or letters, after folding, as numbers -------
# Specification: "NGRAM" in ``docs/format/scalar-indices.md``.

_SYMBOLS: Final = 37


def _positions() -> UInt8s:
    """Return the number of each byte: 1 to 10 for digits, 11 to 36 for letters, 0 for others."""
    numbers = np.zeros(256, np.uint8)
    numbers[ord("0") : ord("9") + 1] = np.arange(1, 11)
    for first in "aA":
        numbers[ord(first) : ord(first) + 26] = np.arange(11, 37)
    return numbers


_NUMBERS: Final = _positions()


def trigrams_of(texts: Any) -> tuple[UInt32s, Int64s]:
    """Return the distinct trigrams of each text, and the positions of their texts.

    Parameters
    ----------
    texts
        Strings; a null counts as empty.

    Returns
    -------
    tokens, owners
        Trigrams and text positions, sorted by trigram, then by position.
    """
    data, ends = _folded(texts)
    symbols = _NUMBERS[data].astype(np.uint32)
    if len(symbols) < 3:
        return np.empty(0, np.uint32), np.empty(0, np.int64)
    first, second, third = symbols[:-2], symbols[1:-1], symbols[2:]
    at = np.flatnonzero((first > 0) & (second > 0) & (third > 0))
    owners = np.searchsorted(ends, at, side="right")
    inside = at + 2 < ends[owners]
    at, owners = at[inside], owners[inside]
    tokens = (first[at] * _SYMBOLS + second[at]) * _SYMBOLS + third[at]
    pairs = ascending((tokens.astype(np.int64) << 32) | owners)
    return (pairs >> 32).astype(np.uint32), pairs & 0xFFFF_FFFF


def _folded(texts: Any) -> tuple[UInt8s, Int64s]:
    """Return the bytes of all texts, folded unless they are ASCII, and the end of each text."""
    import pyarrow.compute as pc

    texts = filled(texts, "").cast(pa.large_string())
    offsets = as_array(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
    stored = texts.buffers()[2]
    data = as_array(stored)[offsets[0] : offsets[-1]] if stored else np.empty(0, np.uint8)
    if not bool((data >= 128).any()):
        return data, offsets[1:] - offsets[0]
    # Fold all texts at once, separated by a byte 0, which was replaced in the texts.
    plain: Any = pc.replace_substring(texts, "\0", " ")
    listed = pa.ListArray.from_arrays(constants([0, len(plain)], pa.int32()), plain)
    whole: Any = pc.binary_join(listed, scalar("\0", pa.large_string()))
    # Like other text indices, replace bytes of invalid UTF-8.
    text = whole[0].as_buffer().to_pybytes().decode(errors="replace")
    encoded = fold(lower_case(text)).encode()
    folded = np.frombuffer(encoded, np.uint8)
    return folded, np.append(np.flatnonzero(folded == 0), len(folded))


def certain_trigrams(word: str) -> UInt32s:
    """Return trigrams that every text with this word contains, however it is folded."""
    symbols = _NUMBERS[np.frombuffer(word.encode(), np.uint8)].astype(np.uint32)
    if len(symbols) < 3:
        return np.empty(0, np.uint32)
    first, second, third = symbols[:-2], symbols[1:-1], symbols[2:]
    known = (first > 0) & (second > 0) & (third > 0)
    return np.unique((first * _SYMBOLS * _SYMBOLS + second * _SYMBOLS + third)[known])


# --- Words that a text must contain to match a regular expression ----------------------
# Only plain characters count that are adjacent, and outside of groups, alternatives and
# repetitions. An expression with an unknown construct yields an empty list.
#
# Specification: "NGRAM" in ``docs/format/scalar-indices.md``.

_PIECE = re.compile(
    r"""
        (?P<escaped>\\[^0-9A-Za-z<>])        # a plain character that has a meaning otherwise
  | (?P<class>\\[dDwWsSbBAz])           # a class of characters, or a place
  | (?P<any>[.^$])
  | (?P<set>\[\^?\]?[^\[\]\\]*\])
  | (?P<repeat>(?:[*?+]|\{\d+(?:,\d*)?\})+)
  | (?P<plain>[^\\.^$*+?{}\[\]()|])
    """,
    re.VERBOSE | re.DOTALL,
)


def required_words(pattern: str) -> list[str]:
    """Return words that a text must contain to match; empty if unknown."""
    words: list[str] = []
    word = ""
    at = 0
    while at < len(pattern):
        piece = _PIECE.match(pattern, at)
        if piece is None:
            return []
        at = piece.end()
        kind, text = piece.lastgroup, piece.group()
        if kind in ("plain", "escaped"):
            word += text[-1]
            continue
        if kind == "repeat":
            # The last character may be absent or repeated.
            words.append(word if text in {"+", "+?"} else word[:-1])
        else:
            words.append(word)
        word = ""
    return [one for one in [*words, word] if one]


# --- NGRAM, searched: rows that contain all trigrams of a word --------------------------
#
# Like pylance, glaive leaves equality and nulls to scans: the index may lack rows. A compaction may
# move rows and leave indices as they are; the next compaction by pylance then loses these rows.
#
# Specification: "NGRAM" in ``docs/format/scalar-indices.md``.

NULL_TOKEN = 0
"""The token of null rows."""

_BYTES_PER_ROW = 2


class OpenedNGram(ScalarIndex):
    """All tokens, and the file with the rows of each.

    Parameters
    ----------
    file
        The file.
    tokens
        Tokens, ascending.
    keep
        Cache for the sets read.
    """

    def __init__(self, file: IndexFile, tokens: UInt32s, keep: Keep = load_uncached) -> None:
        self._file, self._tokens, self._keep = file, tokens, keep

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self._tokens.nbytes) + self._file.nbytes

    def answers(self, query: IndexQuery) -> bool:
        """Return whether the query asks for a word or pattern that contains a trigram."""
        return any(map(len, _wanted(query)))

    def estimate(self, query: IndexQuery) -> int:
        """Return the mean number of rows of a token."""
        return self._file.size // _BYTES_PER_ROW // max(1, len(self._tokens))

    def compared(self, query: IndexQuery) -> int:
        """Return the number of tokens whose rows are joined."""
        return sum(map(len, _wanted(query)))

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find rows that contain all trigrams; one read, of their sets."""
        unknown = self._with_all(np.array([NULL_TOKEN], np.uint32)) if nulls else None
        found = [self._with_all(tokens) for tokens in _wanted(query)]
        return Candidates(RowSet.union(found), unknown, exact=False)

    def _with_all(self, tokens: UInt32s) -> RowSet:
        at = np.searchsorted(self._tokens, tokens)
        at = at[at < len(self._tokens)]
        at = at[np.isin(self._tokens[at], tokens)]
        if len(at) < len(tokens) or not len(at):
            return NO_ROWS

        def load() -> tuple[Any, int]:
            lists: Any = self._file.take(["posting_list"], at)[0]
            self._file.check_present(lists)
            return lists, lists.nbytes

        stored = self._keep(("lists", at.tobytes()), load)
        sets = [decode_treemap(data, self._file.path) for data in stored.to_pylist()]
        rows = reduce(lambda first, second: first & second, sorted(sets, key=len))
        return rows_of_treemap(rows, self._file.path, self._file.size)


def _wanted(query: object) -> list[UInt32s]:
    """Return sets of tokens; a text must contain all tokens of one of the sets."""
    if isinstance(query, HasText):
        return [certain_trigrams(query.word)]
    if isinstance(query, MatchesPattern):
        words = [certain_trigrams(word) for word in required_words(query.pattern)]
        joined: Any = np.unique(np.concatenate([np.empty(0, np.uint32), *words]))
        return [joined]
    return []


POSTINGS = "ngram_postings.lance"


@index_kind
class NGram(IndexKind):
    """A set of rows per trigram."""

    name: ClassVar[str] = "ngram"
    title: ClassVar[str] = "NGRAM"
    newest: ClassVar[int] = 0
    indexes_dictionaries: ClassVar[bool] = False
    markers: ClassVar[tuple[str, ...]] = (POSTINGS,)

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the sets; a set may become empty, but stays."""
        file = segment.open(POSTINGS)
        _check_columns(file)
        schema = pa.schema([file.schema.field(name) for name in ("tokens", "posting_list")])
        rebuilt = out.create(POSTINGS, schema.with_metadata(file.schema.metadata))
        for tokens, sets in remapped(file, schema.names, TREEMAPS, address_map):
            rebuilt.write(pa.table([tokens, constants(sets, pa.binary())], schema=schema))
        rebuilt.finish()
        return RebuiltSegment()

    def open(self, segment: Segment) -> OpenedNGram:
        """Read the tokens."""
        file = segment.open(POSTINGS)
        return OpenedNGram(file, _tokens_of(file), segment.keep)

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Return the number of distinct trigrams, including the token of nulls."""
        return {"num_ngrams": segment.open(POSTINGS).num_rows}

    def value_type(self, segment: Segment) -> pa.DataType:
        """Return the string type."""
        return pa.string()

    def write(self, given: Entries, out: SegmentWriter) -> BuiltSegment:
        """Sort the trigrams of the source within its memory limit.

        Joins the sets of equal trigrams of the segments: all encoded sets are in memory.
        """
        source, limit = given.source, given.memory_limit
        if source is not None:
            check_type("NGRAM", source.field, supported=is_text(source.field.type))
        with sorted_runs(_trigrams(given.batches()), limit) as runs:
            batches = grouped(runs, limit, TREEMAPS)
            if given.segments:
                stored = chain.from_iterable(map(_stored, given.segments))
                batches = merged_keys(chain(stored, batches), TREEMAPS)
            return _write(batches, out)


_BATCH_ROWS = 1 << 14
"""Texts whose trigrams are computed at a time."""


def _trigrams(batches: Iterable[ValueBatch]) -> Iterator[ValueBatch]:
    """Yield the trigrams of all texts with their rows, and the null rows."""
    for batch in batches:
        if batch.values.null_count:
            absent = batch.rows[as_numpy(batch.values.is_null())]
            yield ValueBatch(number_array(np.full(len(absent), NULL_TOKEN, np.uint32)), absent)
        for start in range(0, len(batch.values), _BATCH_ROWS):
            tokens, owners = trigrams_of(batch.values[start : start + _BATCH_ROWS])
            yield ValueBatch(number_array(tokens), batch.rows[start + owners])


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
    tokens = as_numpy(column)
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
        file.check_decoded(size, "sets of rows")  # the caller holds all batches
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
