"""A partition of a full-text index, of which searches read what they need.

Specification: "Files" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import as_numpy, one_array
from glaive.errors import OptionError
from glaive.index.row_set import RowNumbers
from glaive.index.segment import IndexFile, Segment
from glaive.index.text.bm25 import TextStatistics, length_shares, quantized_lengths, weights_of
from glaive.index.text.columns import elements_of, lists_of
from glaive.index.text.edit_distance import near_tokens
from glaive.index.text.fst_lookup import Fst
from glaive.index.text.positions import check_positions, decode_document_positions
from glaive.index.text.posting_layout import PostingLayout
from glaive.index.text.term_search import TokenPositions
from glaive.index.text.tokens import Tokens, read_tokens
from glaive.kernels.postings import decode_list, decode_list_positions
from glaive.kernels.text_search import WeightedList, weighted
from glaive.named_tuple import NamedTuple
from glaive.types import Float32s, Int64s, UInt32s

__all__ = ["Documents", "OpenedPartition"]

_POSTING, _LENGTH = "_posting", "_length"
_STREAM, _STREAM_AT = "_compressed_position", "_position_block_offset"
_POSITION = "_position"
_SET, _TEXT, _NUMBER = "_token_fst_bytes", "_token", "_token_id"
_NO_DOCUMENTS, _NO_WEIGHTS = np.zeros(0, np.uint32), np.zeros(0, np.float32)


class Documents(NamedTuple):
    """The documents of a partition.

    Parameters
    ----------
    rows
        Number of the row of each.
    lengths
        Its tokens, as far as scores know.
    statistics
        Of all of them.
    """

    rows: RowNumbers
    lengths: UInt32s
    statistics: TextStatistics


class _TokenTable:
    """Tokens in ascending order with their numbers."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self.nbytes = tokens.strings.nbytes + tokens.numbers.nbytes

    def find(self, token: bytes) -> int | None:
        """The number of a token."""
        low, high = 0, len(self._tokens.strings)
        while low < high:
            middle = (low + high) // 2
            if self._tokens.strings[middle].as_py() < token:
                low = middle + 1
            else:
                high = middle
        known = low < len(self._tokens.strings)
        if known and self._tokens.strings[low].as_py() == token:
            return int(self._tokens.numbers[low])
        return None


