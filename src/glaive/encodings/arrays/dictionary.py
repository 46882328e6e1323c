"""Dictionary: indices into the distinct values of a page.

=================== ========================================= ======================
column type         index                                     null
=================== ========================================= ======================
string, binary      k > 0 is item k − 1                       index 0
Arrow dictionary    k is item k                               an item that is null
=================== ========================================= ======================

Specification: "Dictionary" in ``docs/format/arrays.md``; message ``Dictionary``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.build import offset_bits, validity_flags
from glaive.arrow.dictionaries import dictionary_encoded
from glaive.dataclass import dataclass
from glaive.encodings.array_protocol import ArrayEncoding, Outlet, Source, wrong_type
from glaive.encodings.arrays.binary import Binary
from glaive.encodings.arrays.flat import Flat
from glaive.encodings.arrays.nullable import Nullable
from glaive.encodings.fetch import Fetch, and_then, join
from glaive.encodings.kept import Kept
from glaive.encodings.predicate import PagePredicate, RowBits, array_matches, match_array
from glaive.encodings.protocol import PageBytes
from glaive.encodings.registry import array_encoding, read_array
from glaive.errors import CapacityError, CorruptFileError
from glaive.format.pb import encodings20_pb2 as pb
from glaive.kernels.dictionary import expand_dictionary
from glaive.kernels.match import test_of_flags
from glaive.kernels.strings import Strings
from glaive.memory import as_array, as_buffer
from glaive.named_tuple import NamedTuple
from glaive.types import MAX_OFFSET, Flags, Int64s, Where

__all__ = ["Dictionary"]

_MAX_DISTINCT = 99
"""A page of more distinct strings gets no dictionary: indices are one byte."""

_UNSIGNED = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


@array_encoding
@dataclass(frozen=True, slots=True)
class Dictionary(ArrayEncoding):
    """``indices`` into ``num_items`` ``items``, which are decoded once per page."""

    wire_name: ClassVar[str] = "dictionary"

    kind: Any
    indices: ArrayEncoding
    items: ArrayEncoding
    num_items: int

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``Dictionary``; the type determines which of the two layouts it has."""
        index: pa.DataType
        if pa.types.is_dictionary(kind):
            index, value = kind.index_type, kind.value_type
        elif offset_bits(kind) is not None:
            bits = _index_bits(message.indices)
            if bits not in _UNSIGNED:
                raise CorruptFileError(
                    "dictionary indices",
                    expected="8, 16, 32 or 64 bits",
                    found=f"{bits} bits",
                    where=page.where,
                )
            index, value = _UNSIGNED[bits], kind
        else:
            raise wrong_type(kind, "a dictionary", page.where)
        number = message.num_dictionary_items
        return cls(
            kind,
            read_array(message.indices, index, count, page),
            read_array(message.items, value, number, page),
            number,
        )

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``Dictionary``."""
        message = pb.Dictionary(
            indices=self.indices.to_wire(),
            items=self.items.to_wire(),
            num_dictionary_items=self.num_items,
        )
        return pb.ArrayEncoding(dictionary=message)

    @classmethod
    def write_text(cls, array: Any, out: Outlet) -> Self | None:
        """Put strings into the page as one-byte indices; None when too many are distinct."""
        if len(array.slice(0, 4 * _MAX_DISTINCT).unique()) > _MAX_DISTINCT + 1:
            return None
        encoded = dictionary_encoded(array)
        items = encoded.dictionary
        if len(items) > _MAX_DISTINCT:
            return None
        numbers = pc.fill_null(encoded.indices.cast(pa.int16()), -1)
        indices = (np.asarray(numbers) + 1).astype(np.uint8)
        if not len(items):
            # Readers need an item: a null one, to which no index points.
            items = pa.nulls(1, array.type)
        return cls(
            array.type,
            Nullable(pa.uint8(), None, Flat.write(pa.uint8(), as_buffer(indices), out)),
            Binary.write(items, out),
            len(items),
        )

    def implied_bytes(self, count: int) -> int:
        """See the contract."""
        return self.indices.implied_bytes(count) + self.items.implied_bytes(self.num_items)

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read the indices, and the items unless they are kept."""
        return self._with_items(source, self.indices.read(source, start, stop))

    def take(self, source: Source, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """Take the indices, and read the items unless they are kept."""
        return self._with_items(source, self.indices.take(source, rows))

    def find(
        self, source: Source, predicate: PagePredicate, start: int, stop: int
    ) -> RowBits | None:
        """Evaluate it once per item, then look for the indices of those that pass."""
        if not source.at_hand:
            return None
        if pa.types.is_dictionary(self.kind) or predicate.every is not None:
            return array_matches(self.read(source, start, stop), predicate, source.where)
        evaluated: _Evaluated | None = source.kept.get(_Evaluated)
        if evaluated is None or not evaluated.predicate.same(predicate):
            items = self._read_items(source)
            entries = predicate.test_entries(items)
            flags = np.append(entries.nulls, entries.flags)
            evaluated = source.kept[_Evaluated] = _Evaluated(predicate, flags)
        indices = _of_text(self.indices.read(source, start, stop))
        test = test_of_flags(indices.type.bit_width, evaluated.flags)
        return RowBits(match_array(indices, test, source.where))

    def _read_items(self, source: Source) -> Fetch[Any] | Any:
        """All items: those that the message alone tells have a limit."""
        source.check_implied(self.items.implied_bytes(self.num_items))
        return self.items.read(source, 0, self.num_items)

    def _with_items(self, source: Source, indices: Any) -> Fetch[pa.Array] | pa.Array:
        text = not pa.types.is_dictionary(self.kind)
        kept: Kept[Any] = source.kept.setdefault(self, Kept())
        items = kept.get()
        if items is None:

            def keep(read: Any) -> Any:
                made = _Text.of(read) if text else _Items.of(read)
                stored = sum(part.size for part in source.page.ranges)
                return kept.keep(made, read.nbytes, stored)

            items = and_then(self._read_items(source), keep)

        def finish(parts: list[Any]) -> pa.Array:
            build = self._text if text else self._dictionary
            return build(parts[0], parts[1], source.where)

        return join([indices, items], finish)

    def _text(self, indices: Any, items: _Text, where: Where) -> pa.Array:
        indices = _of_text(indices)
        count, bits = len(indices), indices.type.bit_width
        values = indices.buffers()[1].slice(indices.offset * bits // 8)
        try:
            strings = expand_dictionary(values, bits, count, items.strings)
        except IndexError as error:
            raise _beyond(self.num_items + 1, str(error), where) from None
        flags = items.valid[as_array(values, np.dtype(f"<u{bits // 8}"))[:count]]
        nulls = count - int(np.count_nonzero(flags))
        validity = as_buffer(np.packbits(flags, bitorder="little")) if nulls else None
        wide = offset_bits(self.kind)
        offsets = strings.offsets
        if wide == 32 and strings.data.size > MAX_OFFSET:  # a single value
            what, instead = f"bytes of {self.kind}", f"large_{self.kind}"
            raise CapacityError.of(strings.data.size, what, where=where, instead=instead)
        if strings.offset_bits != wide:
            ends = as_array(offsets, np.dtype(f"<i{strings.offset_bits // 8}"))
            offsets = as_buffer(ends.astype(f"<i{(wide or 32) // 8}"))
        return pa.Array.from_buffers(self.kind, count, [validity, offsets, strings.data], nulls)

    def _dictionary(self, indices: Any, items: _Items, where: Where) -> pa.Array:
        count = len(indices)
        has_nulls = indices.null_count > 0
        # Arrow would make floats of integers with nulls.
        filled = indices.fill_null(0) if has_nulls else indices
        numbers = np.asarray(filled) if count else np.empty(0, np.int64)
        if count and not 0 <= int(numbers.min()) <= int(numbers.max()) < self.num_items:
            span = f"indices from {numbers.min()} to {numbers.max()}"
            raise _beyond(self.num_items, span, where)
        if items.positions is not None:
            positions = items.positions[numbers.astype(np.int64)]
            if has_nulls:
                positions[np.asarray(indices.is_null())] = -1
            indices = pa.array(positions, mask=positions < 0).cast(indices.type)
        return pa.DictionaryArray.from_arrays(
            indices, items.values, ordered=self.kind.ordered, safe=False
        )


class _Evaluated(NamedTuple):
    """Which indices pass a predicate: kept, as scans evaluate it range by range."""

    predicate: PagePredicate
    flags: Flags


@dataclass(frozen=True, slots=True)
class _Items:
    """Items that are not null, and the position of each stored one among them (-1: null)."""

    values: Any
    positions: Int64s | None

    @classmethod
    def of(cls, items: Any) -> Self:
        valid = validity_flags(items)
        if valid is None:
            return cls(items, None)
        return cls(items.drop_null(), np.where(valid, np.cumsum(valid) - 1, -1))


@dataclass(frozen=True, slots=True)
class _Text:
    """Items with an empty one in front, the null that index 0 stands for."""

    strings: Strings
    valid: Any

    @classmethod
    def of(cls, items: Any) -> Self:
        bits = offset_bits(items.type) or 32
        _, offsets, data = items.buffers()
        ends = as_array(offsets, np.dtype(f"<i{bits // 8}"))[: len(items) + 1]
        own = validity_flags(items)
        valid = np.ones(len(items) + 1, np.bool_)
        valid[0] = False
        if own is not None:
            valid[1:] = own
        return cls(Strings(as_buffer(np.concatenate((ends[:1], ends))), bits, data), valid)


def _of_text(indices: Any) -> Any:
    """Indices into the items of strings: of those that are null the one that stands for a null."""
    return indices.fill_null(0) if indices.null_count else indices


def _index_bits(message: Any) -> int:
    """Width that the innermost encoding of the indices states."""
    while (name := message.WhichOneof("array_encoding")) == "nullable":
        layout = message.nullable.WhichOneof("nullability")
        if layout not in ("no_nulls", "some_nulls"):
            return 0
        message = getattr(message.nullable, layout).values
    if name == "flat":
        return int(message.flat.bits_per_value)
    return int(getattr(getattr(message, name or "flat"), "uncompressed_bits_per_value", 0))


def _beyond(number: int, span: str, where: Where) -> CorruptFileError:
    return CorruptFileError(
        "dictionary indices", expected=f"numbers below {number}", found=span, where=where
    )
