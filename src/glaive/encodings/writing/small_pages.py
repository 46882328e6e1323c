"""Pages of a few values, written without choosing an encoding.

Buffers of a page begin on 64-byte offsets, so no encoding makes such a page smaller, and
choosing one would be most of the cost of appending a few rows. Values of a fixed width are
stored as in memory; single bits, text and values with nulls become one chunk.

Specification: "Writer choices" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from functools import lru_cache
from operator import sub
from struct import Struct
from typing import Any

import pyarrow as pa

from glaive.arrow.blocks import Block, FixedWidth, Variable
from glaive.arrow.build import block_from_array, leaf_bits, validity_flags
from glaive.encodings.leaf import Layer
from glaive.encodings.levels.repdef import Levels, flat_levels
from glaive.encodings.options import EncodingOptions
from glaive.encodings.page_options import PageOptions
from glaive.encodings.protocol import EncodedPage, ValueEncoding
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.variable import Variable as Plain
from glaive.format.pb import encodings21_pb2 as pb

__all__ = [
    "MAX_TINY_BYTES",
    "MAX_TINY_VALUES",
    "MINIBLOCK_MAX_VALUE",
    "encode_small",
    "encode_tiny_page",
    "plain_page",
    "whole_bytes",
]

MINIBLOCK_MAX_VALUE = 256
"""Bytes; wider values go to full-zip pages."""

MAX_TINY_BYTES = 512
"""A page with more bytes is worth choosing an encoding for."""

MAX_TINY_VALUES = 8 * MAX_TINY_BYTES
"""Values of such a page at most: single bits."""

_MAX_TEXT_BYTES = 4096
"""Offsets and bytes of text up to which no choice makes the page smaller, unless FSST is wanted:
FSST and general compression begin above, and dictionaries at 100 values."""

_MAX_TEXTS = 99
"""Values of a page with more bytes of text than :data:`MAX_TINY_BYTES`."""

_ALL_VALID = (Layer.ALL_VALID_ITEM,)
_LEVEL_BITS = 16
_CHUNK_WORD, _LARGE_CHUNK_WORD = 2, 4
"""Bytes of a chunk word."""

_FILL = b"\xfe"


def encode_small(
    array: pa.Array,
    options: PageOptions,
    wanted: EncodingOptions,
    plain_bytes: int = MAX_TINY_BYTES,
    width: int | None = None,
) -> EncodedPage | None:
    """Encode the values of a column without lists and structs if there are only a few.

    ``None`` when there is a choice to make.

    Parameters
    ----------
    plain_bytes
        Bytes of values of a fixed width up to which these are stored as in memory. With the
        default, pages are those of :func:`glaive.encodings.writing.page.encode_page`.
    width
        Bytes of a value of a fixed width, 0 for other types; looked up if not given.
    """
    if not _is_unspecified(wanted):
        return None
    plain = plain_page(array, plain_bytes, width)
    if plain is not None:
        return plain
    rows = len(array)
    if rows > MAX_TINY_VALUES:
        return None
    return encode_tiny_page(array, flat_levels(validity_flags(array)), rows, options, wanted)


def encode_tiny_page(
    array: pa.Array, levels: Levels, rows: int, options: PageOptions, wanted: EncodingOptions
) -> EncodedPage | None:
    """Encode a few values, at least one of them not null; ``None`` when there are more.

    Parameters are those of :func:`glaive.encodings.writing.page.encode_page`.
    """
    if not _is_unspecified(wanted):
        return None
    block = _few_values(array, levels)
    if block is None:
        return None
    count, definition = block.count, levels.definition
    width = _LARGE_CHUNK_WORD if options.large_chunks else _CHUNK_WORD
    values: Any
    if isinstance(block, FixedWidth) and block.bits:
        if count * block.bits > 8 * MAX_TINY_BYTES:
            return None
        values = block.values.slice(0, (count * block.bits + 7) // 8)
        if definition is None and block.bits % 8 == 0:
            return EncodedPage(_plain_layout(block.bits, levels.layers, rows), [values], rows)
        raw = values.to_pybytes()
        if definition is not None and _all_equal(raw, block.bits // 8, definition.tolist()):
            return None
        return _one_chunk(raw, Flat(block.bits), count, levels, rows, width)
    if isinstance(block, Variable):
        encoded = _strings(block, wanted)
        if encoded is not None:
            return _one_chunk(encoded, Plain(block.offset_bits), count, levels, rows, width)
    return None


def _is_unspecified(wanted: EncodingOptions) -> bool:
    return wanted.structural_encoding is None and wanted.minichunk_size is None


def plain_page(
    array: pa.Array, most_bytes: int = MAX_TINY_BYTES, width: int | None = None
) -> EncodedPage | None:
    """The same page for fixed-width values of whole bytes without nulls; ``None`` for others.

    Parameters
    ----------
    most_bytes
        A page with more bytes is worth choosing an encoding for.
    width
        Bytes of a value of a fixed width, 0 for other types; looked up if not given.
    """
    width = whole_bytes(array.type) if width is None else width
    rows = len(array)
    if not 0 < rows * width <= most_bytes or array.null_count:
        return None
    values: Any = array.buffers()[1]
    layout = _plain_layout(8 * width, _ALL_VALID, rows)
    return EncodedPage(layout, [values.slice(array.offset * width, rows * width)], rows)


def whole_bytes(kind: pa.DataType) -> int:
    """Bytes of a value of a plain type of fixed width; 0 for other types."""
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_nested(kind):
        return 0
    bits = None if pa.types.is_dictionary(kind) else leaf_bits(kind)
    return 0 if bits is None or bits % 8 else bits // 8


def _few_values(array: pa.Array, levels: Levels) -> Block | None:
    """The values, if they are few, not nested and not dictionary-encoded."""
    count, kind, definition = len(array), array.type, levels.definition
    if not 0 < count <= MAX_TINY_VALUES or levels.rep is not None or array.null_count == count:
        return None
    if definition is not None and (len(definition) != count or definition.all()):
        return None
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return None
    return block_from_array(array)


def _all_equal(raw: bytes, width: int, definition: list[int]) -> bool:
    """Whether all values of ``width`` bytes that are not null are equal; False for 0 bytes."""
    valid = [at * width for at, level in enumerate(definition) if not level]
    first = raw[valid[0] : valid[0] + width]
    return width > 0 and all(raw[at : at + width] == first for at in valid)


def _strings(block: Variable, wanted: EncodingOptions) -> bytes | None:
    """Offsets from the start of the chunk, and bytes; ``None`` when there are too many.

    Also where a constant page would save more than the space between two buffers.
    """
    count, width = block.count, block.offset_bits // 8
    if count * width > MAX_TINY_BYTES:
        return None
    numbers = _offsets(count, width)
    offsets = numbers.unpack_from(block.offsets)
    first, last = offsets[0], offsets[-1]
    head = numbers.size
    longest = max(map(sub, offsets[1:], offsets))
    most_bytes = MAX_TINY_BYTES if wanted.compression == "fsst" else _MAX_TEXT_BYTES
    if head + last - first > most_bytes or longest >= MINIBLOCK_MAX_VALUE:
        return None
    raw = block.data.slice(first, last - first).to_pybytes()
    if head + len(raw) > MAX_TINY_BYTES and (count > _MAX_TEXTS or _all_same(raw, longest)):
        return None
    moved = numbers.pack(*[end - first + head for end in offsets])
    return moved + raw + _FILL * (-(head + len(raw)) % width)


def _all_same(raw: bytes, longest: int) -> bool:
    """Whether texts without those of no bytes may be equal: one is repeated in ``raw``."""
    return not longest or raw == raw[:longest] * (len(raw) // longest)


@lru_cache(maxsize=256)
def _offsets(count: int, width: int) -> Struct:
    return Struct(f"<{count + 1}{'i' if width == 4 else 'q'}")


def _one_chunk(
    values: bytes, encoding: ValueEncoding, count: int, levels: Levels, rows: int, width: int
) -> EncodedPage:
    """A mini-block page of one chunk, its levels flat; chunk words have ``width`` bytes."""
    size = len(values).to_bytes(width, "little")
    definition = levels.definition
    if definition is None:
        chunk = _padded(b"\x00\x00" + size)
    else:
        words = definition.astype("<u2").tobytes()
        entries = count.to_bytes(2, "little")
        chunk = _padded(entries + len(words).to_bytes(2, "little") + size) + _padded(words)
    chunk += _padded(values)
    word = ((len(chunk) >> 3) - 1) << 4
    level_bits = 0 if definition is None else _LEVEL_BITS
    layout = _chunk_layout(encoding, level_bits, levels.layers, count, width)
    return EncodedPage(layout, [word.to_bytes(width, "little"), chunk], rows)


def _padded(data: bytes) -> bytes:
    return data + _FILL * (-len(data) % 8)


@lru_cache(maxsize=1024)
def _chunk_layout(
    encoding: ValueEncoding, level_bits: int, layers: tuple[Layer, ...], count: int, width: int
) -> pb.PageLayout:
    layout = pb.MiniBlockLayout(
        value_compression=encoding.to_wire(),
        layers=[pb.RepDefLayer.ValueType(layer) for layer in layers],
        num_buffers=1,
        num_items=count,
        has_large_chunk=width == _LARGE_CHUNK_WORD,
    )
    if level_bits:
        layout.def_compression.CopyFrom(Flat(level_bits).to_wire())
    return pb.PageLayout(mini_block_layout=layout)


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
