"""Value encodings in mini-block chunks, and chunks that repeat."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from tests.proof.few_bytes.draws import Draws, Impossible, Steps, equal
from tests.proof.few_bytes.sequences import (
    MOST_BYTES,
    flat,
    has_payload,
    numbers,
    packed_general,
    runs_of,
)

from glaive.format.pb import encodings21_pb2 as pb

__all__ = ["Chunked", "Kind", "chunked", "values_of"]

CHUNK_LOG = 15

_SYMBOLS = (0x46535354 << 32 | 1 << 24 | 1).to_bytes(8, "little") + b"12345678" + b"\x08"
_SYMBOLS += bytes(2312 - len(_SYMBOLS))


class Kind(NamedTuple):
    """What values are: numbers, texts, or lists of a size.

    ``bits`` of a number or of an offset; ``size``: the items of a list; 0: no list.
    """

    bits: int
    is_text: bool = False
    size: int = 0
    inner: Kind | None = None


Mini = tuple[pb.CompressiveEncoding, list[bytes]]


def values_of(draw: Draws, kind: Kind, count: int, depth: int = 3) -> Mini:
    """An encoding of ``count`` values of a chunk, and its buffers."""
    if draw.chance(0.2) and depth:
        message, buffers = values_of(draw, kind, count, depth - 1)
        packed, buffers[0] = packed_general(draw, message, buffers[0])
        return packed, buffers
    if kind.size and kind.inner is not None:
        return _lists(draw, kind, count, depth)
    return (_texts if kind.is_text else _numbers)(draw, kind, count, depth)


def _lists(draw: Draws, kind: Kind, count: int, depth: int) -> Mini:
    inner = kind.inner
    if inner is None:
        raise Impossible
    valid: list[bytes] = []
    if draw.chance(0.4):
        size = (count * kind.size + 7) // 8
        if size > 1 << 24:
            raise Impossible
        valid = [bytes(size)]
    if draw.chance(0.1):
        values, buffers = pb.CompressiveEncoding(constant=pb.Constant()), [b""]
    else:
        values, buffers = values_of(draw, inner, count * kind.size, depth)
    message = pb.FixedSizeList(items_per_value=kind.size, values=values, has_validity=bool(valid))
    return pb.CompressiveEncoding(fixed_size_list=message), [*valid, *buffers]


def _numbers(draw: Draws, kind: Kind, count: int, depth: int) -> Mini:
    bits = kind.bits
    if bits == 1:
        if count > 1 << 27:
            raise Impossible
        return flat(1), [bytes((count + 7) // 8)]
    ways = ["flat", "rle", "rle", "rle", "inline", "split", "packed", "constant"]
    way = draw.of(ways if bits in (8, 16, 32, 64) else ["flat"])
    if way == "rle":
        message, values, lengths = runs_of(draw, equal(0, count), bits, min(depth, 2))
        return message, [values, lengths]
    if way == "inline":
        if count > 1024:
            raise Impossible
        packed = pb.InlineBitpacking(uncompressed_bits_per_value=bits)
        return pb.CompressiveEncoding(inline_bitpacking=packed), [bytes(bits // 8)]
    if way in ("packed", "constant") and draw.chance(0.5):  # not of chunks: refused
        message, data = numbers(draw, equal(0, count), bits)
        return message, [data]
    if count * bits > 1 << 27:
        raise Impossible
    data = bytes(count * bits // 8)
    if way == "split" and bits in (32, 64):
        split = pb.ByteStreamSplit(values=flat(bits))
        return pb.CompressiveEncoding(byte_stream_split=split), [data]
    return flat(bits), [data]


def _texts(draw: Draws, kind: Kind, count: int, depth: int) -> Mini:
    if draw.chance(0.15) and depth:
        inner, buffers = _texts(draw, kind, count, depth - 1)
        coded = pb.Fsst(symbol_table=_SYMBOLS, values=inner)
        return pb.CompressiveEncoding(fsst=coded), buffers
    word = kind.bits // 8
    size = draw.of([0, 0, 1, 8])
    data = bytes(size * count)  # the first code of an FSST table
    if len(data) > MOST_BYTES:
        raise Impossible
    if draw.chance(0.5):
        offsets, stored = numbers(
            draw, Steps(0, size, count + 1) if size else equal(0, count + 1), kind.bits
        )
        message = pb.CompressiveEncoding(variable=pb.Variable(offsets=offsets))
        buffers = [stored, data] if has_payload(offsets) else [data]
        if offsets.WhichOneof("compression") == "flat":
            raise Impossible
        return message, buffers
    if (count + 1) * word > 1 << 24:
        raise Impossible
    first = (count + 1) * word
    listed = Steps(first, size, count + 1).listed().astype(f"<u{word}").tobytes()
    message = pb.CompressiveEncoding(variable=pb.Variable(offsets=flat(kind.bits)))
    return message, [listed + data]


@dataclass(frozen=True)
class Chunked:
    """Mini-blocks: buffers of a page before levels' index, and the message of its values."""

    values: pb.CompressiveEncoding
    buffers: list[bytes]
    items: int
    num_buffers: int


def chunked(
    value: Mini,
    each: int,
    chunks: int,
    word_bytes: int,
    levels: list[bytes] | None = None,
    entries: int = 0,
) -> Chunked:
    """``chunks`` equal chunks of ``each`` values; with ``entries`` levels each."""
    message, buffers = value
    levels = levels or []
    log = each.bit_length() - 1
    if chunks > 1 and (each != 1 << log or not 1 <= log <= CHUNK_LOG):
        raise Impossible
    size_code = "I" if word_bytes == 4 else "H"
    sizes = [len(part) for part in buffers]
    if max([*sizes, 0]) > 0xFFFF and word_bytes == 2:
        raise Impossible
    if max([*map(len, levels), entries]) > 0xFFFF:
        raise Impossible
    head = struct.pack("<H" + "H" * len(levels), entries, *map(len, levels))
    head += struct.pack("<" + size_code * len(sizes), *sizes)
    parts = [head, *levels, *buffers]
    chunk = b"".join(part + b"\xfe" * (-len(part) % 8) for part in parts)
    if len(chunk) * chunks > 3 * MOST_BYTES:
        raise Impossible
    units = len(chunk) // 8 - 1
    if units >> (12 if word_bytes == 2 else 28):
        raise Impossible
    words = np.full(chunks, units << 4 | log, f"<u{word_bytes}")
    words[-1] = units << 4
    return Chunked(message, [words.tobytes(), chunk * chunks], each * chunks, len(buffers))
