"""The parsed and checked message of a sparse structure, and reading its sequences.

Specification: "Sparse structure" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.encodings.integer_sequence import read_numbers
from glaive.encodings.levels.sparse import ListSlots, Validity
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.registry import read_encoding
from glaive.errors import CorruptFileError
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, Where

__all__ = ["MAX_LISTED", "MAX_SLOTS", "LayerLayout", "ListLayout", "NumberLayout", "ValidityLayout"]

MAX_SLOTS = 2**32 - 1
"""Slots of a layer at most."""

MAX_LISTED = 2**28
"""Numbers of a sequence at most: 2 GiB. A few bytes can describe any number of them."""

_BITS = 64
_NULL_POSITIONS, _VALID_POSITIONS = 1, 2

Buffers = Iterator[pa.Buffer]


class NumberLayout(NamedTuple):
    """A sequence of 64-bit numbers, not read yet."""

    encoding: ValueEncoding
    length: int

    @classmethod
    def of(cls, encoding: Any, count: int, slots: int, name: str, where: Where) -> Self:
        """Check that ``count`` numbers can be listed for ``slots`` slots."""
        if count > min(slots, MAX_LISTED):
            raise CorruptFileError(
                name,
                expected=f"at most {MAX_LISTED}, and at most {slots}, one per slot",
                found=str(count),
                where=where,
            )
        return cls(read_encoding(encoding, where), count)

    @property
    def buffers(self) -> int:
        """Buffers of the sequence: none where the message describes all numbers."""
        return int(self.encoding.has_payload)

    def read(self, buffers: Buffers, name: str, where: Where) -> NDArray[Any]:
        """Take the sequence's buffer, if it has one, and decode the numbers."""
        data = next(buffers) if self.encoding.has_payload else pa.py_buffer(b"")
        return read_numbers(self.encoding, data, self.length, _BITS, name, where)

    def read_positions(self, buffers: Buffers, slots: int, name: str, where: Where) -> Int64s:
        """Ascending positions below ``slots``."""
        positions = self.read(buffers, name, where)
        if len(positions) and (positions[-1] >= slots or (positions[1:] <= positions[:-1]).any()):
            raise CorruptFileError(
                name,
                expected=f"ascending numbers below {slots}",
                found=f"{positions.min()} to {positions.max()} in some order",
                where=where,
            )
        return positions.astype(np.int64)


class ValidityLayout(NamedTuple):
    """Which slots are null, not read yet."""

    positions: NumberLayout
    are_valid: bool

    @classmethod
    def of(cls, message: Any, slots: int, where: Where) -> Self:
        """Parse and check the validity of a layer of ``slots`` slots."""
        if message.meaning not in (_NULL_POSITIONS, _VALID_POSITIONS):
            raise CorruptFileError(
                "meaning of validity",
                expected="1 (null positions) or 2 (valid positions)",
                found=str(message.meaning),
                where=where,
            )
        positions = NumberLayout.of(
            message.positions, message.num_positions, slots, "validity positions", where
        )
        return cls(positions, message.meaning == _VALID_POSITIONS)

    def read(self, buffers: Buffers, slots: int, where: Where) -> Validity:
        """Decode the positions, taking their buffer."""
        positions = self.positions.read_positions(buffers, slots, "validity positions", where)
        return Validity(slots, positions, self.are_valid)


class ListLayout(NamedTuple):
    """The sizes of lists, not read yet."""

    positions: NumberLayout
    counts: NumberLayout
    items: int

    @classmethod
    def of(cls, message: Any, slots: int, where: Where) -> Self:
        """Parse and check the lists of a layer of ``slots`` slots."""
        lists, items = message.num_non_empty_positions, message.num_child_slots
        if items > MAX_SLOTS or items < lists:
            raise CorruptFileError(
                "items of lists",
                expected=f"{lists}, one per list that has any, to {MAX_SLOTS}",
                found=str(items),
                where=where,
            )
        return cls(
            NumberLayout.of(message.non_empty_positions, lists, slots, "positions of lists", where),
            NumberLayout.of(message.counts, lists, slots, "counts of lists", where),
            items,
        )

    def read(self, buffers: Buffers, slots: int, where: Where) -> ListSlots:
        """Decode positions, counts and validity, taking their buffers in this order."""
        positions = self.positions.read_positions(buffers, slots, "positions of lists", where)
        counts = self.counts.read(buffers, "counts of lists", where)
        ends = np.zeros(len(counts) + 1, np.uint64)
        # Checked before the sum, so that it cannot wrap around.
        good = not len(counts) or (counts.min() > 0 and counts.max() <= self.items)
        if good:
            np.cumsum(counts, out=ends[1:])
        if not good or ends[-1] != self.items:
            raise CorruptFileError(
                "counts of lists",
                expected=f"{len(counts)} numbers above 0 that add up to {self.items}",
                found="others",
                where=where,
            )
        return ListSlots(positions, ends.astype(np.int64))


class LayerLayout(NamedTuple):
    """One layer of ``slots`` slots, not read yet."""

    slots: int
    validity: ValidityLayout
    lists: ListLayout | None = None
    dimension: int = 1

    @classmethod
    def of(cls, message: Any, slots: int, where: Where) -> Self:
        """Parse a layer of ``slots`` slots; check the lengths of its sequences."""
        name = message.WhichOneof("layer")
        if name is None:
            raise CorruptFileError(
                "layer of a sparse structure", expected="items or lists", found="none", where=where
            )
        if name == "validity":
            return cls(slots, ValidityLayout.of(message.validity, slots, where))
        layer = getattr(message, name)
        validity = ValidityLayout.of(layer.validity, slots, where)
        if name == "list":
            return cls(slots, validity, ListLayout.of(layer, slots, where))
        return cls(slots, validity, None, layer.dimension)

    @property
    def children(self) -> int:
        """Slots of the next layer."""
        return self.slots * self.dimension if self.lists is None else self.lists.items

    @property
    def buffers(self) -> int:
        """Buffers of the layer."""
        count = self.validity.positions.buffers
        if self.lists is not None:
            count += self.lists.positions.buffers + self.lists.counts.buffers
        return count
