"""Array encodings that format 2.0 writes: pages are trees of them."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.blocks import pack_flags, slice_bits
from glaive.arrow.build import all_null, check_implied, null_bytes, offset_bits, validity_flags
from glaive.arrow.chunked import dictionary_encoded, take_values
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.array_protocol import (
    ArrayEncoding,
    BufferRange,
    Outlet,
    Source,
    buffer_number,
    check_size,
    wrong_type,
)
from glaive.encodings.compression import Scheme, compress, decompress
from glaive.encodings.predicate import (
    PagePredicate,
    RowBits,
    all_or_none,
    array_matches,
    match_array,
)
from glaive.encodings.protocol import Fetch, Kept, PageBytes, and_then, join
from glaive.encodings.registry import array_encoding, read_array
from glaive.errors import CapacityError, CorruptFileError, UnsupportedFeatureError
from glaive.format.pb import encodings20_pb2 as pb
from glaive.kernels._addresses import check_apart
from glaive.kernels.full_zip import gather_ranges
from glaive.kernels.match import test_of_flags
from glaive.kernels.offsets import (
    NullableOffsets,
    Spans,
    decode_end_offsets,
    encode_end_offsets,
    expand_dictionary,
    pair_end_offsets,
)
from glaive.kernels.strings import Strings
from glaive.types import MAX_OFFSET, MAX_WIDTH, Flags, Int64s, Where, as_array, as_buffer

_SCHEMES: dict[str, Scheme] = {"zstd": "zstd", "lz4": "lz4"}
_PLAIN = "none"


@array_encoding
@dataclass(frozen=True, slots=True)
class Flat(ArrayEncoding):
    """Plain values of ``kind``; read without a copy unless compressed."""

    wire_name: ClassVar[str] = "flat"
    views: ClassVar[bool] = True

    kind: pa.DataType
    bits: int
    buffer: int
    scheme: Scheme | None = None

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``Flat``; its width must be that of the type."""
        bits = message.bits_per_value
        wanted = fixed_bits(kind)
        if bits != wanted:
            raise CorruptFileError(
                "array encoding",
                expected=f"values of type {kind}"
                + (f" ({wanted} bits)" if wanted is not None else ""),
                found=f"values of {bits} bits",
                where=page.where,
            )
        scheme = None
        if message.HasField("compression") and message.compression.scheme != _PLAIN:
            scheme = _SCHEMES.get(message.compression.scheme)
            if scheme is None:
                raise UnsupportedFeatureError(
                    f"compression scheme {message.compression.scheme!r} (in {page.where}); this "
                    f"reader knows {', '.join(_SCHEMES)}"
                )
        number = buffer_number(message.buffer, page)
        if scheme is None and count is not None:
            check_size(number, (count * bits + 7) // 8, page)
        return cls(kind, bits, number, scheme)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``Flat``."""
        message = pb.Flat(bits_per_value=self.bits, buffer=pb.Buffer(buffer_index=self.buffer))
        if self.scheme is not None:
            message.compression.scheme = self.scheme
        return pb.ArrayEncoding(flat=message)

    @classmethod
    def write(
        cls,
        kind: pa.DataType,
        values: pa.Buffer,
        out: Outlet,
        scheme: Scheme | None = None,
        level: int | None = None,
    ) -> Self:
        """Put the values of an Arrow buffer into the page, compressed on request."""
        if scheme is not None and values.size:
            bounds = np.zeros(1, np.int64), np.array([values.size], np.int64)
            values, _ = compress(scheme, level, values, *bounds)
        else:
            scheme = None
        bits = fixed_bits(kind)
        return cls(kind, 0 if bits is None else bits, out.put(values), scheme)

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """View the values; booleans keep an offset of up to 7."""
        first = start * self.bits // 8
        size = (stop * self.bits + 7) // 8 - first
        if self.scheme is None:
            ranges = [BufferRange(self.buffer, first, size)]
            return source.fetch(ranges, lambda buffers: self._array(buffers[0], start, stop))
        kept: Kept[pa.Buffer] = source.kept.setdefault(self, Kept())
        plain = kept.get()
        if plain is not None:
            return self._part(source, plain, first, size, start, stop)
        whole = BufferRange(self.buffer, 0, source.page.ranges[self.buffer].size)

        def unpack(buffers: list[pa.Buffer]) -> pa.Array:
            bounds = np.zeros(1, np.int64), np.array([buffers[0].size], np.int64)
            plain, _ = decompress(self.scheme or "zstd", buffers[0], *bounds, source.where)
            # A stream would keep all values of the file.
            kept.keep_latest(plain, plain.size, buffers[0].size, source.latest, source.page)
            return self._part(source, plain, first, size, start, stop)

        return source.fetch([whole], unpack)

    def _part(
        self, source: Source, plain: pa.Buffer, first: int, size: int, start: int, stop: int
    ) -> pa.Array:
        if first + size > plain.size:
            raise CorruptFileError(
                f"page buffer {self.buffer}",
                expected=f"at least {first + size} bytes when decompressed",
                found=f"{plain.size}",
                where=source.where,
            )
        return self._array(plain.slice(first, size), start, stop)

    def _array(self, values: pa.Buffer, start: int, stop: int) -> pa.Array:
        # Lance before 0.14 did not align buffers; Arrow needs aligned numbers.
        width = self.bits // 8
        if width in (2, 4, 8, 16, 32) and values.address % min(width, 8):
            values = pa.py_buffer(values.to_pybytes())
        offset = start % 8 if self.bits == 1 else 0
        return pa.Array.from_buffers(self.kind, stop - start, [None, values], 0, offset)


def fixed_bits(kind: pa.DataType) -> int | None:
    """Bits of one value of a plain fixed-width type; None for all others."""
    if (
        pa.types.is_primitive(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_decimal(kind)
    ):
        return int(kind.bit_width)
    return None


# --- Nullable: a validity bitmap before the values --------------------------------------
# ========== ============================================ layout     buffers ==========
# ============================================ no_nulls   those of the values some_nulls one bit
# per value (1 = valid), then the values all_nulls  none ==========
# ============================================
#
# Specification: "Nullable" in ``docs/format/arrays.md``; message ``Nullable``.


@array_encoding
@dataclass(frozen=True, slots=True)
class Nullable(ArrayEncoding):
    """``values``, null where ``validity`` has a 0; without ``values`` everything is null."""

    wire_name: ClassVar[str] = "nullable"

    kind: pa.DataType
    validity: ArrayEncoding | None
    values: ArrayEncoding | None

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``Nullable`` and its values."""
        layout = message.WhichOneof("nullability")
        if layout == "all_nulls":
            return cls(kind, None, None)
        if layout is None:
            raise CorruptFileError(
                "nulls",
                expected="no_nulls, some_nulls or all_nulls",
                found="none",
                where=page.where,
            )
        inner = getattr(message, layout)
        validity = None
        if layout == "some_nulls":
            if inner.validity.WhichOneof("array_encoding") != "flat":
                raise CorruptFileError(
                    "validity",
                    expected="a flat encoding of one bit per value",
                    found=f"{inner.validity.WhichOneof('array_encoding') or 'none'}",
                    where=page.where,
                )
            validity = read_array(inner.validity, pa.bool_(), count, page)
        return cls(kind, validity, read_array(inner.values, kind, count, page))

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``Nullable`` around its values."""
        if self.values is None:
            nullable = pb.Nullable(all_nulls=pb.Nullable.AllNull())
        elif self.validity is None:
            nullable = pb.Nullable(no_nulls=pb.Nullable.NoNull(values=self.values.to_wire()))
        else:
            some = pb.Nullable.SomeNull(
                validity=self.validity.to_wire(), values=self.values.to_wire()
            )
            nullable = pb.Nullable(some_nulls=some)
        return pb.ArrayEncoding(nullable=nullable)

    def implied_bytes(self, count: int) -> int:
        """See the contract."""
        if self.values is None:
            return null_bytes(self.kind, count)
        return self.values.implied_bytes(count)

    @property
    def all_equal(self) -> bool:
        """See the contract."""
        return self.values is None or (self.validity is None and self.values.all_equal)

    def read(self, source: Source, start: int, stop: int) -> Fetch[Any] | Any:
        """Read values and validity at once; views of both."""
        if self.values is None:
            return all_null(self.kind, stop - start)
        values = self.values.read(source, start, stop)
        if self.validity is None:
            return values
        return join([values, self.validity.read(source, start, stop)], _with_validity)

    def find(
        self, source: Source, predicate: PagePredicate, start: int, stop: int
    ) -> RowBits | None:
        """Leave it to the values when none is null."""
        if self.values is not None and self.validity is None:
            return self.values.find(source, predicate, start, stop)
        if self.values is None:
            return RowBits(all_or_none(stop - start, passing=predicate.null_passes()))
        return ArrayEncoding.find(self, source, predicate, start, stop)

    def take(self, source: Source, rows: Int64s) -> Fetch[Any] | Any:
        """Take values and validity at once."""
        if self.values is None:
            return all_null(self.kind, len(rows))
        if source.at_hand and self.values.views and not self.values.all_equal:
            return ArrayEncoding.take(self, source, rows)
        values = self.values.take(source, rows)
        if self.validity is None:
            return values
        return join([values, self.validity.take(source, rows)], _with_validity)


def _with_validity(parts: list[Any]) -> Any:
    """Values with the bits of a boolean array as their validity."""
    values, flags = parts
    kind, count = values.type, len(values)
    if pa.types.is_dictionary(kind):
        indices = _with_validity([values.indices, flags])
        return pa.DictionaryArray.from_arrays(indices, values.dictionary, ordered=kind.ordered)
    if values.null_count:
        return pc.if_else(flags, values, pa.scalar(None, kind))
    bitmap = flags.buffers()[1]
    if flags.offset != values.offset:
        # Only booleans are read with an offset, which is that of their flags.
        bitmap = slice_bits(bitmap, flags.offset, count)
    if pa.types.is_fixed_size_list(kind):
        return pa.Array.from_buffers(kind, count, [bitmap], children=[values.values])
    if pa.types.is_struct(kind):
        return pa.Array.from_buffers(kind, count, [bitmap], children=values.flatten())
    buffers = [bitmap, *values.buffers()[1:]]
    return pa.Array.from_buffers(kind, count, buffers, offset=values.offset)


# --- List: the end offset of each list of a page among the items of the child column ----
# A list is valid when its stored end is below ``null_offset_adjustment``; a null list stores the
# end of the list before it plus that number. ``num_items`` items of the child column belong to the
# page, so ends count from 0 in every page.
#
# Specification: "List" in ``docs/format/arrays.md``; message ``List``.


def read_ends(
    ends: ArrayEncoding, source: Source, start: int, stop: int, adjustment: int, bits: int
) -> Fetch[NullableOffsets] | NullableOffsets:
    """Offsets of ``bits`` bits, validity and bounds of values ``start`` to ``stop``.

    The end offset before the first one is read too: there the first value starts.
    """
    skip = 1 if start else 0
    where = source.where
    return and_then(
        ends.read(source, start - skip, stop),
        lambda stored: decode_end_offsets(_words(stored, where), skip, adjustment, bits, where),
    )


def take_ends(
    ends: ArrayEncoding, source: Source, rows: Int64s, adjustment: int
) -> Fetch[Spans] | Spans:
    """Start, size and validity of the values at ``rows``."""
    before = np.maximum(rows - 1, 0)
    steps = [ends.take(source, rows), ends.take(source, before)]

    def pair(taken: list[Any]) -> Spans:
        stored, previous = (_words(array, source.where) for array in taken)
        return pair_end_offsets(previous, stored, rows > 0, adjustment, source.where)

    return join(steps, pair)


def _words(array: Any, where: Where) -> Any:
    """Stored ends as unsigned numbers, without a copy; none of them is null."""
    if array.null_count:
        raise CorruptFileError(
            "ends of values", expected="none that is null", found=f"{array.null_count}", where=where
        )
    words = np.frombuffer(array.buffers()[1] or b"", np.uint64)
    return words[array.offset : array.offset + len(array)]


def write_ends(ends: NullableOffsets, out: Outlet) -> tuple[ArrayEncoding, int]:
    """Put ends into the page; returns their encoding and the null adjustment."""
    stored, adjustment = encode_end_offsets(ends)
    flat = Flat.write(pa.uint64(), stored, out)
    return Nullable(pa.uint64(), None, flat), adjustment


@array_encoding
@dataclass(frozen=True, slots=True)
class List(ArrayEncoding):
    """List offsets of a page; decodes to ``NullableOffsets`` of ``glaive.kernels.offsets``."""

    wire_name: ClassVar[str] = "list"
    structural: ClassVar[bool] = True

    ends: ArrayEncoding
    adjustment: int
    num_items: int
    bits: int

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``List``; ``kind`` decides how wide the offsets become."""
        ends = read_array(message.offsets, pa.uint64(), count, page)
        narrow = pa.types.is_list(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)
        return cls(ends, message.null_offset_adjustment, message.num_items, 32 if narrow else 64)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``List``."""
        message = pb.List(
            offsets=self.ends.to_wire(),
            null_offset_adjustment=self.adjustment,
            num_items=self.num_items,
        )
        return pb.ArrayEncoding(list=message)

    def read(
        self, source: Source, start: int, stop: int
    ) -> Fetch[NullableOffsets] | NullableOffsets:
        """Offsets, validity, and the items they span within the page's."""
        step = read_ends(self.ends, source, start, stop, self.adjustment, self.bits)
        return and_then(step, lambda lists: self._checked(lists, lists.stop, source.where))

    def take(self, source: Source, rows: Int64s) -> Fetch[Spans] | Spans:
        """Start, size and validity of single lists."""

        def checked(lists: Spans) -> Spans:
            ends = lists.starts + lists.sizes
            self._checked(lists, int(ends.max(initial=0)), source.where)
            check_apart("lists", rows, lists.sizes, self.num_items, source.where, "items")
            return lists

        return and_then(take_ends(self.ends, source, rows, self.adjustment), checked)

    def _checked(self, lists: Any, stop: int, where: Where) -> Any:
        if stop > self.num_items:
            raise CorruptFileError(
                "list offsets",
                expected=f"at most {self.num_items} (the items of the page)",
                found=f"{stop}",
                where=where,
            )
        return lists


# --- Binary: strings as their end offsets and their bytes -------------------------------
# ======== ======================================================= buffer   content ========
# ======================================================= indices  one ``u64`` per value: its end,
# plus the adjustment if null bytes    the values back to back, compressed on request ========
# =======================================================
#
# Specification: "Binary" in ``docs/format/arrays.md``; message ``Binary``.


@array_encoding
@dataclass(frozen=True, slots=True)
class Binary(ArrayEncoding):
    """Strings or binary; the bytes are not copied."""

    wire_name: ClassVar[str] = "binary"

    kind: pa.DataType
    bits: int
    ends: ArrayEncoding
    data: ArrayEncoding
    adjustment: int

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``Binary`` and its two buffers."""
        bits = offset_bits(kind)
        if bits is None:
            raise wrong_type(kind, "values of variable width", page.where)
        ends = read_array(message.indices, pa.uint64(), count, page)
        data = read_array(message.bytes, pa.uint8(), None, page)
        return cls(kind, bits, ends, data, message.null_adjustment)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``Binary`` around its two buffers."""
        message = pb.Binary(
            indices=self.ends.to_wire(), bytes=self.data.to_wire(), null_adjustment=self.adjustment
        )
        return pb.ArrayEncoding(binary=message)

    @classmethod
    def write(
        cls, array: Any, out: Outlet, scheme: Scheme | None = None, level: int | None = None
    ) -> Self:
        """Put an array into the page; the bytes of null values are left out."""
        bits = offset_bits(array.type) or 32
        ends, data = _split(array, bits)
        indices, adjustment = write_ends(ends, out)
        values = data.slice(ends.start, ends.stop - ends.start)
        flat = Flat.write(pa.uint8(), values, out, scheme, level)
        return cls(array.type, bits, indices, flat, adjustment)

    def implied_bytes(self, count: int) -> int:
        """See the contract."""
        return self.ends.implied_bytes(count)

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read the end offsets, then the bytes between the first and the last."""

        def with_ends(ends: NullableOffsets) -> Fetch[pa.Array] | pa.Array:
            data = self._read_data(source, ends.start, ends.stop)
            return and_then(data, partial(self._array, ends, stop - start))

        return and_then(
            read_ends(self.ends, source, start, stop, self.adjustment, self.bits), with_ends
        )

    def _read_data(self, source: Source, first: int, last: int) -> Fetch[Any] | Any:
        """Some of the bytes: those that the message alone tells have a limit."""
        source.check_implied(self.data.implied_bytes(last - first))
        return self.data.read(source, first, last)

    def _array(self, ends: NullableOffsets, count: int, data: Any) -> pa.Array:
        buffers = [ends.validity, ends.offsets, _bytes(data)]
        return pa.Array.from_buffers(self.kind, count, buffers, ends.null_count)

    def take(self, source: Source, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """Read the end offsets around the wanted values, then their bytes."""
        if not source.at_hand:
            return ArrayEncoding.take(self, source, rows)

        def with_spans(spans: Spans) -> Fetch[pa.Array] | pa.Array:
            first = int(spans.starts.min())
            last = int((spans.starts + spans.sizes).max())
            return and_then(
                self._read_data(source, first, last),
                partial(self._gathered, source, rows, spans, first),
            )

        return and_then(take_ends(self.ends, source, rows, self.adjustment), with_spans)

    def _gathered(
        self, source: Source, rows: Int64s, spans: Spans, first: int, data: Any
    ) -> pa.Array:
        ends = np.zeros(len(spans.sizes) + 1, np.int64)
        np.cumsum(spans.sizes, out=ends[1:])
        if self.bits == 32 and int(ends[-1]) > MAX_OFFSET:
            what, instead = f"bytes of {self.kind}", f"large_{self.kind}"
            raise CapacityError.of(int(ends[-1]), what, where=source.where, instead=instead)
        gathered = gather_ranges(
            _bytes(data), spans.starts - first, spans.sizes, source.where, rows
        )
        offsets = as_buffer(ends.astype(f"<i{self.bits // 8}"))
        validity = None if spans.valid is None else pack_flags(spans.valid)
        buffers = [validity, offsets, gathered]
        nulls = 0 if validity is None else -1
        return pa.Array.from_buffers(self.kind, len(spans.sizes), buffers, nulls)


def _bytes(data: Any) -> pa.Buffer:
    """Memory of an array of bytes."""
    buffer: pa.Buffer = data.buffers()[1]
    return buffer.slice(data.offset, len(data))


def _split(array: Any, bits: int) -> tuple[NullableOffsets, pa.Buffer]:
    """Offsets with validity, and the bytes they point into; null values are empty."""
    count, width = len(array), bits // 8
    validity = None
    if array.null_count:
        lengths = np.asarray(pc.binary_length(array).fill_null(0)).astype(np.int64)
        validity = slice_bits(array.buffers()[0], array.offset, count)
        stored = np.frombuffer(array.buffers()[1], f"<i{width}")
        own = stored[array.offset : array.offset + count + 1]
        if int(own[-1]) - int(own[0]) != int(lengths.sum()):
            # Null slots have bytes: leave them out.
            empty = pa.scalar("" if "string" in str(array.type) else b"", array.type)
            array = pc.fill_null(array, empty)
    _, offsets, data = array.buffers()
    if data is None:
        data = pa.py_buffer(b"")
    if offsets is None or not count:
        return NullableOffsets(pa.py_buffer(bytes(width)), bits, None, 0, 0, 0), data
    offsets = offsets.slice(array.offset * width, (count + 1) * width)
    bounds = np.frombuffer(offsets, f"<i{width}")
    return NullableOffsets(offsets, bits, validity, 0, int(bounds[0]), int(bounds[-1])), data


# --- Fixed-size list: ``dimension`` items per value, null lists included ----------------
# The validity of the lists is that of the ``Nullable`` outside, the validity of the items that of
# the ``Nullable`` inside.
#
# Specification: "Fixed-size list" in ``docs/format/arrays.md``; message ``FixedSizeList``.


@array_encoding
@dataclass(frozen=True, slots=True)
class FixedSizeList(ArrayEncoding):
    """Lists of ``dimension`` ``items`` each; views of the items."""

    wire_name: ClassVar[str] = "fixed_size_list"
    views: ClassVar[bool] = True

    kind: pa.DataType
    dimension: int
    items: ArrayEncoding

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``FixedSizeList``; its dimension must be that of the type."""
        size = message.dimension
        if not pa.types.is_fixed_size_list(kind) or kind.list_size != size:
            raise wrong_type(kind, f"lists of {size} items", page.where)
        if message.has_validity:
            raise UnsupportedFeatureError(
                f"fixed-size lists with a validity of their own (in {page.where}): the file was "
                "probably written by a development version of Lance"
            )
        items = read_array(
            message.items, kind.value_type, None if count is None else count * size, page
        )
        return cls(kind, size, items)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``FixedSizeList`` around its items."""
        message = pb.FixedSizeList(dimension=self.dimension, items=self.items.to_wire())
        return pb.ArrayEncoding(fixed_size_list=message)

    def implied_bytes(self, count: int) -> int:
        """See the contract."""
        return self.items.implied_bytes(count * self.dimension)

    @property
    def all_equal(self) -> bool:
        """See the contract."""
        return self.items.all_equal

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read the items of the lists."""
        size = self.dimension
        items = self.items.read(source, start * size, stop * size)
        return and_then(items, lambda values: self._lists(values, stop - start))

    def _lists(self, items: pa.Array, count: int) -> pa.Array:
        return pa.Array.from_buffers(self.kind, count, [None], 0, children=[items])


# --- Fixed-size binary: strings of one length, without offsets; read, never written -----
# Lance before 2.1 used it for pages whose strings all have the same length.
#
# Specification: "Fixed-size binary" in ``docs/format/arrays.md``; message ``FixedSizeBinary``.


@array_encoding
@dataclass(frozen=True, slots=True)
class FixedSizeBinary(ArrayEncoding):
    """Strings of ``width`` bytes each; the bytes are not copied."""

    wire_name: ClassVar[str] = "fixed_size_binary"

    kind: pa.DataType
    data: ArrayEncoding
    width: int
    per_byte: bool

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``FixedSizeBinary``; its items are single bytes or whole values."""
        width = message.byte_width
        per_byte = message.bytes.flat.bits_per_value == 8
        most = MAX_OFFSET if per_byte else MAX_WIDTH
        if offset_bits(kind) is None or not 0 < width <= most:
            raise wrong_type(kind, f"strings of {width} bytes", page.where)
        value, total = pa.binary(width), count
        if per_byte:
            value, total = pa.uint8(), None if count is None else count * width
        return cls(kind, read_array(message.bytes, value, total, page), width, per_byte)

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``FixedSizeBinary``."""
        message = pb.FixedSizeBinary(bytes=self.data.to_wire(), byte_width=self.width)
        return pb.ArrayEncoding(fixed_size_binary=message)

    def implied_bytes(self, count: int) -> int:
        """See the contract."""
        return self.data.implied_bytes(count * self.width if self.per_byte else count)

    def read(self, source: Source, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """Read the bytes and compute the offsets."""
        step = self.width if self.per_byte else 1
        data = self.data.read(source, start * step, stop * step)
        return and_then(data, lambda values: self._array(source, values, stop - start))

    def _array(self, source: Source, data: Any, count: int) -> pa.Array:
        bits = offset_bits(self.kind) or 32
        if bits == 32 and count * self.width > MAX_OFFSET:
            raise CapacityError.of(count * self.width, f"bytes of {self.kind}", where=source.where)
        offsets = np.arange(count + 1, dtype=f"<i{bits // 8}") * self.width
        buffers = [None, as_buffer(offsets.astype(f"<i{bits // 8}")), data.buffers()[1]]
        return pa.Array.from_buffers(self.kind, count, buffers, 0)


# --- Dictionary: indices into the distinct values of a page -----------------------------
# =================== ========================================= ====================== column type
# index                                     null ===================
# ========================================= ====================== string, binary      k > 0 is
# item k − 1                       index 0 Arrow dictionary    k is item k
# an item that is null =================== =========================================
# ======================
#
# Specification: "Dictionary" in ``docs/format/arrays.md``; message ``Dictionary``.

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


# --- Constant: one value for all rows; read, never written ------------------------------
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

    def to_wire(self) -> pb.ArrayEncoding:
        """Write a ``Constant``."""
        return pb.ArrayEncoding(constant=pb.Constant(value=self.value))

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
        # Arrow would not notice offsets that wrap around.
        check_implied(count, 8 * len(self.value), self.kind)
        offsets = as_buffer(np.array([0, len(self.value)], f"<i{bits // 8}"))
        buffers = [None, offsets, pa.py_buffer(self.value)]
        value = pa.Array.from_buffers(self.kind, 1, buffers, 0)
        return take_values(value, np.zeros(count, np.int64))

    def _fixed(self, count: int) -> Any:
        """A value of fixed width, repeated without positions, which may take far more."""
        width = fixed_bits(self.kind) or 0
        check_implied(count, width, self.kind)
        if width == 1:
            values = np.full((count + 7) // 8, 255 * (self.value[0] & 1), np.uint8)
        else:
            values = np.empty((count, width // 8), np.uint8)
            values[:] = np.frombuffer(self.value, np.uint8)
        return pa.Array.from_buffers(self.kind, count, [None, as_buffer(values)], 0)
