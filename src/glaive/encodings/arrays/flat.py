"""Flat: values of a fixed width, back to back.

======== =======================================================================
width    bytes
======== =======================================================================
1 bit    packed, least significant bit first, ``ceil(n / 8)`` bytes
8·k bits ``k`` bytes each, little-endian
======== =======================================================================

With ``compression`` the buffer is compressed as a whole, after its uncompressed size.

Specification: "Flat" in ``docs/format/arrays.md``; message ``Flat``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.encodings.array_protocol import (
    ArrayEncoding,
    BufferRange,
    Outlet,
    Source,
    buffer_number,
    check_size,
)
from glaive.encodings.compression import Scheme, compress, decompress
from glaive.encodings.fetch import Fetch
from glaive.encodings.kept import Kept
from glaive.encodings.protocol import PageBytes
from glaive.encodings.registry import array_encoding
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.pb import encodings20_pb2 as pb

__all__ = ["Flat", "fixed_bits"]

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
