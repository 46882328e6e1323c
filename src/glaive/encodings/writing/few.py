"""Write pages of a few values with a fixed encoding.

Choosing an encoding would be most of the cost of appending a few rows, and saves less than 1 KB.
Values of a fixed width are stored as in memory. Single bits, text, vectors, lists, dictionaries
and values with nulls become one chunk.

Specification: "Writer choices" in ``docs/format/pages.md``.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from operator import sub
from typing import Any, cast

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Dictionary, FixedList, FixedWidth, Variable
from glaive.arrow.build import block_from_array, leaf_bits
from glaive.encodings.levels import Layer, Levels, level_limits
from glaive.encodings.miniblock.layout import WORD_BYTES, page_message, repetition_index
from glaive.encodings.miniblock.writer import EncodedItems
from glaive.encodings.options import EncodingOptions, PageOptions
from glaive.encodings.protocol import EncodedPage, ValueEncoding
from glaive.encodings.values.fixed_size_list import FixedSizeList
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.variable import Variable as Plain
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.levels import LEVEL_BITS

MINIBLOCK_MAX_VALUE = 256
"""Bytes; wider values go to full-zip pages."""

PLAIN_BYTES = 1024
"""A page with more bytes is worth choosing an encoding for."""

_MAX_VALUES = 8 * PLAIN_BYTES
"""Maximum values of such a page: single bits."""

_MAX_TEXT_BYTES = 4096
"""Maximum offsets and bytes of text to write plain, unless FSST is wanted.
FSST and general compression begin above, and dictionaries at 100 values.
"""

_MAX_TEXTS = 99
"""Values of a page with more bytes of text than :data:`PLAIN_BYTES`: a dictionary may pay."""

_LEVELS = Flat(LEVEL_BITS)
_FILL = b"\xfe"


def encode_few(
    array: pa.Array,
    levels: Levels,
    rows: int,
    options: PageOptions,
    wanted: EncodingOptions,
    plain_bytes: int = PLAIN_BYTES,
) -> EncodedPage | None:
    """Encode a few values as they are in memory; ``None`` if a choice of encodings is useful.

    :func:`glaive.encodings.writing.page.encode_page` describes the other parameters.
    ``plain_bytes`` is the maximum for valid values of a fixed width.
    """
    if wanted.structural_encoding is not None or wanted.minichunk_size is not None:
        return None
    if levels.rep is None and levels.definition is None:
        plain = _plain_page(array, levels.layers, rows, plain_bytes)
        if plain is not None:
            return plain
    return _one_chunk_page(array, levels, rows, options, wanted)


def _one_chunk_page(
    array: pa.Array, levels: Levels, rows: int, options: PageOptions, wanted: EncodingOptions
) -> EncodedPage | None:
    """Encode a few values, at least one of them valid; ``None`` where there are more."""
    block = _few_values(array, levels)
    if block is None:
        return None
    count = block.count
    width = WORD_BYTES[options.large_chunks]
    encoding: ValueEncoding
    if isinstance(block, Variable):
        encoded = _strings(block, wanted)
        if encoded is None:
            return None
        return _one_chunk(encoded, Plain(block.offset_bits), count, levels, rows, width)
    raw, items = _raw(block, PLAIN_BYTES * (1 if levels.rep is None else 2)), None
    if raw is None:
        return None
    if isinstance(block, Dictionary):
        items, encoding = _few_items(block.items), Flat(block.indices.bits)
        if items is None:
            return None
    elif isinstance(block, FixedList):
        encoding = FixedSizeList.for_block(block)
    else:
        bits = cast("FixedWidth", block).bits
        encoding = Flat(bits)
        if levels.rep is not None:
            if raw == raw[: bits // 8] * count:
                return None
        elif levels.definition is None:
            if bits % 8 == 0:
                return EncodedPage(_plain_layout(bits, levels.layers, rows), [raw], rows)
        elif _all_equal(raw, bits // 8, levels.definition.tolist()):
            return None
    return _one_chunk(raw, encoding, count, levels, rows, width, items)


def _plain_page(
    array: pa.Array, layers: tuple[Layer, ...], rows: int, max_bytes: int
) -> EncodedPage | None:
    """Return the page of valid fixed-width values of whole bytes; ``None`` for others."""
    width = whole_bytes(array.type)
    if not 0 < rows * width <= max_bytes or array.null_count or len(array) != rows:
        return None
    values: Any = array.buffers()[1]
    layout = _plain_layout(8 * width, layers, rows)
    return EncodedPage(layout, [values.slice(array.offset * width, rows * width)], rows)


@lru_cache(maxsize=256)
def whole_bytes(kind: pa.DataType) -> int:
    """Return the bytes of a value of a plain type of fixed width; 0 for other types."""
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_nested(kind):
        return 0
    bits = None if pa.types.is_dictionary(kind) else leaf_bits(kind)
    return 0 if bits is None or bits % 8 else bits // 8


def _few_values(array: pa.Array, levels: Levels) -> Block | None:
    """Return the values, if they and their levels are few; ``None`` for structs."""
    count, kind, rep, definition = len(array), array.type, levels.rep, levels.definition
    if not 0 < count <= _MAX_VALUES or array.null_count == count:
        return None
    if rep is not None and len(rep) > PLAIN_BYTES:
        return None
    if definition is not None and ((rep is None and len(definition) != count) or definition.all()):
        return None
    if pa.types.is_nested(kind) and not pa.types.is_fixed_size_list(kind):
        return None
    return block_from_array(array)


def _raw(block: Block, max_bytes: int) -> bytes | None:
    """Return the bytes of a few fixed-width values or of indices; ``None`` for other blocks."""
    values, each = block, 1
    if isinstance(block, FixedList):
        values, each = block.items, block.dimension
        if block.validity is not None or not isinstance(values, FixedWidth) or values.bits % 8:
            return None
    elif isinstance(block, Dictionary):
        values = block.indices
    if not isinstance(values, FixedWidth) or not values.bits:
        return None
    bits = values.bits * each
    if block.count * bits > 8 * max_bytes or bits >= 8 * MINIBLOCK_MAX_VALUE:
        return None
    return values.values.slice(0, (block.count * bits + 7) // 8).to_pybytes()


def _few_items(items: Block) -> EncodedItems | None:
    """Return the items of a dictionary as they are, if they are few."""
    encoding: ValueEncoding
    if isinstance(items, Variable):
        encoding = Plain(items.offset_bits)
    elif isinstance(items, FixedWidth):
        encoding = Flat(items.bits)
    else:
        return None
    if items.count > _MAX_TEXTS:
        return None
    encoded = EncodedItems.of(items, encoding)
    return encoded if len(encoded.data) <= PLAIN_BYTES else None


def _all_equal(raw: bytes, width: int, definition: list[int]) -> bool:
    """Return whether all non-null values of ``width`` bytes are equal; False for 0 bytes."""
    valid = [at * width for at, level in enumerate(definition) if not level]
    first = raw[valid[0] : valid[0] + width]
    return width > 0 and all(raw[at : at + width] == first for at in valid)


def _strings(block: Variable, wanted: EncodingOptions) -> bytes | None:
    """Return the offsets from the start of the chunk, and bytes; ``None`` when there are too many.

    Also where a constant page would save more than the space between two buffers.
    """
    count, width = block.count, block.offset_bits // 8
    if count * width > PLAIN_BYTES:
        return None
    numbers = _offsets(count, width)
    offsets = numbers.unpack_from(block.offsets)
    first, last = offsets[0], offsets[-1]
    head = numbers.size
    longest = max(map(sub, offsets[1:], offsets))
    max_bytes = PLAIN_BYTES // 2 if wanted.compression == "fsst" else _MAX_TEXT_BYTES
    if head + last - first > max_bytes or longest >= MINIBLOCK_MAX_VALUE:
        return None
    raw = block.data.slice(first, last - first).to_pybytes()
    if head + len(raw) > PLAIN_BYTES and (count > _MAX_TEXTS or _all_same(raw, longest)):
        return None
    moved = numbers.pack(*[end - first + head for end in offsets])
    return moved + raw + _FILL * (-(head + len(raw)) % width)


def _all_same(raw: bytes, longest: int) -> bool:
    """Return whether all texts may be equal or empty: one is repeated in ``raw``."""
    return not longest or raw == raw[:longest] * (len(raw) // longest)


@lru_cache(maxsize=256)
def _offsets(count: int, width: int) -> struct.Struct:
    return struct.Struct(f"<{count + 1}{'i' if width == 4 else 'q'}")


def _one_chunk(
    values: bytes,
    encoding: ValueEncoding,
    count: int,
    levels: Levels,
    rows: int,
    width: int,
    items: EncodedItems | None = None,
) -> EncodedPage:
    """Return a mini-block page of one chunk, levels flat; chunk words have ``width`` bytes."""
    rep, definition = levels.rep, levels.definition
    streams = [one for one in (rep, definition) if one is not None]
    words = [one.astype("<u2").tobytes() for one in streams]
    entries = len(streams[0]) if streams else 0
    sizes = [len(one).to_bytes(2, "little") for one in words]
    head = b"".join([entries.to_bytes(2, "little"), *sizes, len(values).to_bytes(width, "little")])
    chunk = b"".join(map(_padded, (head, *words, values)))
    word = ((len(chunk) >> 3) - 1) << 4
    buffers: list[Any] = [word.to_bytes(width, "little"), chunk]
    if items is not None:
        buffers.append(items.data)
    if rep is not None:
        cuts = np.array([0, len(rep)], np.int64)
        max_rep = level_limits(levels.layers).max_rep
        buffers.append(repetition_index(rep, cuts, max_rep).view(np.uint8))
    codecs = [None if one is None else _LEVELS for one in (rep, definition)]
    described = None if items is None else items[:2]
    layout = page_message(encoding, *codecs, described, levels.layers, count, 1, width)
    return EncodedPage(layout, buffers, rows)


def _padded(data: bytes) -> bytes:
    return data + _FILL * (-len(data) % 8)


@lru_cache(maxsize=1024)
def _plain_layout(bits: int, layers: tuple[Layer, ...], rows: int) -> pb.PageLayout:
    layout = pb.FullZipLayout(
        bits_per_value=bits,
        num_items=rows,
        num_visible_items=rows,
        value_compression=Flat(bits).to_wire(),
        layers=[pb.RepDefLayer.ValueType(layer) for layer in layers],
    )
    return pb.PageLayout(full_zip_layout=layout)
