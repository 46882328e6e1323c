"""Binary: strings as their end offsets and their bytes.

======== =======================================================
buffer   content
======== =======================================================
indices  one ``u64`` per value: its end, plus the adjustment if null
bytes    the values back to back, compressed on request
======== =======================================================

Specification: "Binary" in ``docs/format/arrays.md``; message ``Binary``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.buffers import pack_flags
from glaive.arrow.build import offset_bits
from glaive.arrow.slices import slice_bits
from glaive.dataclass import dataclass
from glaive.encodings.array_protocol import ArrayEncoding, Outlet, Source, wrong_type
from glaive.encodings.arrays.flat import Flat
from glaive.encodings.arrays.list import read_ends, take_ends, write_ends
from glaive.encodings.compression import Scheme
from glaive.encodings.fetch import Fetch, and_then
from glaive.encodings.protocol import PageBytes
from glaive.encodings.registry import array_encoding, read_array
from glaive.errors import CapacityError
from glaive.format.pb import encodings20_pb2 as pb
from glaive.kernels.end_offsets import NullableOffsets, Spans
from glaive.kernels.full_zip import gather_ranges
from glaive.memory import as_buffer
from glaive.types import MAX_OFFSET, Int64s

__all__ = ["Binary"]


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
