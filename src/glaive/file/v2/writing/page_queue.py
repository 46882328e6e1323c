"""Arrays of a field, queued until they fill about a page.

Specification: "Column metadata" in ``docs/format/container.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.arrow.build import leaf_bits
from glaive.arrow.dictionaries import concat_arrays, decode_dictionary
from glaive.dataclass import dataclass
from glaive.errors import CapacityError
from glaive.file.v2.dictionary_passthrough import decoded_bytes, is_passed_through
from glaive.file.v2.reading.columns import Node

if TYPE_CHECKING:
    from glaive.encodings.writing.symbol_table import PageSymbols, SharedSymbols

__all__ = ["PageJob", "PageQueue", "Symbols", "value_bits"]

Symbols = Mapping[int, "PageSymbols"]
"""FSST symbols of a page's text, by field id."""


@dataclass(frozen=True, slots=True)
class PageJob:
    """Arrays that become a page of each column of their field.

    Several arrays are those for which :func:`can_be_windows` holds.

    A context manager: encode within it. Other threads may wait for the symbols of the first
    page of a column; they continue when it ends, even with an error.
    """

    queue: PageQueue
    arrays: Sequence[pa.Array]
    symbols: Symbols

    @property
    def array(self) -> pa.Array:
        """All rows."""
        joined: pa.Array = concat_arrays(self.arrays)
        return joined

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        for symbols in self.symbols.values():
            if symbols.first:
                symbols.shared.finish()


@dataclass(slots=True)
class PageQueue:
    """Pending arrays of one top-level field.

    ``per_row`` is the number of entries of a row in the first of its columns. ``bits`` are
    those of a value (see :func:`value_bits`), and ``width`` its bytes where values can be stored
    as in memory (see :func:`glaive.encodings.writing.small_pages.whole_bytes`).
    """

    node: Node
    budget: int
    per_row: int
    bits: int | None
    width: int
    arrays: list[pa.Array] = field(default_factory=list)
    waiting: int = 0
    written: int = 0
    _symbols: dict[int, SharedSymbols] | None = None

    def put(self, array: pa.Array) -> None:
        """Append an array."""
        self.arrays.append(array)
        self.waiting += self._weight(array)

    def jobs(self, *, last: bool) -> Iterator[PageJob]:
        """Remove arrays of about a page each; a short rest stays unless it is the last."""
        from glaive.encodings.writing.symbol_table import PageSymbols, SharedSymbols

        for arrays in self._pages(last=last):
            first = self._symbols is None
            if self._symbols is None:
                text_ids = [leaf.field.id for leaf in self.node.leaves() if _is_text(leaf.type)]
                self._symbols = {field_id: SharedSymbols() for field_id in text_ids}
            symbols = {
                field_id: PageSymbols(shared, first) for field_id, shared in self._symbols.items()
            }
            yield PageJob(self, arrays, symbols)

    def _pages(self, *, last: bool) -> Iterator[Sequence[pa.Array]]:
        """Divide large arrays and join small ones; an array that fills a page is not copied."""
        arrays, waiting = self.arrays, self.waiting
        self.arrays, self.waiting = [], 0
        if last and len(arrays) == 1 and waiting < self.budget:
            yield arrays
            return
        from glaive.encodings.writing.page_count import page_count

        group: list[pa.Array] = []
        size = 0
        for array in arrays:
            weight = self._weight(array)
            if group and size + weight > self.budget * 3 // 2:
                yield from self._joined(group)
                group, size = [], 0
            group.append(array)
            size += weight
            if size >= self.budget:
                if len(group) > 1 and round(size / self.budget) < 2 and self._stay_apart(group):
                    yield group
                    group, size = [], 0
                    continue
                for joined in _joined(group):
                    share = size if len(group) == 1 else self._weight(joined)
                    count = page_count(joined, max(1, round(share / self.budget)))
                    step = -(-len(joined) // count)
                    for first in range(0, len(joined), step):
                        yield [joined.slice(first, step)]
                group, size = [], 0
        if group and (last or size >= self.budget // 2):
            yield from self._joined(group)
        elif group:
            self.arrays, self.waiting = group, size

    def _joined(self, arrays: list[pa.Array]) -> Iterator[Sequence[pa.Array]]:
        """The arrays of one page, or pages of one each if they do not fit into one."""
        if self._stay_apart(arrays):
            yield arrays
        else:
            yield from ([array] for array in _joined(arrays))

    def _stay_apart(self, arrays: list[pa.Array]) -> bool:
        """Whether arrays need not be joined to become a page."""
        from glaive.encodings.writing.windows import can_be_windows

        return self.node.kind == "leaf" and can_be_windows(arrays)

    def _weight(self, array: pa.Array) -> int:
        """Bytes of an array, at least a bit per row: levels take memory, too."""
        kind, rows = array.type, len(array)
        wanted: Any = self.node.type
        if kind.equals(wanted):
            bits = self.bits
        elif is_passed_through(kind, wanted):
            return max(decoded_bytes(array), 1)
        else:
            bits = value_bits(kind)
        size = int(array.nbytes) if bits is None else rows * bits // 8
        return max(size, rows // 8, 1)


def value_bits(kind: pa.DataType) -> int | None:
    """Bits of a value of a fixed-width type, None for other types and nulls."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return None if pa.types.is_nested(kind) or pa.types.is_null(kind) else leaf_bits(kind)


def _joined(arrays: list[pa.Array]) -> list[pa.Array]:
    """The joined array, or the given ones if they do not fit into one."""
    if len({array.type for array in arrays}) > 1:  # text with a dictionary, and without
        plain: Any = next(array.type for array in arrays if not pa.types.is_dictionary(array.type))
        arrays = [
            decode_dictionary(array) if pa.types.is_dictionary(array.type) else array
            for array in arrays
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
