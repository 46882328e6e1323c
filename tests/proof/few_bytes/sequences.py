"""Value encodings as blocks: numbers and texts, with the bytes of their one block."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from tests.proof.few_bytes.draws import Draws, Impossible, Runs, Steps, Wanted, equal

from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.bitpack import pack_out_of_line
from glaive.types import as_buffer

__all__ = [
    "Encoded",
    "compressed",
    "flat",
    "has_payload",
    "numbers",
    "packed_general",
    "runs_of",
    "texts",
]

Encoded = tuple[pb.CompressiveEncoding, bytes]

MOST_BYTES = 20_000
"""Bytes of a block that is not compressed."""

MOST_MADE = 1 << 24
"""Bytes that are made to be compressed."""

_SCHEMES = {"zstd": (2, 8), "lz4": (1, 4)}


def flat(bits: int) -> pb.CompressiveEncoding:
    """The message of plain values."""
    return pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=bits))


def compressed(scheme: str, data: bytes) -> bytes:
    """Bytes under general compression, in the framing of the format."""
    codec = pa.Codec("zstd" if scheme == "zstd" else "lz4_raw")
    return len(data).to_bytes(_SCHEMES[scheme][1], "little") + codec.compress(data, asbytes=True)


def packed_general(draw: Draws, inner: pb.CompressiveEncoding, data: bytes) -> Encoded:
    """The block of another encoding under general compression."""
    if not data:
        raise Impossible
    scheme = draw.of(["zstd", "zstd", "lz4"])
    how = pb.BufferCompression(scheme=_SCHEMES[scheme][0])
    packed = compressed(scheme, data)
    if len(packed) > MOST_BYTES:
        raise Impossible
    return pb.CompressiveEncoding(general=pb.General(compression=how, values=inner)), packed


def numbers(draw: Draws, wanted: Wanted, bits: int, depth: int = 3) -> Encoded:
    """An encoding of numbers of a width, and the bytes of their block."""
    if bits not in (8, 16, 32, 64):
        raise Impossible
    return _Block(draw, wanted, bits, depth).encoded()


class _Block(NamedTuple):
    """Numbers that a block is to hold, and how many encodings may still be within each other."""

    draw: Draws
    wanted: Wanted
    bits: int
    depth: int

    def encoded(self) -> Encoded:
        """Any encoding that can hold them."""
        ways = [self.general]
        if self.wanted.count * self.bits <= 8 * MOST_BYTES:
            ways += [self.flat]
        if self.depth:
            ways += [self.runs, self.runs, self.dictionary]
        if self.only is not None:
            ways += [self.constant, self.constant, self.out_of_line]
        if isinstance(self.wanted, Steps) and self.bits in (32, 64):
            ways += [self.range, self.range, self.range]
        if self.bits in (32, 64) and self.depth:
            ways += [self.delta]
        return self.draw.of(ways)()

    @property
    def only(self) -> int | None:
        """The number that all are."""
        if isinstance(self.wanted, Steps):
            return self.wanted.start if self.wanted.count == 1 else None
        runs = self.wanted.runs
        return runs[0][0] if len(runs) == 1 else None if runs else 0

    def within(self, wanted: Wanted, bits: int) -> Encoded:
        """An encoding of others within this one."""
        return numbers(self.draw, wanted, bits, self.depth - 1)

    def listed(self, most: int) -> bytes:
        """All of them."""
        if self.wanted.count * self.bits > 8 * most:
            raise Impossible
        return self.wanted.listed().astype(f"<u{self.bits // 8}").tobytes()

    def flat(self) -> Encoded:
        return flat(self.bits), self.listed(MOST_BYTES)

    def general(self) -> Encoded:
        if self.depth and self.draw.chance(0.3):
            return packed_general(self.draw, *self.within(self.wanted, self.bits))
        return packed_general(self.draw, flat(self.bits), self.listed(MOST_MADE))

    def constant(self) -> Encoded:
        value = (self.only or 0).to_bytes(self.bits // 8, "little")
        return pb.CompressiveEncoding(constant=pb.Constant(value=value)), b""

    def range(self) -> Encoded:
        wanted = self.wanted
        if not isinstance(wanted, Steps) or not wanted.step:
            raise Impossible
        message = pb.Range(
            uncompressed_bits_per_value=self.bits, start=wanted.start, step=wanted.step
        )
        return pb.CompressiveEncoding(range=message), b""

    def delta(self) -> Encoded:
        wanted = self.wanted
        if not wanted.count:
            raise Impossible
        if isinstance(wanted, Steps):
            base, step = wanted.start, wanted.step
        elif self.only is not None:
            base, step = self.only, 0
        else:
            raise Impossible
        inner, data = self.within(equal(step, wanted.count - 1), self.bits)
        message = pb.Delta(uncompressed_bits_per_value=self.bits, base=base, deltas=inner)
        return pb.CompressiveEncoding(delta=message), data

    def dictionary(self) -> Encoded:
        wanted = self.wanted
        indices: Wanted = Steps(0, 1, wanted.count)
        items = wanted
        if self.only is not None:
            indices = equal(0, wanted.count)
            items = equal(self.only, self.draw.of([1, 1, 65_536, self.draw.many(10, 31)]))
        elif isinstance(wanted, Runs):
            indices = Runs(tuple((at, length) for at, (_, length) in enumerate(wanted.runs)))
            items = Runs(tuple((value, 1) for value, _ in wanted.runs))
        if items.count >> 32:
            raise Impossible
        first, index_bytes = self.within(indices, 32)
        second, item_bytes = self.within(items, self.bits)
        message = pb.Dictionary(indices=first, items=second, num_dictionary_items=items.count)
        data = b""
        if has_payload(first) or has_payload(second):
            data = struct.pack("<QQ", len(index_bytes), len(item_bytes)) + index_bytes + item_bytes
        return pb.CompressiveEncoding(dictionary=message), data

    def runs(self) -> Encoded:
        message, values, lengths = self.parts_of_runs()
        data = b""
        if has_payload(message.rle.values) or has_payload(message.rle.run_lengths):
            data = struct.pack("<Q", len(values)) + values + lengths
        return message, data

    def parts_of_runs(self) -> tuple[pb.CompressiveEncoding, bytes, bytes]:
        """The bytes of the values, and of the lengths."""
        width, wanted, count = self.draw.of([8, 16, 32, 32]), self.wanted, self.wanted.count
        values, lengths = wanted, equal(1, count)
        if self.only is not None:
            most = min(count, (1 << width) - 1)
            length = self.draw.of([1, most, most, most // 2, 1 << max(0, most.bit_length() - 1)])
            if not length or count % length:
                length = 1
            values, lengths = equal(self.only, count // length), equal(length, count // length)
        elif isinstance(wanted, Runs):
            if max(length for _, length in wanted.runs) >> width:
                raise Impossible
            values = Runs(tuple((value, 1) for value, _ in wanted.runs))
            lengths = Runs(tuple((length, 1) for _, length in wanted.runs))
        first, value_bytes = self.within(values, self.bits)
        second, length_bytes = self.within(lengths, width)
        message = pb.CompressiveEncoding(rle=pb.Rle(values=first, run_lengths=second))
        return message, value_bytes, length_bytes

    def out_of_line(self) -> Encoded:
        value, count = self.only or 0, self.wanted.count
        if count > 1 << 17:
            raise Impossible
        width = max(value.bit_length(), self.draw.of([0, 0, 1]))
        words = as_buffer(np.full(count, value, f"<u{self.bits // 8}"))
        data, _ = pack_out_of_line(words, np.array([count]), self.bits, width)
        if len(data) > MOST_BYTES:
            raise Impossible
        message = pb.OutOfLineBitpacking(uncompressed_bits_per_value=self.bits, values=flat(width))
        return pb.CompressiveEncoding(out_of_line_bitpacking=message), data.tobytes()


def runs_of(
    draw: Draws, wanted: Wanted, bits: int, depth: int
) -> tuple[pb.CompressiveEncoding, bytes, bytes]:
    """Run-length encoding of a chunk: the bytes of its values, and of its lengths."""
    return _Block(draw, wanted, bits, depth).parts_of_runs()


def has_payload(message: pb.CompressiveEncoding) -> bool:
    """Whether a block of this encoding has any bytes."""
    name = message.WhichOneof("compression")
    if name in ("constant", "range"):
        return False
    if name == "delta":
        return has_payload(message.delta.deltas)
    if name == "dictionary":
        return has_payload(message.dictionary.indices) or has_payload(message.dictionary.items)
    if name == "rle":
        return has_payload(message.rle.values) or has_payload(message.rle.run_lengths)
    return True


def texts(draw: Draws, size: int, count: int, bits: int, depth: int = 2) -> Encoded:
    """``count`` texts of ``size`` bytes, as a block."""
    ways = ["variable", "general", "general"] + ["dictionary"] * bool(depth)
    way = draw.of(ways)
    if way == "dictionary":
        items = draw.of([1, 3, draw.many(4, 20)])
        inner, data = texts(draw, size, items, bits, depth - 1)
        indices, first = numbers(draw, equal(0, count), 32, depth)
        coded = pb.Dictionary(indices=indices, items=inner, num_dictionary_items=items)
        head = struct.pack("<QQ", len(first), len(data))
        return pb.CompressiveEncoding(dictionary=coded), head + first + data
    word = bits // 8
    if (count + 1) * word + count * size > (MOST_MADE if way == "general" else MOST_BYTES):
        raise Impossible
    offsets = Steps(0, size, count + 1).listed().astype(f"<u{word}").tobytes()
    head = bits.to_bytes(word, "little") + (2 * word + len(offsets)).to_bytes(word, "little")
    data = head + offsets + b"x" * (size * count)
    message = pb.CompressiveEncoding(variable=pb.Variable(offsets=flat(bits)))
    return packed_general(draw, message, data) if way == "general" else (message, data)
