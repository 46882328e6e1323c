"""Array encodings: pages of format 2.0 are trees of them; the contract, and the plain ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.blocks import pack_flags, slice_bits
from glaive.arrow.build import all_null, null_bytes, offset_bits
from glaive.arrow.chunked import as_numpy, concat_arrays, take_values
from glaive.arrow.conditions import filled
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.compression import Scheme, check_decoded, compress, decompress
from glaive.encodings.predicate import PagePredicate, RowBits, all_or_none, array_matches
from glaive.encodings.protocol import Fetch, Kept, Latest, PageBytes, RowRuns, and_then, join
from glaive.encodings.registry import C, known_class, register
from glaive.errors import CapacityError, CorruptFileError, UnsupportedFeatureError
from glaive.format.pb import encodings20_pb2 as pb
from glaive.kernels._addresses import check_apart
from glaive.kernels.full_zip import gather_ranges
from glaive.kernels.offsets import (
    NullableOffsets,
    Spans,
    decode_end_offsets,
    encode_end_offsets,
    pair_end_offsets,
)
from glaive.types import MAX_OFFSET, MAX_WIDTH, ByteRange, Int64s, Where, as_buffer

T = TypeVar("T")


class BufferRange(NamedTuple):
    """``size`` bytes of buffer number ``buffer`` of a page, from byte ``start`` on."""

    buffer: int
    start: int
    size: int


@dataclass(slots=True)
class Source:
    """The buffers of one page, and the decoded parts that later calls use again."""

    page: PageBytes
    latest: Latest = field(default_factory=Latest)
    """Values that the column keeps for one page only."""

    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def where(self) -> Where:
        """The page, for messages."""
        return self.page.where

    @property
    def at_hand(self) -> bool:
        """Whether the buffers are in memory already."""
        return self.page.at_hand is not None

    def check_implied(self, size: int) -> None:
        """Check memory beyond the bytes of the page against the limit of a page.

        Raises
        ------
        UnsupportedFeatureError
            It is more, and more than ``USUAL_RATIO`` times the bytes of the page.
        """
        check_decoded(size, sum(part.size for part in self.page.ranges), self.where)

    def fetch(
        self, wanted: Sequence[BufferRange], then: Callable[[list[pa.Buffer]], Fetch[T] | T]
    ) -> Fetch[T] | T:
        """Call ``then`` with the wanted bytes.

        Raises
        ------
        CorruptFileError
            A range exceeds its buffer.
        """
        ranges = self.page.ranges
        for number, start, size in wanted:
            if start < 0 or size < 0 or start + size > ranges[number].size:
                raise CorruptFileError(
                    f"page buffer {number}",
                    expected=f"at least {start + size} bytes",
                    found=f"{ranges[number].size}",
                    where=self.where,
                )
        buffers = None if self.page.unread else self.page.at_hand
        if buffers is not None:
            return then([buffers[number].slice(start, size) for number, start, size in wanted])
        in_file = [ByteRange(ranges[n].offset + start, size) for n, start, size in wanted]
        return Fetch(in_file, then)


def buffer_number(message: Any, page: PageBytes) -> int:
    """Return the number of the page buffer that a wire ``Buffer`` names."""
    if message.buffer_type != 0:
        raise UnsupportedFeatureError(
            f"values outside of their page (in {page.where}); this reader knows page buffers "
            "only. The file was probably written by a newer Lance."
        )
    number: int = message.buffer_index
    if number >= len(page.ranges):
        raise CorruptFileError(
            "number of a page buffer",
            expected=f"below {len(page.ranges)} (the buffers of the page)",
            found=f"{number}",
            where=page.where,
        )
    return number


def check_size(number: int, size: int, page: PageBytes) -> None:
    """Refuse a page whose buffer ``number`` has less than ``size`` bytes."""
    if page.ranges[number].size < size:
        raise CorruptFileError(
            f"page buffer {number}",
            expected=f"at least {size} bytes",
            found=f"{page.ranges[number].size}",
            where=page.where,
        )


def wrong_type(kind: pa.DataType, found: str, where: Where) -> CorruptFileError:
    """Return the error for an encoding of values of another type."""
    expected = f"values of type {kind}"
    return CorruptFileError("array encoding", expected=expected, found=found, where=where)


@dataclass(slots=True)
class Outlet:
    """Collects the buffers of the page that is being written, in file order."""

    buffers: list[Any] = field(default_factory=list)

    def put(self, buffer: Any) -> int:
        """Append a buffer; returns its number."""
        self.buffers.append(buffer)
        return len(self.buffers) - 1


_MAX_SCRATCH_BYTES = 2**20
"""Maximum bytes, beyond the bytes of the page, to make to find rows, or between rows taken."""


class ArrayEncoding(ABC):
    """Arrays ↔ page buffers; subclasses are frozen dataclasses under ``@array_encoding``."""

    wire_name: ClassVar[str]
    """Name of the field in the wire's ``ArrayEncoding`` oneof."""

    views: ClassVar[bool] = False
    """Whether arrays are views of buffers in memory."""

    @property
    def dictionary_encoded(self) -> bool:
        """Whether it gives dictionary arrays."""
        return pa.types.is_dictionary(getattr(self, "kind", None) or pa.null())

    def implied_bytes(self, count: int) -> int:
        """Return the memory of ``count`` values beyond the bytes of the page; 0, the default."""
        return 0

    @property
    def all_equal(self) -> bool:
        """Whether all values are equal, or null, so that any value can replace another."""
        return False

    structural: ClassVar[bool] = False
    """Whether it gives the shape of a nested column instead of values."""

    @classmethod
    @abstractmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Read the configuration from the encoding's own wire message; check it.

        Parameters
        ----------
        kind
            Type of the arrays that it is to decode to.
        count
            Number of values it holds; ``None`` when only other buffers determine it.

        Raises
        ------
        CorruptFileError
            The encoding is for other values, or a buffer is too short for ``count``.
        """

    def to_wire(self) -> pb.ArrayEncoding:
        """Write the configuration, wrapped in ``ArrayEncoding``; the default refuses."""
        raise TypeError(f"array encoding {self.wire_name!r} is read, and not written")

    @abstractmethod
    def read(self, source: Source, start: int, stop: int) -> Fetch[Any] | Any:
        """Return the values ``start`` to ``stop`` as one array, 0 ≤ start ≤ stop ≤ count."""

    def find(
        self, source: Source, predicate: PagePredicate, start: int, stop: int
    ) -> RowBits | None:
        """Return which of the values ``start`` to ``stop`` pass, 0 ≤ start < stop ≤ count.

        ``None`` when reading them is the quickest way. The default reads values of fixed width,
        and values of dictionary columns, when the buffers are in memory.
        """
        if not source.at_hand or not (predicate.any_width or self.dictionary_encoded):
            return None
        if self.implied_bytes(stop - start) > _MAX_SCRATCH_BYTES:
            return None
        return array_matches(self.read(source, start, stop), predicate, source.where)

    def take(self, source: Source, rows: Int64s) -> Fetch[Any] | Any:
        """Return the values at these positions, any order, repeats allowed.

        The default reads the span of the positions when the buffers are in memory. Else it reads
        each run of consecutive positions, and selects from that.
        """
        if self.all_equal:
            return self.read(source, 0, len(rows))
        first, last = int(rows.min()), int(rows.max())
        if source.at_hand and self.implied_bytes(last + 1 - first) <= _MAX_SCRATCH_BYTES:
            return take_values(self.read(source, first, last + 1), rows - first)
        runs = RowRuns.of(rows)
        bounds = zip(
            runs.wanted[runs.first].tolist(), (runs.wanted[runs.last] + 1).tolist(), strict=True
        )
        steps = [self.read(source, first, stop) for first, stop in bounds]
        return and_then(join(steps, concat_arrays), lambda array: take_values(array, runs.order))


# --- Array encodings by the name they have on the wire ----------------------------------

ARRAYS: dict[str, type[ArrayEncoding]] = {}


def array_encoding(cls: C) -> C:
    """Register an array encoding under its ``wire_name``; a class decorator."""
    return register(ARRAYS, "array encodings", cls)


def read_array(
    message: Any, kind: pa.DataType, count: int | None, page: PageBytes, *, top: bool = False
) -> ArrayEncoding:
    """Turn a wire ``ArrayEncoding`` into the encoding of ``count`` values of ``kind``.

    Encodings of the shape of nested columns, which lack values, are allowed at the ``top`` only.

    Raises
    ------
    CorruptFileError
        The name of the encoding is missing, or the encoding is for other values.
    UnsupportedFeatureError
        The encoding is unknown; the error lists the known encodings.
    """
    name = message.WhichOneof("array_encoding")
    home, kind_of = "compressed_arrays", "array encoding"
    cls = ARRAYS.get(name) or known_class(ARRAYS, home, name, kind_of, page.where)
    if cls.structural and not top:
        raise CorruptFileError(
            "array encoding", expected=f"values of type {kind}", found=name, where=page.where
        )
    return cls.from_wire(getattr(message, name), kind, count, page)


# --- Array encodings that format 2.0 writes: pages are trees of them --------------------

_SCHEMES: dict[str, Scheme] = {"zstd": "zstd", "lz4": "lz4"}
_PLAIN = "none"


@array_encoding
@dataclass(frozen=True, slots=True)
class Flat(ArrayEncoding):
    """Plain values of ``kind``; arrays are views unless compressed."""

    wire_name: ClassVar[str] = "flat"
    views: ClassVar[bool] = True

    kind: pa.DataType
    bits: int
    buffer: int
    scheme: Scheme | None = None

    @classmethod
    def from_wire(cls, message: Any, kind: pa.DataType, count: int | None, page: PageBytes) -> Self:
        """Parse a ``Flat``; its width must match the type."""
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
        # Lance before 0.14 left buffers unaligned; Arrow needs aligned numbers.
        width = self.bits // 8
        if width in (2, 4, 8, 16, 32) and values.address % min(width, 8):
            values = pa.py_buffer(values.to_pybytes())
        offset = start % 8 if self.bits == 1 else 0
        return pa.Array.from_buffers(self.kind, stop - start, [None, values], 0, offset)


def fixed_bits(kind: pa.DataType) -> int | None:
    """Return the bits of one value of a plain fixed-width type; ``None`` for all others."""
    if (
        pa.types.is_primitive(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_decimal(kind)
    ):
        return int(kind.bit_width)
    return None


# --- Nullable: a validity bitmap before the values --------------------------------------
#
# - ``no_nulls``: the buffers of the values
# - ``some_nulls``: one bit per value (1 = valid), then the values
# - ``all_nulls``: no buffers
#
# Specification: "Nullable" in ``docs/format/arrays.md``; message ``Nullable``.


@array_encoding
@dataclass(frozen=True, slots=True)
class Nullable(ArrayEncoding):
    """``values``, null where ``validity`` has a 0; everything is null if ``values`` is ``None``."""

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
        """Leave it to the values when all are valid."""
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
    """Return the values with the bits of a boolean array as their validity."""
    values, flags = parts
    kind, count = values.type, len(values)
    if pa.types.is_dictionary(kind):
        indices = _with_validity([values.indices, flags])
        return pa.DictionaryArray.from_arrays(indices, values.dictionary, ordered=kind.ordered)
    if values.null_count:
        return pc.if_else(flags, values, pa.scalar(None, kind))
    bitmap = flags.buffers()[1]
    if flags.offset != values.offset:
        # Only booleans are read with an offset, and their flags have the same offset.
        bitmap = slice_bits(bitmap, flags.offset, count)
    if pa.types.is_fixed_size_list(kind):
        return pa.Array.from_buffers(kind, count, [bitmap], children=[values.values])
    if pa.types.is_struct(kind):
        return pa.Array.from_buffers(kind, count, [bitmap], children=values.flatten())
    buffers = [bitmap, *values.buffers()[1:]]
    return pa.Array.from_buffers(kind, count, buffers, offset=values.offset)


# --- List: the end offset of each list of a page among the items of the child column ----
#
# A list is valid when its stored end is below ``null_offset_adjustment``; a null list stores the
# end of the list before it plus that number. ``num_items`` items of the child column belong to the
# page, so ends count from 0 in every page.
#
# Specification: "List" in ``docs/format/arrays.md``; message ``List``.


def read_ends(
    ends: ArrayEncoding, source: Source, start: int, stop: int, adjustment: int, bits: int
) -> Fetch[NullableOffsets] | NullableOffsets:
    """Return the offsets of ``bits`` bits, validity and bounds of values ``start`` to ``stop``.

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
    both = np.concatenate((np.maximum(rows - 1, 0), rows))

    def pair(taken: Any) -> Spans:
        previous, stored = np.split(_words(taken, source.where), 2)
        return pair_end_offsets(previous, stored, rows > 0, adjustment, source.where)

    return and_then(ends.take(source, both), pair)


