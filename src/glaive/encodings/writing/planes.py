"""Choose the planes of a 2.3 page, and encode it.

The value plane follows from the equivalent 2.2 page. Levels are stored with the values (dense
structure) if chunks can hold them, unless sparse structure is requested. Three kinds of pages
have sparse structure: pages with less than one value per chunk of levels, constants with nulls,
and pages of nulls.

Specification: "Writer choices" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Dictionary as DictionaryBlock
from glaive.arrow.blocks import FixedList, FixedWidth, Variable, flag_array
from glaive.arrow.build import block_from_array
from glaive.dataclass import NamedTuple
from glaive.encodings.levels import Layer, LayerStep, Levels, layer_steps
from glaive.encodings.options import AUTOMATIC, EncodingOptions, PageOptions
from glaive.encodings.pages.constant import MAX_INLINE
from glaive.encodings.pages.full_zip import encode_full_zip_page
from glaive.encodings.protocol import EncodedPage, ValueEncoding
from glaive.encodings.registry import read_encoding
from glaive.encodings.values.bitpack import OutOfLineBitpacking
from glaive.encodings.values.fixed_size_list import FixedSizeList
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.general import General
from glaive.encodings.values.rle import NestedRuns, runs_of
from glaive.encodings.values.sequences import (
    DICTIONARY_HEADER_BYTES,
    INDEX_BITS,
    Constant,
    Delta,
    Dictionary,
    Range,
)
from glaive.encodings.values.variable import Variable as Plain
from glaive.encodings.writing.few import encode_few
from glaive.encodings.writing.page import encode_page, single_value, zip_text_encoding
from glaive.encodings.writing.string_stats import PageSymbols, VariableStats, build_dictionary
from glaive.errors import SchemaError
from glaive.format.pb import encodings21_pb2 as pb21
from glaive.format.pb import encodings23_pb2 as pb
from glaive.format.wire import copy_fields
from glaive.kernels._bitpack import out_of_line_sizes
from glaive.kernels.levels import resolve_lists
from glaive.kernels.runs import HEADER_BYTES
from glaive.types import Flags, Int64s, UInt8s, UInt16s, UInt64s, Where, as_array, as_buffer

# --- Choose how a sequence of unsigned numbers is stored, and encode it as one block ----
#
# The smallest encoding wins; among equals the encoding that is cheaper to read wins. Sequences that
# the message describes alone come first: repeated numbers, numbers at equal distances, and deltas,
# dictionaries and runs of such numbers.
#
# Specification: "Number sequences" and "Writer choices" in ``docs/format/planes.md``.

Words = NDArray[np.unsignedinteger[Any]]

_LENGTH_BITS = 32
"""Width of the lengths of runs."""

_MAX_ITEMS = 1024
"""Maximum distinct numbers of a dictionary; with more, indices are hardly narrower."""

_MAX_COUNTED = 65_536
"""Distinct numbers are found by counting below this value, else by sorting up to as many."""

_MIN_GENERAL_BYTES = 1024
"""Minimum bytes to compress."""

_MAX_GENERAL_SHARE = 0.97
"""Compressed bytes must be below this share of the uncompressed ones."""


class EncodedNumbers(NamedTuple):
    """How numbers are stored, and the bytes they take besides the message, if any."""

    encoding: ValueEncoding
    payload: UInt8s | None

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return 0 if self.payload is None else len(self.payload)


def encode_numbers(words: Words) -> EncodedNumbers:
    """Encode contiguous numbers of 32 or 64 bits in the fewest bytes."""
    bits = words.dtype.itemsize * 8
    implied = _implied_encoding(words, bits)
    if implied is not None:
        return EncodedNumbers(implied, None)
    size, encoding = min(_candidates(words, bits), key=lambda candidate: candidate[0])
    chosen = EncodedNumbers(encoding, _payload(encoding, words))
    if size < _MIN_GENERAL_BYTES:
        return chosen
    packed = General("zstd", Flat(bits), None)
    payload = _payload(packed, words)
    if payload is not None and len(payload) < _MAX_GENERAL_SHARE * size:
        return EncodedNumbers(packed, payload)
    return chosen


def _implied_encoding(words: Words, bits: int) -> ValueEncoding | None:
    """Return the encoding whose message describes all numbers, if it exists."""
    if not len(words):
        return Constant(b"")
    if len(words) == 1 or (words == words[0]).all():
        return Constant(int(words[0]).to_bytes(bits // 8, "little"))
    steps = np.diff(words)
    if (steps == steps[0]).all() and (words[1:] > words[:-1]).all():
        return Range(bits, int(words[0]), int(steps[0]))
    return None


def _candidates(words: Words, bits: int) -> Iterator[tuple[int, ValueEncoding]]:
    """Yield the encodings with their bytes, the cheapest to read first."""
    yield len(words) * bits // 8, Flat(bits)
    yield _packed(words, bits)
    if (words[1:] >= words[:-1]).all():
        size, inner = _plain(np.diff(words), bits)
        yield size, Delta(bits, int(words[0]), inner)
    encoded = _dictionary(words, bits)
    if encoded is not None:
        yield encoded
    runs = _runs(words, bits)
    if runs is not None:
        yield runs


def _plain(words: Words, bits: int) -> tuple[int, ValueEncoding]:
    """Return the smallest encoding that is allowed within another encoding."""
    implied = _implied_encoding(words, bits)
    if implied is not None:
        return 0, implied
    flat, packed = (len(words) * bits // 8, Flat(bits)), _packed(words, bits)
    return packed if packed[0] < flat[0] else flat


def _packed(words: Words, bits: int) -> tuple[int, ValueEncoding]:
    """Return all words with the width of the widest."""
    width = max(int(words.max()).bit_length(), 1)
    if width == bits:
        return len(words) * bits // 8, Flat(bits)
    size = int(out_of_line_sizes(np.array([len(words)]), bits, width).sum())
    return size, OutOfLineBitpacking(bits, width)


def _dictionary(words: Words, bits: int) -> tuple[int, ValueEncoding] | None:
    items = _distinct(words)
    if items is None or not 1 < len(items) <= min(_MAX_ITEMS, len(words) // 2):
        return None
    width = (len(items) - 1).bit_length()
    if width >= int(words.max()).bit_length():
        return None
    item_bytes, of_items = _plain(items, bits)
    index_bytes = len(words) * INDEX_BITS // 8
    of_indices: ValueEncoding = Flat(INDEX_BITS)
    packed = int(out_of_line_sizes(np.array([len(words)]), INDEX_BITS, width).sum())
    if packed < index_bytes:
        index_bytes, of_indices = packed, OutOfLineBitpacking(INDEX_BITS, width)
    size = DICTIONARY_HEADER_BYTES + index_bytes + item_bytes
    return size, Dictionary(of_indices, of_items, len(items))


def _distinct(words: Words) -> Words | None:
    """Return the distinct numbers, ascending; ``None`` when finding them costs too much."""
    if int(words.max()) < _MAX_COUNTED:
        seen = np.bincount(words.astype(np.int64, copy=False))
        return seen.nonzero()[0].astype(words.dtype)
    return np.unique(words) if len(words) <= _MAX_COUNTED else None


def _runs(words: Words, bits: int) -> tuple[int, ValueEncoding] | None:
    """Return the runs of equal numbers, if they are at least two long on average."""
    if 2 * np.count_nonzero(words[1:] != words[:-1]) > len(words):
        return None
    values, lengths = runs_of(words)
    value_bytes, of_values = _plain(values, bits)
    length_bytes, of_lengths = _length_encoding(lengths)
    size = value_bytes + length_bytes
    return size + HEADER_BYTES * (size > 0), NestedRuns(of_values, of_lengths)


def _length_encoding(lengths: Words) -> tuple[int, ValueEncoding]:
    implied = _implied_encoding(lengths.astype(np.uint32), _LENGTH_BITS)
    if implied is not None:
        return 0, implied
    # pylance reads narrower lengths in chunks only.
    return len(lengths) * _LENGTH_BITS // 8, Flat(_LENGTH_BITS)


def _payload(encoding: ValueEncoding, words: Words) -> UInt8s | None:
    """Return the encoded block of the numbers; ``None`` when the message describes them."""
    if not encoding.has_payload:
        return None
    bits = words.dtype.itemsize * 8
    block: Any = FixedWidth(as_buffer(words), bits, len(words))
    if isinstance(encoding, Dictionary):
        items, indices = np.unique(words, return_inverse=True)
        block = DictionaryBlock(
            FixedWidth(as_buffer(indices.astype(np.uint32)), INDEX_BITS, len(words)),
            FixedWidth(as_buffer(items), bits, len(items)),
            len(words),
        )
    return encoding.encode_blocks(block, np.array([len(words)], np.int64)).data


# --- Write indexed values: a dictionary too large for chunks, its items in a full-zip page
# Specification: "Indexed values" in ``docs/format/planes.md``.

MIN_INDEXED_BYTES = 32 * 1024
"""Minimum bytes of the items of a dictionary to try storing them one by one."""

_MIN_ITEM_BYTES = 64
"""Minimum average bytes of an item to try compressing each item by itself."""


class IndexedValues(NamedTuple):
    """Indices and the page of the items; ``size`` bytes in all."""

    indices: EncodedNumbers
    items: EncodedPage

    @property
    def buffers(self) -> list[Any]:
        """Indices, if they have a payload, items and their positions."""
        payload = self.indices.payload
        return [*([] if payload is None else [payload]), *self.items.buffers]

    @property
    def size(self) -> int:
        """Bytes of the buffers."""
        return sum(map(size_of, self.buffers))


def encode_indexed(array: pa.Array, wanted: EncodingOptions) -> IndexedValues | None:
    """Encode repeating strings or binary as indices and items; ``None`` for other values."""
    values = block_from_array(array)
    if not isinstance(values, Variable):
        return None  # dictionary arrays included: pylance refuses them as indexed values
    block = build_dictionary(values, divisor=wanted.dict_divisor, size_ratio=wanted.dict_size_ratio)
    if block is None or not isinstance(block.items, Variable):
        return None
    stats = VariableStats.of(block.items)
    candidates: list[ValueEncoding] = [zip_text_encoding(stats, array.type, wanted)]
    if wanted.compression != "none" and stats.plain_bytes >= _MIN_ITEM_BYTES * block.items.count:
        candidates.append(General("zstd", Plain(block.items.offset_bits), None))
    pages = [_items(block.items, encoding) for encoding in dict.fromkeys(candidates)]
    items = min(pages, key=lambda page: sum(map(size_of, page.buffers)))
    indices = as_array(block.indices.values, np.uint32)[: block.count]
    return IndexedValues(encode_numbers(np.ascontiguousarray(indices)), items)


def _items(items: Variable, encoding: ValueEncoding) -> EncodedPage:
    return encode_full_zip_page(
        items, encoding, Levels(None, None, (Layer.ALL_VALID_ITEM,)), items.count
    )


def size_of(buffer: Any) -> int:
    """Return the bytes of a buffer of a page (a ``PageBuffer``)."""
    parts = buffer if isinstance(buffer, tuple) else (buffer,)
    return sum(memoryview(part).nbytes for part in parts)


# --- Write sparse structure: the layers of a column into positions and counts -----------
#
# Specification: "Sparse structure" and "Number sequences" in ``docs/format/planes.md``.

_EMPTY = np.empty(0, np.uint64)

_MAX_TRIED_RATIO = 8
"""Maximum ratio of the lengths of both lists of positions for trying the longer one."""


class SlotLayer(NamedTuple):
    """One layer: validity of slots (``None``: all valid), lengths of lists, or their fixed size.

    Null lists have the length 0.
    """

    flags: Flags | None
    lengths: Int64s | None = None
    size: int | None = None


def _positions(flags: Flags) -> UInt64s:
    return flags.nonzero()[0].view(np.uint64)


class _Writer:
    """Collects the payloads of sequences in the order they are written in."""

    def __init__(self) -> None:
        self.buffers: list[pa.Buffer | UInt8s | bytes] = []

    def sequence(self, numbers: Int64s) -> pb21.CompressiveEncoding:
        return self._put(encode_numbers(np.ascontiguousarray(numbers).view(np.uint64)))

    def _put(self, numbers: EncodedNumbers) -> pb21.CompressiveEncoding:
        if numbers.payload is not None:
            self.buffers.append(numbers.payload)
        return numbers.encoding.to_wire()

    def validity(self, flags: Flags | None) -> pb.SparseValiditySet:
        """List the null or the valid slots, whichever takes fewer bytes."""
        meaning, positions = pb.SPARSE_VALIDITY_NULL_POSITIONS, _EMPTY
        numbers = encode_numbers(positions)
        if flags is not None:
            positions = _positions(~flags)
            valid = len(flags) - len(positions)
            if len(positions) <= _MAX_TRIED_RATIO * valid:
                numbers = encode_numbers(positions)
            if valid <= _MAX_TRIED_RATIO * len(positions):
                valid_positions = _positions(flags)
                encoded = encode_numbers(valid_positions)
                if len(positions) > _MAX_TRIED_RATIO * valid or encoded.size < numbers.size:
                    meaning, positions = pb.SPARSE_VALIDITY_VALID_POSITIONS, valid_positions
                    numbers = encoded
        return pb.SparseValiditySet(
            meaning=meaning, positions=self._put(numbers), num_positions=len(positions)
        )

    def layer(self, layer: SlotLayer) -> pb.SparseStructuralLayer:
        """Return a layer of items, or of lists: positions, counts, then validity."""
        if layer.size is not None:
            fixed = pb.SparseFixedSizeListLayer(
                dimension=layer.size, validity=self.validity(layer.flags)
            )
            return pb.SparseStructuralLayer(fixed_size_list=fixed)
        if layer.lengths is None:
            return pb.SparseStructuralLayer(validity=self.validity(layer.flags))
        positions = layer.lengths.nonzero()[0]
        counts = layer.lengths[positions]
        lists = pb.SparseListLayer(
            num_child_slots=int(counts.sum()),
            non_empty_positions=self.sequence(positions),
            num_non_empty_positions=len(positions),
            counts=self.sequence(counts),
            validity=self.validity(layer.flags),
        )
        return pb.SparseStructuralLayer(list=lists)


def write_structure(
    layers: Sequence[SlotLayer],
) -> tuple[pb.SparseStructure, list[pa.Buffer | UInt8s | bytes]]:
    """Write the structure of layers (outer-most first), and its payloads."""
    writer = _Writer()
    messages = [writer.layer(layer) for layer in layers]
    return pb.SparseStructure(layers=messages), writer.buffers


def valid_leaves(layers: Sequence[SlotLayer]) -> Flags | None:
    """Return which inner-most slots are valid in all layers; ``None`` when all are."""
    flags: Flags | None = None
    for layer in layers:
        if layer.lengths is not None:
            # Null lists are empty.
            flags = None
            continue
        if layer.flags is not None:
            flags = layer.flags if flags is None else flags & layer.flags
        if layer.size is not None and flags is not None:
            flags = flags.repeat(layer.size)
    return None if flags is None or flags.all() else flags


def layers_of(levels: Levels, rows: int, sizes: Sequence[int | None] = ()) -> list[SlotLayer]:
    """Return the layers (outer-most first) described by the levels of ``rows`` rows.

    ``sizes`` are the dimensions of layers that are fixed-size lists of structs, ``None`` for other
    layers, inner-most first. It is empty when the page has only other layers.
    """
    slot_layers = []
    rep, definition = levels.rep, levels.definition
    sizes = sizes or [None] * len(levels.layers)
    for step, size in zip(layer_steps(levels.layers), sizes, strict=True):
        if not step.is_list or rep is None:
            if size is not None and definition is not None:
                # An outer null is repeated in all entries of a list.
                definition = definition[::size]
            slot_layers.append(SlotLayer(_item_flags(definition, step), size=size))
            continue
        lists = resolve_lists(
            rep,
            definition,
            visible_max=step.visible_max,
            resolved_max=step.resolved_max,
            slot_max=step.slot_max,
            null_level=step.null_level,
            offset_bits=64,
            outer=step.outer,
        )
        if lists is None or (not step.list_outside and lists.slots != rows):
            raise ValueError(f"levels of other than {rows} rows")
        offsets = as_array(lists.offsets, "<i8")[: lists.slots + 1]
        slot_layers.append(SlotLayer(_list_flags(rep, definition, step), np.diff(offsets)))
        rep, definition = lists.rep, lists.definition
    return slot_layers[::-1]


def _item_flags(definition: UInt16s | None, step: LayerStep) -> Flags | None:
    """Return the validity of the slots; slots below a null are null as well."""
    if definition is None or not step.null_level:
        return None
    flags = definition[definition <= step.slot_max] < step.null_level
    return None if flags.all() else flags


def _list_flags(rep: UInt16s, definition: UInt16s | None, step: LayerStep) -> Flags | None:
    if definition is None or not step.null_level:
        return None
    visible = definition[(rep > 0) & (definition <= step.slot_max)]
    flags = (visible != step.null_level) & (visible <= step.resolved_max)
    return None if flags.all() else flags


_WHERE = Where("values to be written")


def encode_planar_page(
    array: pa.Array,
    levels: Levels,
    rows: int,
    options: PageOptions,
    wanted: EncodingOptions = AUTOMATIC,
    sizes: Sequence[int | None] = (),
    symbols: PageSymbols | None = None,
) -> EncodedPage:
    """Encode the visible values of a leaf and their levels as one page.

    Parameters
    ----------
    wanted
        The encoding options of the column; they may request sparse structure.
    sizes
        Dimension of each layer that is a fixed-size list of structs, ``None`` for other layers,
        inner-most first. Empty when the page has only other layers.
    symbols
        FSST symbols that the pages of the column share.
    """
    nested = levels.rep is not None or levels.definition is not None
    sparse = nested and wanted.structural_encoding == "sparse"
    if wanted.structural_encoding == "sparse":
        wanted = replace(wanted, structural_encoding=None)
    page = None
    if not sparse:
        page = encode_few(array, levels, rows, options, wanted)
        page = page or encode_page(array, levels, rows, options, wanted, symbols)
    if page is not None:
        layout = page.layout
        name = layout.WhichOneof("layout")
        if name != "constant_layout":
            return _dense(page, levels.layers)
        values = _constant(page)
        if values is None:
            no_scalars = replace(options, scalar_constants=False)
            return encode_planar_page(array, levels, rows, no_scalars, wanted, sizes, symbols)
        if not nested and values.HasField("constant"):
            return _planar(_dense_structure(levels.layers), values, [], rows)
        return _sparse(values, [], layers_of(levels, rows, sizes), rows)
    layers = layers_of(levels, rows, sizes)
    return encode_sparse_page(array, layers, rows, options, wanted, symbols)


def encode_sparse_page(
    array: pa.Array,
    layers: Sequence[SlotLayer],
    rows: int,
    options: PageOptions,
    wanted: EncodingOptions = AUTOMATIC,
    symbols: PageSymbols | None = None,
) -> EncodedPage:
    """Encode a page of sparse structure; its values are encoded like a column of valid values.

    Parameters
    ----------
    array
        A value for each inner-most slot, also for nulls.
    layers
        Outer-most first.
    rows
        Rows, times the dimensions of all fixed-size lists of structs.
    """
    valid = valid_leaves(layers)
    no_values = pb.ValuePlane(no_values=pb.NoValues())
    if not len(array) or (valid is not None and not valid.any()) or _is_empty(array.type):
        return _sparse(no_values, [], layers, rows)
    if wanted.structural_encoding == "sparse":
        wanted = replace(wanted, structural_encoding=None)
    scalar = single_value(array) if options.scalar_constants else None
    if isinstance(scalar, FixedWidth) and not scalar.bits % 8:
        constant = pb.ConstantValues(scalar=scalar.values.to_pybytes())
        if len(constant.scalar) <= MAX_INLINE:
            return _sparse(pb.ValuePlane(constant=constant), [], layers, rows)
    count = len(array)
    plain = Levels(None, None, (Layer.ALL_VALID_ITEM,))
    page = encode_page(array, plain, count, options, wanted, symbols)
    if page is None:
        raise SchemaError(f"values of type {array.type} do not fit one page; write fewer rows")
    layout = page.layout
    name = layout.WhichOneof("layout")
    if name == "constant_layout":
        values = _constant(page)
        if values is None:
            no_scalars = replace(options, scalar_constants=False)
            return encode_sparse_page(array, layers, rows, no_scalars, wanted, symbols)
        return _sparse(values, [], layers, rows)
    if name == "mini_block_layout" and wanted.structural_encoding is None:
        indexed = _indexed(array, page, wanted)
        if indexed is not None:
            return _sparse(indexed[0], indexed[1], layers, rows)
    if name == "full_zip_layout" and valid is not None:
        # Only valid slots have a value.
        block = block_from_array(array.filter(flag_array(valid)))
        if isinstance(block, FixedList):
            # If all lists are valid, all their items may be, too.
            encoding: ValueEncoding = FixedSizeList.for_block(block)
        else:
            encoding = read_encoding(layout.full_zip_layout.value_compression, _WHERE)
        page = encode_full_zip_page(block, encoding, plain, block.count)
    values = _value_plane(page, dense=False)
    return _sparse(values, page.buffers, layers, rows)


def _indexed(
    array: pa.Array, page: EncodedPage, wanted: EncodingOptions
) -> tuple[pb.ValuePlane, list[Any]] | None:
    """Return the values of a page with a large dictionary as indexed values, if smaller."""
    layout = page.layout.mini_block_layout
    items = layout.num_dictionary_items
    if pa.types.is_dictionary(array.type) or array.nbytes // len(array) * items < MIN_INDEXED_BYTES:
        return None
    encoded = encode_indexed(array, wanted)
    if encoded is None or encoded.size >= sum(map(size_of, page.buffers)):
        return None
    values = pb.IndexedValues(
        indices=encoded.indices.encoding.to_wire(), items=_zipped(encoded.items, dense=False)
    )
    return pb.ValuePlane(indexed=values), encoded.buffers


def _is_empty(kind: pa.DataType) -> bool:
    """Return whether it is an empty struct."""
    return pa.types.is_struct(kind) and not kind.num_fields


# ------------------------------------------------------------------------- messages


def _constant(page: EncodedPage) -> pb.ValuePlane | None:
    """Return the value plane of a constant page; ``None`` if the value exceeds the message."""
    layout = page.layout.constant_layout
    if layout.HasField("inline_value"):
        constant = pb.ConstantValues(scalar=layout.inline_value)
        return pb.ValuePlane(constant=constant)
    if len(page.buffers) % 2:
        return None
    return pb.ValuePlane(no_values=pb.NoValues())


def _dense(page: EncodedPage, layers: tuple[Layer, ...]) -> EncodedPage:
    values = _value_plane(page, dense=True)
    return _planar(_dense_structure(layers), values, page.buffers, page.rows)


def _dense_structure(layers: tuple[Layer, ...]) -> pb.StructuralPlane:
    numbers = [pb21.RepDefLayer.ValueType(layer) for layer in layers]
    dense = pb.DenseStructure(layers=numbers)
    return pb.StructuralPlane(dense=dense)


def _sparse(
    values: pb.ValuePlane, buffers: list[Any], layers: Sequence[SlotLayer], rows: int
) -> EncodedPage:
    structure, payloads = write_structure(layers)
    plane = pb.StructuralPlane(sparse=structure)
    return _planar(plane, values, [*buffers, *payloads], rows)


def _planar(
    structure: pb.StructuralPlane, values: pb.ValuePlane, buffers: list[Any], rows: int
) -> EncodedPage:
    layout = pb.PlanarLayout(structure=structure, values=values)
    return EncodedPage(layout, buffers, rows)


def _value_plane(page: EncodedPage, *, dense: bool) -> pb.ValuePlane:
    """Return the values of a mini-block or full-zip page, with its levels for dense structure."""
    if page.layout.WhichOneof("layout") == "full_zip_layout":
        return pb.ValuePlane(zipped=_zipped(page, dense=dense))
    layout, chunked = page.layout.mini_block_layout, pb.ChunkedValues()
    copy_fields(layout, chunked)
    if dense:
        chunked.levels.SetInParent()
        copy_fields(layout, chunked.levels)
    else:
        chunked.ClearField("num_items")
    return pb.ValuePlane(chunked=chunked)


def _zipped(page: EncodedPage, *, dense: bool) -> pb.ZippedValues:
    layout, zipped = page.layout.full_zip_layout, pb.ZippedValues()
    copy_fields(layout, zipped)
    if dense:
        zipped.levels.SetInParent()
        copy_fields(layout, zipped.levels)
    return zipped
