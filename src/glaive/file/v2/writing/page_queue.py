"""Arrays of a field on their way to pages: queued until about a page has come together.

Specification: "Column metadata" in ``docs/format/container.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

from glaive.arrow.build import leaf_bits
from glaive.arrow.dictionaries import concat_arrays, decoded
from glaive.encodings.writing.page_count import page_count
from glaive.encodings.writing.symbol_table import PageSymbols, SharedSymbols
from glaive.errors import CapacityError
from glaive.file.v2.dictionary_passthrough import decoded_bytes, is_passed_through
from glaive.file.v2.reading.columns import Node

__all__ = ["PageJob", "PageQueue", "Symbols"]

Symbols = Mapping[int, PageSymbols]
"""FSST symbols of a page's text, by field id."""


@dataclass(frozen=True, slots=True)
class PageJob:
    """An array that becomes a page of each column of its field.

    A context manager: encode within it. Other threads may wait for what the first page of a
    column finds, and go on when it ends, even by an error.
    """

    queue: PageQueue
    array: pa.Array
    symbols: Symbols

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        for symbols in self.symbols.values():
            if symbols.first:
                symbols.shared.settle()


@dataclass(slots=True)
class PageQueue:
    """Arrays of one top-level field that wait for a page.

    ``per_row`` is how many entries a row has in the first of its columns.
    """

    node: Node
    budget: int
    per_row: int
    arrays: list[pa.Array] = field(default_factory=list)
    waiting: int = 0
    written: int = 0
    _symbols: dict[int, SharedSymbols] | None = None

    def put(self, array: pa.Array) -> None:
        """Let an array wait."""
        self.arrays.append(array)
        self.waiting += _weight(array, self.node)

    def jobs(self, *, last: bool) -> Iterator[PageJob]:
        """Take out arrays of about a page each; a short rest waits on unless it is the last."""
        for array in self._pages(last=last):
            first = self._symbols is None
            if self._symbols is None:
                texts = [leaf.field.id for leaf in self.node.leaves() if _is_text(leaf.type)]
                self._symbols = {text: SharedSymbols() for text in texts}
            found = {one: PageSymbols(shared, first) for one, shared in self._symbols.items()}
            yield PageJob(self, array, found)

    def _pages(self, *, last: bool) -> Iterator[pa.Array]:
        """Cut large arrays and join small ones; an array that makes a page is not copied."""
        arrays, waiting = self.arrays, self.waiting
        self.arrays, self.waiting = [], 0
        if last and len(arrays) == 1 and waiting < self.budget:
            yield arrays[0]
            return
        group: list[pa.Array] = []
        size = 0
        for array in arrays:
            weight = _weight(array, self.node)
            if group and size + weight > self.budget * 3 // 2:
                yield from _joined(group)
                group, size = [], 0
            group.append(array)
            size += weight
            if size >= self.budget:
                for whole in _joined(group):
                    share = size if len(group) == 1 else _weight(whole, self.node)
                    count = page_count(whole, max(1, round(share / self.budget)))
                    step = -(-len(whole) // count)
                    for first in range(0, len(whole), step):
                        yield whole.slice(first, step)
                group, size = [], 0
        if group and (last or size >= self.budget // 2):
            yield from _joined(group)
        elif group:
            self.arrays, self.waiting = group, size


def _weight(array: pa.Array, field: Node) -> int:
    """Bytes of an array, and something for one without: levels take room too."""
    kind: Any = array.type
    if is_passed_through(kind, field.type):
        return max(decoded_bytes(array), 1)
    bits, rows = _bits(kind), len(array)
    size = int(array.nbytes) if bits is None else rows * bits // 8
    return max(size, rows // 8, 1)


@lru_cache(maxsize=256)
def _bits(kind: pa.DataType) -> int | None:
    """Bits of a value of a type that is a fixed number of them, and not none."""
    return None if pa.types.is_nested(kind) or pa.types.is_null(kind) else leaf_bits(kind)


def _joined(arrays: list[pa.Array]) -> list[pa.Array]:
    """One array, or those that are given where one does not hold them."""
    if len({array.type for array in arrays}) > 1:  # text with a dictionary, and without
        plain: Any = next(array.type for array in arrays if not pa.types.is_dictionary(array.type))
        arrays = [
            decoded(array) if pa.types.is_dictionary(array.type) else array for array in arrays
        ]
        arrays = [array if array.type.equals(plain) else array.cast(plain) for array in arrays]
    try:
        return [concat_arrays(arrays)]
    except CapacityError:
        return arrays


def _is_text(kind: Any) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