def _words(array: Any, where: Where) -> Any:
    """Return a view of stored ends as unsigned numbers; all are valid."""
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
        """Return offsets, validity, and the items they span within the page's."""
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
#
# The indices are one ``u64`` per value: its end, plus the adjustment if null. The bytes are the
# values back to back, compressed on request.
#
# Specification: "Binary" in ``docs/format/arrays.md``; message ``Binary``.


@array_encoding
@dataclass(frozen=True, slots=True)
class Binary(ArrayEncoding):
    """Strings or binary; arrays are views of the bytes."""

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
        """Read some of the bytes; bytes that the message alone implies have a limit."""
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
        spans.sizes.cumsum(out=ends[1:])
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
    """Return an array of bytes as memory."""
    buffer: pa.Buffer = data.buffers()[1]
    return buffer.slice(data.offset, len(data))


def _split(array: Any, bits: int) -> tuple[NullableOffsets, pa.Buffer]:
    """Return the offsets with validity, and the bytes they point into; null values are empty."""
    count, width = len(array), bits // 8
    validity = None
    if array.null_count:
        lengths = as_numpy(filled(pc.binary_length(array), 0)).astype(np.int64)
        validity = slice_bits(array.buffers()[0], array.offset, count)
        stored = np.frombuffer(array.buffers()[1], f"<i{width}")
        own = stored[array.offset : array.offset + count + 1]
        if int(own[-1]) - int(own[0]) != int(lengths.sum()):
            # Null slots have bytes: leave them out.
            array = filled(array, "" if "string" in str(array.type) else b"")
    _, offsets, data = array.buffers()
    if data is None:
        data = pa.py_buffer(b"")
    if offsets is None or not count:
        return NullableOffsets(pa.py_buffer(bytes(width)), bits, None, 0, 0, 0), data
    offsets = offsets.slice(array.offset * width, (count + 1) * width)
    bounds = np.frombuffer(offsets, f"<i{width}")
    return NullableOffsets(offsets, bits, validity, 0, int(bounds[0]), int(bounds[-1])), data


# --- Fixed-size list: ``dimension`` items per value, null lists included ----------------
#
# The ``Nullable`` outside has the validity of the lists, the ``Nullable`` inside the validity of
# the items.
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
        """Parse a ``FixedSizeList``; its dimension must match the type."""
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
#
# Lance before 2.1 used it for pages whose strings all have the same length.
#
# Specification: "Fixed-size binary" in ``docs/format/arrays.md``; message ``FixedSizeBinary``.


@array_encoding
@dataclass(frozen=True, slots=True)
class FixedSizeBinary(ArrayEncoding):
    """Strings of ``width`` bytes each; arrays are views of the bytes."""

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
        max_width = MAX_OFFSET if per_byte else MAX_WIDTH
        if offset_bits(kind) is None or not 0 < width <= max_width:
            raise wrong_type(kind, f"strings of {width} bytes", page.where)
        value, total = pa.binary(width), count
        if per_byte:
            value, total = pa.uint8(), None if count is None else count * width
        return cls(kind, read_array(message.bytes, value, total, page), width, per_byte)

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
