"""Tokens of documents, collected until they are a partition.

Specification: "Building" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc

from glaive.index.row_set import RowNumbers
from glaive.index.text.documents import Documents
from glaive.index.text.partition_write import PartitionContent
from glaive.index.text.text_format import TextFormat
from glaive.index.text.tokenizers.tokenizer import Tokenizer
from glaive.kernels.inverting import invert_tokens
from glaive.types import Int64s, UInt32s

__all__ = ["Collector"]

_BYTES_PER_TOKEN = 20
"""Held for a token of a text: its number, twice while parts are joined; document, frequency."""

_BYTES_PER_POSITION = 12
_BYTES_PER_DISTINCT = 100
"""Held for a distinct token, beside its text: places, counts, the trie."""

_BYTES_PER_DOCUMENT = 48


class Collector:
    """Collects the tokens of documents.

    Parameters
    ----------
    tokenizer
        Makes tokens of texts.
    form
        Whether positions are kept, and documents without tokens.
    """

    def __init__(self, tokenizer: Tokenizer, form: TextFormat) -> None:
        self._numbers = tokenizer.numbers()
        self._form = form
        self._tokens: list[UInt32s] = []
        self._positions: list[UInt32s] = []
        self._lengths: list[Int64s] = []
        self._rows: list[RowNumbers] = []
        self._elements: list[UInt32s] = []
        self._bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory that making the partition will need, about."""
        distinct = self._numbers.count * _BYTES_PER_DISTINCT
        return self._bytes + distinct + self._numbers.nbytes

    @property
    def documents(self) -> int:
        """Documents so far."""
        return sum(map(len, self._rows))

    def add(self, documents: Documents) -> None:
        """Add documents; those without tokens are left out, unless they are list elements."""
        found = self._numbers.number(documents.texts)
        lengths, rows = found.counts, documents.rows
        if documents.elements is not None:
            self._elements.append(documents.elements)
        else:
            present = lengths > 0
            lengths, rows = lengths[present], rows[present]
        self._tokens.append(found.numbers)
        if self._form.params.with_position:
            self._positions.append(found.positions)
            self._bytes += _BYTES_PER_POSITION * len(found.numbers)
        self._lengths.append(lengths)
        self._rows.append(rows)
        self._bytes += _BYTES_PER_TOKEN * len(found.numbers) + _BYTES_PER_DOCUMENT * len(rows)

    def content(self) -> PartitionContent:
        """The partition; the collector is of no use afterwards."""
        names = self._numbers.strings
        order = pc.sort_indices(names)
        rank = np.empty(len(names), np.uint32)
        rank[order.to_numpy()] = np.arange(len(names), dtype=np.uint32)
        tokens = rank[_joined(self._tokens, np.uint32)]
        self._tokens.clear()
        lengths = _joined(self._lengths, np.int64)
        positions = None
        if self._form.params.with_position:
            positions = _joined(self._positions, np.uint32)
            self._positions.clear()
        lists = invert_tokens(tokens, lengths, len(names), positions)
        rows = _joined(self._rows, np.uint64)
        elements = _joined(self._elements, np.uint32) if self._form.by_element else None
        return PartitionContent(names.take(order), rows, elements, lengths, lists)


def _joined(parts: list[Any], dtype: Any) -> Any:
    return np.concatenate([np.zeros(0, dtype), *parts])