class OpenedPartition:
    """One partition. What is read of it is kept by the session. Safe to share between threads.

    Parameters
    ----------
    segment
        That it belongs to.
    number
        Of the partition; None in a segment by pylance up to 0.27.
    layout
        Of its posting lists.
    """

    def __init__(self, segment: Segment, number: int | None, layout: PostingLayout) -> None:
        self._segment, self._layout = segment, layout
        self.number = number

    # ------------------------------------------------------------------ what it holds

    @property
    def documents(self) -> Documents:
        """Rows and lengths of the documents; two columns are read whole."""
        known: Documents = self._kept("documents", self._read_documents)
        return known

    @property
    def stored_rows(self) -> RowNumbers:
        """Number of the row of each document."""
        rows: RowNumbers = self.documents.rows
        return rows

    @property
    def size(self) -> int:
        """Documents."""
        return len(self.documents.rows)

    @property
    def statistics(self) -> TextStatistics:
        """Documents and their tokens."""
        return self.documents.statistics

    def near(self, token: str, distance: int, prefix_length: int, most: int) -> list[str]:
        """Tokens that are at most ``distance`` edits away: the first so many."""
        strings: Any = self._kept("strings", self._read_strings)
        places = near_tokens(strings, token, distance, prefix_length, most)
        return [strings[place].as_py() for place in places.tolist()]

    # ------------------------------------------------------------------ posting lists

    def weighted(self, token: str, mean: float) -> WeightedList:
        """The documents of a token, with weights; none if the partition does not know it.

        Parameters
        ----------
        mean
            Tokens of a document on the average, of the whole index.

        Notes
        -----
        One request, if the list is not kept.
        """

        def load() -> tuple[WeightedList, int]:
            found = weighted(*self.read_weights(token, mean))
            return found, found.nbytes

        known: WeightedList = self._segment.keep((self.number, "list", token, mean), load)
        return known

    def read_weights(self, token: str, mean: float) -> tuple[UInt32s, Float32s]:
        """The documents of a token and their weights, read again: one request."""
        place = self._find(token)
        if place is None:
            return _NO_DOCUMENTS, _NO_WEIGHTS
        documents, frequencies = self._read_list(place)
        shares: Float32s = self._kept(("shares", mean), lambda: self._shares(mean))
        return documents, weights_of(frequencies, shares[documents])

    @property
    def lengths(self) -> UInt32s:
        """Tokens of each document."""
        lengths: UInt32s = self.documents.lengths
        return lengths

    def occurrences(self, token: str) -> tuple[UInt32s, UInt32s]:
        """The documents that have a token, and how often. One request."""
        place = self._find(token)
        if place is None:
            return np.zeros(0, np.uint32), np.zeros(0, np.uint32)
        return self._read_list(place)

    def count(self, token: str) -> int:
        """How many documents have a token."""
        place = self._find(token)
        return 0 if place is None else int(self._kept("lengths", self._read_lengths)[place])

    def positions(self, token: str) -> TokenPositions:
        """Positions of a token in each of its documents.

        Raises
        ------
        OptionError
            The index has no positions.
        """
        known: TokenPositions = self._kept(("positions", token), lambda: self.read_positions(token))
        return known

    def read_positions(self, token: str) -> TokenPositions:
        """The same, read again: two requests."""
        place = self._find(token)
        if place is None:
            return TokenPositions.of(np.zeros(1, np.int64), np.zeros(0, np.uint32))
        _, frequencies = self._read_list(place)
        return TokenPositions.of(*self._read_positions(place, frequencies))

    def check_positions(self) -> None:
        """Raise ``OptionError`` if there are documents, but no positions of their tokens."""
        if self.size and not {_POSITION, _STREAM}.intersection(self._lists.schema.names):
            raise OptionError(
                f"{self._segment.where}: position is not found but required for phrase queries: "
                "the index has no positions, which phrases need. Create it again with "
                "with_position=True."
            )

    # ------------------------------------------------------------------ reading

    def _kept(self, key: Hashable, load: Any) -> Any:
        """What is kept under a key, else what ``load`` returns, an object with ``nbytes``."""

        def sized() -> tuple[Any, int]:
            value = load()
            parts = value[:2] if isinstance(value, Documents) else (value,)
            return value, sum(getattr(part, "nbytes", 0) for part in parts)

        return self._segment.keep((self.number, key), sized)

    def _file(self, part: str) -> IndexFile:
        name = f"{part}.lance" if self.number is None else f"part_{self.number}_{part}.lance"
        opened: IndexFile = self._segment.keep(name, lambda: (self._segment.open(name), 1 << 14))
        return opened

    @property
    def _lists(self) -> IndexFile:
        return self._file("invert")

    @property
    def _list_count(self) -> int:
        return self._lists.num_rows

    def _read_documents(self) -> Documents:
        file = self._file("docs")
        file.check(_rowid=pa.uint64(), _num_tokens=pa.uint32())
        table = file.read(["_rowid", "_num_tokens"])
        for column in table.columns:
            file.check_present(column)
        rows, lengths = (as_numpy(column) for column in table.columns)
        total = file.number("total_tokens", int(lengths.sum(dtype=np.int64)))
        if not self._layout.scored:
            lengths = quantized_lengths(lengths)
        return Documents(rows, lengths, TextStatistics(len(rows), total))

    def _shares(self, mean: float) -> Float32s:
        return length_shares(self.documents.lengths, mean)

    def _find(self, token: str) -> int | None:
        """The row of a token among the lists."""
        tokens: Fst | _TokenTable = self._kept("tokens", self._read_tokens)
        place = tokens.find(token.encode())
        if place is not None and place >= self._list_count:
            file = self._file("tokens")
            expected = f"numbers below {self._list_count}, one per list"
            raise file.corrupt("tokens of an index", expected, f"{place}")
        return place

    def _read_tokens(self) -> Fst | _TokenTable:
        file = self._file("tokens")
        if _SET not in file.schema.names:
            return _TokenTable(read_tokens(file, self._list_count))
        file.check(_token_fst_bytes=pa.large_binary())
        column = file.read([_SET])[_SET]
        if len(column) != 1 or column.null_count:
            raise file.corrupt("tokens of an index", "one set of them", f"{len(column)}")
        return Fst(column[0].as_buffer(), file.path)

    def _read_strings(self) -> Any:
        tokens = read_tokens(self._file("tokens"), self._list_count)
        return tokens.strings.cast(pa.large_string())

    def _read_list(self, place: int) -> tuple[UInt32s, UInt32s]:
        """Documents and frequencies of a list."""
        file, layout = self._lists, self._layout
        length = int(self._kept("lengths", self._read_lengths)[place])
        _, array = lists_of(file.read([_POSTING], place, place + 1), _POSTING, file)
        elements = elements_of(array, _POSTING, file)
        return decode_list(
            elements.data, elements.offsets, length, block=layout.block,
            fixed_tail=layout.fixed_tail, limit=self.size, where=file.path,
        )  # fmt: skip

    def _read_lengths(self) -> Any:
        file = self._lists
        file.check(_length=pa.uint32())
        file.check_lists(_posting=pa.large_binary())
        column = file.read([_LENGTH])[_LENGTH]
        file.check_present(column)
        return as_numpy(column)

    def _read_positions(self, place: int, frequencies: UInt32s) -> tuple[Int64s, UInt32s]:
        file = self._lists
        check_positions(frequencies, file)
        if _POSITION in file.schema.names:
            return self._read_document_positions(place, frequencies.astype(np.int64))
        self.check_positions()
        table = file.read([_STREAM, _STREAM_AT], place, place + 1)
        stream = elements_of(one_array(table[_STREAM]), _STREAM, file)
        _, begins = lists_of(table, _STREAM_AT, file)
        if begins.type != pa.uint32() or begins.null_count:
            raise file.corrupt_column(_STREAM_AT, "lists of uint32", f"{begins.type}")
        offsets = np.append(as_numpy(begins).astype(np.int64), len(stream.data))
        return decode_list_positions(
            stream.data, offsets, frequencies, block=self._layout.block, where=file.path
        )

    def _read_document_positions(self, place: int, frequencies: Int64s) -> tuple[Int64s, UInt32s]:
        """The same of format version 1, with elements for each document."""
        file = self._lists
        _, documents = lists_of(file.read([_POSITION], place, place + 1), _POSITION, file)
        begins, values = lists_of(pa.table({_POSITION: documents}), _POSITION, file)
        elements = elements_of(values, _POSITION, file)
        positions = decode_document_positions(elements, np.diff(begins), frequencies, file.path)
        return np.concatenate(([0], np.cumsum(frequencies))).astype(np.int64), positions
