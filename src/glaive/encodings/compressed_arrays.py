"""Array encodings of format 2.0 with a dictionary, a constant, fewer bits or packed members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import FixedWidth
from glaive.arrow.build import check_implied, offset_bits, take_block, validity_flags
from glaive.arrow.chunked import as_numpy, dictionary_encoded, take_values
from glaive.arrow.conditions import filled
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.array_encodings import (
    ArrayEncoding,
    Binary,
    BufferRange,
    FixedSizeList,
    Flat,
    Nullable,
    Outlet,
    Source,
    array_encoding,
    buffer_number,
    check_size,
    fixed_bits,
    read_array,
    wrong_type,
)
from glaive.encodings.levels import bitmap_of
from glaive.encodings.predicate import PagePredicate, RowBits, array_matches, match_array
from glaive.encodings.protocol import Fetch, Kept, PageBytes, and_then, join
from glaive.encodings.values.packed_struct import pack_rows, split_rows
from glaive.errors import CapacityError, CorruptFileError, UnsupportedFeatureError
from glaive.format.pb import encodings20_pb2 as pb
from glaive.kernels._bitpack import BLOCK
from glaive.kernels.bitpack import unpack_out_of_line
from glaive.kernels.fsst import SymbolTable, decode_strings
from glaive.kernels.match import test_of_flags
from glaive.kernels.offsets import expand_dictionary
from glaive.kernels.strings import Strings
from glaive.types import (
    MAX_OFFSET,
    ByteRange,
    Flags,
    Int64s,
    UInt8s,
    UInt64s,
    Where,
    as_array,
    as_buffer,
)

T = TypeVar("T")

# --- Dictionary: indices into the distinct values of a page -----------------------------
#
# - Strings and binary: index k > 0 is item k - 1, and index 0 is null.
# - Arrow dictionaries: index k is item k, and a null is an item that is null.
#
# Specification: "Dictionary" in ``docs/format/arrays.md``; message ``Dictionary``.

_MAX_DISTINCT = 99
"""Maximum distinct strings of a page with a dictionary: indices are one byte."""

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
        """Put strings into the page as one-byte indices; ``None`` when too many are distinct."""
        if len(array.slice(0, 4 * _MAX_DISTINCT).unique()) > _MAX_DISTINCT + 1:
            return None
        encoded = dictionary_encoded(array)
        items = encoded.dictionary
        if len(items) > _MAX_DISTINCT:
            return None
        numbers = filled(encoded.indices.cast(pa.int16()), -1)
        indices = (as_numpy(numbers) + 1).astype(np.uint8)
        if not len(items):
            # Readers need an item, here a null that indices ignore.
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
        """Evaluate it once per item, then look for the indices of passing items."""
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
        indices = _filled(self.indices.read(source, start, stop))
        test = test_of_flags(indices.type.bit_width, evaluated.flags)
        return RowBits(match_array(indices, test, source.where))

    def _read_items(self, source: Source) -> Fetch[Any] | Any:
        """Read all items; items that the message alone implies have a limit."""
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
        indices = _filled(indices)
        count, bits = len(indices), indices.type.bit_width
        values = indices.buffers()[1].slice(indices.offset * bits // 8)
        try:
            strings = expand_dictionary(values, bits, count, items.strings)
        except IndexError as error:
            raise _range_error(self.num_items + 1, str(error), where) from None
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
        numbers = as_numpy(_filled(indices))
        if count and not 0 <= int(numbers.min()) <= int(numbers.max()) < self.num_items:
            span = f"indices from {numbers.min()} to {numbers.max()}"
            raise _range_error(self.num_items, span, where)
        if items.valid is not None:
            valid = items.valid[numbers]
            if indices.null_count:
                valid &= np.asarray(validity_flags(indices))
            bitmap, nulls = bitmap_of(valid)
            places = as_buffer(items.places[numbers].astype(numbers.dtype))
            indices = pa.Array.from_buffers(indices.type, count, [bitmap, places], nulls)
        return pa.DictionaryArray.from_arrays(
            indices, items.values, ordered=self.kind.ordered, safe=False
        )


class _Evaluated(NamedTuple):
    """Which indices pass a predicate: kept, as scans evaluate it range by range."""

    predicate: PagePredicate
    flags: Flags


@dataclass(frozen=True, slots=True)
class _Items:
    """Valid items. If some are null: which stored items are valid, and their places among them."""

    values: Any
    valid: Flags | None
    places: Any

    @classmethod
    def of(cls, items: Any) -> Self:
        valid = validity_flags(items)
        if valid is None:
            return cls(items, None, None)
        return cls(items.drop_null(), valid, np.where(valid, valid.cumsum() - 1, 0))


@dataclass(frozen=True, slots=True)
class _Text:
    """Items with an empty item in front: index 0 means null."""

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


def _filled(indices: Any) -> Any:
    """Return indices, 0 for null ones: for strings, 0 means null."""
    return filled(indices, 0)


def _index_bits(message: Any) -> int:
    """Return the width that the innermost encoding of the indices states."""
    while (name := message.WhichOneof("array_encoding")) == "nullable":
        layout = message.nullable.WhichOneof("nullability")
        if layout not in ("no_nulls", "some_nulls"):
            return 0
        message = getattr(message.nullable, layout).values
    if name == "flat":
        return int(message.flat.bits_per_value)
    return int(getattr(getattr(message, name or "flat"), "uncompressed_bits_per_value", 0))


def _range_error(number: int, span: str, where: Where) -> CorruptFileError:
    return CorruptFileError(
        "dictionary indices", expected=f"numbers below {number}", found=span, where=where
    )


# --- Constant: one value for all rows; read, never written ------------------------------
#
# Specification: "Constant" in ``docs/format/arrays.md``; message ``Constant``.


@array_encoding
@dataclass(frozen=True, slots=True)
class Constant(ArrayEncoding):
    """The bytes of one value, as a fixed-width number or as a string."""

    wire_name: ClassVar[str] = "constant"

    kind: pa.DataType
    value: bytes

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``Constant``; a fixed-width value must have the width of the type."""
        value, bits = message.value, fixed_bits(kind)
        fits = offset_bits(kind) is not None if bits is None else len(value) == (bits + 7) // 8
        if not fits:
            raise wrong_type(kind, f"{len(value)} bytes", page.where)
        return cls(kind, value)

    def implied_bytes(self, count: int) -> int:
        """See the contract."""
        bits = fixed_bits(self.kind)
        return count * (8 + len(self.value)) if bits is None else (count * bits + 7) // 8

    @property
    def all_equal(self) -> bool:
        """See the contract."""
        return True

    def read(self, source: Source, start: int, stop: int) -> Any:
        """Repeat the value."""
        count, bits = stop - start, offset_bits(self.kind)
        if bits is None:
            return self._fixed(count)
        # Arrow would accept offsets that wrap around.
        check_implied(count, 8 * len(self.value), self.kind)
        offsets = as_buffer(np.array([0, len(self.value)], f"<i{bits // 8}"))
        buffers = [None, offsets, pa.py_buffer(self.value)]
        value = pa.Array.from_buffers(self.kind, 1, buffers, 0)
        return take_values(value, np.zeros(count, np.int64))

    def _fixed(self, count: int) -> Any:
        """Repeat a value of fixed width. Avoid positions, which may take far more."""
        width = fixed_bits(self.kind) or 0
        check_implied(count, width, self.kind)
        if width == 1:
            values = np.full((count + 7) // 8, 255 * (self.value[0] & 1), np.uint8)
        else:
            values = np.empty((count, width // 8), np.uint8)
            values[:] = np.frombuffer(self.value, np.uint8)
        return pa.Array.from_buffers(self.kind, count, [None, as_buffer(values)], 0)


# --- Array encodings of format 2.0 for packed and rare values ---------------------------


def check_widths(message: Any, kind: pa.DataType, page: PageBytes) -> tuple[int, int]:
    """Return the packed and plain width of a message; they must suit each other and the type."""
    packed, plain = message.compressed_bits_per_value, message.uncompressed_bits_per_value
    if plain not in (8, 16, 32, 64) or not 0 < packed <= plain or fixed_bits(kind) != plain:
        raise CorruptFileError(
            "array encoding",
            expected=f"values of type {kind} in at most as many bits",
            found=f"{packed} bits for values of {plain} bits",
            where=page.where,
        )
    return packed, plain


@array_encoding
@dataclass(frozen=True, slots=True)
class Bitpacked(ArrayEncoding):
    """``width`` bits per value of ``bits`` bits."""

    wire_name: ClassVar[str] = "bitpacked"

    kind: pa.DataType
    width: int
    bits: int
    buffer: int
    signed: bool

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``Bitpacked``."""
        width, bits = check_widths(message, kind, page)
        number = buffer_number(message.buffer, page)
        check_size(number, 0 if count is None else (count * width + 7) // 8, page)
        return cls(kind, width, bits, number, message.signed)

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read the bytes that hold the values, and unpack."""
        first = start * self.width // 8
        wanted = BufferRange(self.buffer, first, (stop * self.width + 7) // 8 - first)
        skip = start * self.width % 8

        def unpack(buffers: list[pa.Buffer]) -> pa.Array:
            words = self._unpack(as_array(buffers[0]), skip, stop - start)
            return pa.Array.from_buffers(self.kind, stop - start, [None, as_buffer(words)], 0)

        return source.fetch([wanted], unpack)

    def _unpack(self, data: UInt8s, skip: int, count: int) -> Any:
        width = self.width
        at = np.arange(count, dtype=np.int64) * width + skip
        byte, shift = at >> 3, (at & 7).astype(np.uint64)
        padded = np.zeros(len(data) + 16, np.uint8)
        padded[: len(data)] = data
        # A view with every byte position as the start of a word.
        anywhere: UInt64s = np.ndarray((len(data) + 8,), np.uint64, padded.data, strides=(1,))
        words = anywhere[byte] >> shift
        if width > 56:
            high = padded[byte + 8].astype(np.uint64)
            words |= np.where(shift > 0, high << (np.uint64(64) - np.maximum(shift, 1)), 0)
        if width < 64:
            words &= np.uint64((1 << width) - 1)
            if self.signed:
                sign = np.uint64(1 << (width - 1))
                words = (words ^ sign) - sign
        return words.astype(np.dtype(f"<u{self.bits // 8}"))


# --- Bit-packed non-negative integers in FastLanes blocks of 1,024; read, never written -
#
# The buffer holds ``ceil(n / 1024)`` blocks of ``128·w`` bytes; the last one is padded with 0.
#
# Specification: "Bit-packed" in ``docs/format/arrays.md``; message ``BitpackedForNonNeg``.


@array_encoding
@dataclass(frozen=True, slots=True)
class BitpackedForNonNeg(ArrayEncoding):
    """``width`` bits per value of ``bits`` bits; all values are at least 0."""

    wire_name: ClassVar[str] = "bitpacked_for_non_neg"

    kind: pa.DataType
    width: int
    bits: int
    buffer: int

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``BitpackedForNonNeg``."""
        width, bits = check_widths(message, kind, page)
        number = buffer_number(message.buffer, page)
        check_size(number, 0 if count is None else -(-count // BLOCK) * BLOCK * width // 8, page)
        return cls(kind, width, bits, number)

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read and unpack the blocks the values are in."""
        size = self.width * BLOCK // 8
        first, last = start // BLOCK, -(-stop // BLOCK)
        blocks = max(0, last - first)
        wanted = BufferRange(self.buffer, first * size, blocks * size)

        def unpack(buffers: list[pa.Buffer]) -> pa.Array:
            bounds = np.zeros(1, np.int64), np.array([blocks * size], np.int64)
            counts = np.array([blocks * BLOCK], np.int64)
            values = unpack_out_of_line(
                buffers[0], *bounds, counts, self.bits, self.width, source.where
            )
            item = self.bits // 8
            values = values.slice((start - first * BLOCK) * item, (stop - start) * item)
            return pa.Array.from_buffers(self.kind, stop - start, [None, values], 0)

        return source.fetch([wanted], unpack)


# --- FSST: strings whose bytes are codes of a symbol table; read, never written, in 2.0 -
#
# Specification: "FSST" in ``docs/format/arrays.md``; message ``Fsst``.


@array_encoding
@dataclass(frozen=True, slots=True)
class Fsst(ArrayEncoding):
    """``binary`` holds the codes of each value, ``table`` their symbols."""

    wire_name: ClassVar[str] = "fsst"

    kind: pa.DataType
    binary: ArrayEncoding
    table: SymbolTable

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse an ``Fsst``; refuses a damaged symbol table."""
        if offset_bits(kind) is None:
            raise wrong_type(kind, "FSST text", page.where)
        table = SymbolTable.parse(message.symbol_table, page.where)
        return cls(kind, read_array(message.binary, kind, count, page), table)

    def implied_bytes(self, count: int) -> int:
        """See the contract."""
        return self.binary.implied_bytes(count)

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read codes and decode them."""
        return and_then(
            self.binary.read(source, start, stop), lambda encoded: self._decoded(source, encoded)
        )

    def take(self, source: Source, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """Take codes and decode them."""
        return and_then(
            self.binary.take(source, rows), lambda encoded: self._decoded(source, encoded)
        )

    def _decoded(self, source: Source, encoded: Any) -> Any:
        bits = offset_bits(self.kind) or 32
        if encoded.offset:
            encoded = pa.concat_arrays([encoded, encoded.slice(0, 0)])
        validity, offsets, data = encoded.buffers()
        count = len(encoded)
        if not count or data is None:
            return encoded
        strings = decode_strings(self.table, Strings(offsets, bits, data), count, source.where)
        if strings.offset_bits != bits:
            what, instead = f"bytes of {self.kind}", f"large_{self.kind}"
            raise CapacityError.of(strings.data.size, what, where=source.where, instead=instead)
        buffers = [validity, strings.offsets, strings.data]
        return pa.Array.from_buffers(self.kind, count, buffers, encoded.null_count)


# --- Packed struct: the members of a row next to each other, unpadded -------------------
#
# Members have a fixed width and are valid. Their encodings share the buffer of the struct: they
# only give the width of each member.
#
# Specification: "Packed struct" in ``docs/format/arrays.md``; message ``PackedStruct``.


def packed_width(encoding: ArrayEncoding) -> int | None:
    """Return the bytes of a value; ``None`` for nullable values and for values of varying size."""
    if isinstance(encoding, Nullable):
        plain = encoding.validity is None and encoding.values is not None
        return packed_width(encoding.values) if plain and encoding.values is not None else None
    if isinstance(encoding, FixedSizeList):
        inner = packed_width(encoding.items)
        return None if inner is None else inner * encoding.dimension
    if isinstance(encoding, Flat) and encoding.scheme is None and encoding.bits % 8 == 0:
        return encoding.bits // 8
    return None


@array_encoding
@dataclass(frozen=True, slots=True)
class PackedStruct(ArrayEncoding):
    """Rows of ``widths`` bytes per member, in one buffer."""

    wire_name: ClassVar[str] = "packed_struct"

    kind: pa.DataType
    members: tuple[ArrayEncoding, ...]
    widths: tuple[int, ...]
    buffer: int

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``PackedStruct``; it must have the members of the type."""
        if not pa.types.is_struct(kind) or kind.num_fields != len(message.inner):
            raise wrong_type(kind, f"a packed struct of {len(message.inner)} members", page.where)
        number = buffer_number(message.buffer, page)
        members = tuple(
            read_array(inner, member.type, None, page)
            for inner, member in zip(message.inner, kind, strict=True)
        )
        widths = []
        for member in members:
            width = packed_width(member)
            if width is None:
                raise UnsupportedFeatureError(
                    f"packed struct with a member of encoding {member.wire_name!r} (in "
                    f"{page.where}); members are plain values of whole bytes without nulls"
                )
            widths.append(width)
        check_size(number, 0 if count is None else count * sum(widths), page)
        return cls(kind, members, tuple(widths), number)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``PackedStruct``."""
        message = pb.PackedStruct(
            inner=[member.to_wire() for member in self.members],
            buffer=pb.Buffer(buffer_index=self.buffer),
        )
        return pb.ArrayEncoding(packed_struct=message)

    @classmethod
    def write(
        cls,
        kind: pa.DataType,
        members: Sequence[ArrayEncoding],
        values: Sequence[pa.Buffer],
        rows: int,
        out: Outlet,
    ) -> Self:
        """Put rows into the page; member ``i`` has its values back to back in ``values[i]``."""
        widths = tuple(packed_width(member) or 0 for member in members)
        packed = pack_rows(values, widths, rows)
        return cls(kind, tuple(members), widths, out.put(packed))

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read rows and split them into members."""
        stride = sum(self.widths)
        wanted = BufferRange(self.buffer, start * stride, (stop - start) * stride)
        return source.fetch(
            [wanted], lambda buffers: self._parted(buffers[0], stop - start, source.where)
        )

    def take(self, source: Source, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """Take rows and split them into members."""
        if not source.at_hand:
            return ArrayEncoding.take(self, source, rows)
        stride, stop = sum(self.widths), int(rows.max()) + 1

        def gather(buffers: list[pa.Buffer]) -> pa.Array:
            block = take_block(FixedWidth(buffers[0], 8 * stride, stop), rows)
            values = block.values if isinstance(block, FixedWidth) else buffers[0]
            return self._parted(values, len(rows), source.where)

        return source.fetch([BufferRange(self.buffer, 0, stop * stride)], gather)

    def _parted(self, rows: pa.Buffer, count: int, where: Where) -> pa.Array:
        children: list[Any] = []
        parts = split_rows(rows, self.widths, count)
        for encoding, own in zip(self.members, parts, strict=True):
            page = PageBytes((ByteRange(0, own.size),), [own], count, where)
            children.append(_renumbered(encoding).read(Source(page), 0, count))
        return pa.Array.from_buffers(self.kind, count, [None], 0, children=children)


def _renumbered(encoding: ArrayEncoding) -> ArrayEncoding:
    """Return the same encoding, for a page whose only buffer is this member."""
    if isinstance(encoding, Nullable) and encoding.values is not None:
        return Nullable(encoding.kind, None, _renumbered(encoding.values))
    if isinstance(encoding, FixedSizeList):
        return FixedSizeList(encoding.kind, encoding.dimension, _renumbered(encoding.items))
    if isinstance(encoding, Flat):
        return Flat(encoding.kind, encoding.bits, 0)
    return encoding


# --- Struct: the header column of a struct, only a number of rows -----------------------
#
# The members are columns of their own. Structs of 2.0 are always valid.
#
# Specification: "Struct" in ``docs/format/arrays.md``; message ``SimpleStruct``.

_EMPTY = pa.struct([])


@array_encoding
@dataclass(frozen=True, slots=True)
class SimpleStruct(ArrayEncoding):
    """A number of rows; decodes to empty structs."""

    wire_name: ClassVar[str] = "struct"
    structural: ClassVar[bool] = True

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Return the header; a ``SimpleStruct`` is an empty message."""
        return cls()

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``SimpleStruct``."""
        return pb.ArrayEncoding(struct=pb.SimpleStruct())

    def read(self, source: Source, start: int, stop: int) -> pa.Array:
        """Return one struct per requested row."""
        return pa.StructArray.from_buffers(_EMPTY, stop - start, [None], 0)

    def take(self, source: Source, rows: Int64s) -> pa.Array:
        """Return one struct per requested row."""
        return self.read(source, 0, len(rows))
