"""Choose the planes of a 2.3 page, and encode it.

The value plane follows from the equivalent 2.2 page. Levels are stored with the values (dense
structure) if chunks can hold them and sparse structure is not requested; pages with less than
one value per chunk of levels, constants with nulls and pages without values have sparse
structure.

Specification: "Writer choices" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from glaive.arrow.blocks import FixedList, FixedWidth
from glaive.arrow.build import block_from_array
from glaive.encodings.leaf import Layer
from glaive.encodings.levels.repdef import Levels
from glaive.encodings.options import AUTOMATIC, EncodingOptions
from glaive.encodings.page_options import PageOptions
from glaive.encodings.pages.constant import MAX_INLINE
from glaive.encodings.pages.full_zip import encode_full_zip_page
from glaive.encodings.protocol import EncodedPage, ValueEncoding
from glaive.encodings.registry import read_encoding
from glaive.encodings.values.fixed_size_list import FixedSizeList
from glaive.encodings.writing.indexed_values import LARGE_ITEMS, encode_indexed, size_of
from glaive.encodings.writing.page import encode_page, single_value
from glaive.encodings.writing.sparse import SlotLayer, layers_of, valid_leaves, write_structure
from glaive.encodings.writing.symbol_table import PageSymbols
from glaive.errors import SchemaError
from glaive.format.pb import encodings21_pb2, encodings23_pb2
from glaive.types import Where

__all__ = ["encode_planar_page", "encode_sparse_page"]

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
        Dimension of each layer that is a fixed-size list of structs, None for other layers,
        inner-most first; empty when there are none.
    symbols
        FSST symbols that the pages of the column share.
    """
    nested = levels.rep is not None or levels.definition is not None
    sparse = nested and wanted.structural_encoding == "sparse"
    if wanted.structural_encoding == "sparse":
        wanted = replace(wanted, structural_encoding=None)
    page = None if sparse else encode_page(array, levels, rows, options, wanted, symbols)
    if page is not None:
        layout = _page_layout(page)
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
    """Encode a page of sparse structure; its values are encoded like a column without nulls.

    Parameters
    ----------
    array
        A value for each inner-most slot, null or not.
    layers
        Outer-most first.
    rows
        Rows, times the dimensions of all fixed-size lists of structs.
    """
    valid = valid_leaves(layers)
    no_values = encodings23_pb2.ValuePlane(no_values=encodings23_pb2.NoValues())
    if not len(array) or (valid is not None and not valid.any()) or _is_empty(array.type):
        return _sparse(no_values, [], layers, rows)
    if wanted.structural_encoding == "sparse":
        wanted = replace(wanted, structural_encoding=None)
    scalar = single_value(array) if options.scalar_constants else None
    if isinstance(scalar, FixedWidth) and not scalar.bits % 8:
        constant = encodings23_pb2.ConstantValues(scalar=scalar.values.to_pybytes())
        if len(constant.scalar) <= MAX_INLINE:
            return _sparse(encodings23_pb2.ValuePlane(constant=constant), [], layers, rows)
    count = len(array)
    plain = Levels(None, None, (Layer.ALL_VALID_ITEM,))
    page = encode_page(array, plain, count, options, wanted, symbols)
    if page is None:
        raise SchemaError(f"values of type {array.type} do not fit one page; write fewer rows")
    layout = _page_layout(page)
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
        # Slots that are null have no value.
        block = block_from_array(array.filter(pa.array(valid)))
        if isinstance(block, FixedList):
            # Without null lists their items may need no validity.
            encoding: ValueEncoding = FixedSizeList.for_block(block)
        else:
            encoding = read_encoding(layout.full_zip_layout.value_compression, _WHERE)
        page = encode_full_zip_page(block, encoding, layers=plain.layers, rows=block.count)
    values = _value_plane(page, dense=False)
    return _sparse(values, page.buffers, layers, rows)


def _indexed(
    array: pa.Array, page: EncodedPage, wanted: EncodingOptions
) -> tuple[encodings23_pb2.ValuePlane, list[Any]] | None:
    """The values of a page with a large dictionary as indexed values, if these are smaller."""
    layout = _page_layout(page).mini_block_layout
    items = layout.num_dictionary_items
    if pa.types.is_dictionary(array.type) or array.nbytes // len(array) * items < LARGE_ITEMS:
        return None
    encoded = encode_indexed(array, wanted)
    if encoded is None or encoded.size >= sum(map(size_of, page.buffers)):
        return None
    values = encodings23_pb2.IndexedValues(
        indices=encoded.indices.encoding.to_wire(),
        items=_full_zip(_page_layout(encoded.items).full_zip_layout, dense=False),
    )
    return encodings23_pb2.ValuePlane(indexed=values), encoded.buffers


def _is_empty(kind: pa.DataType) -> bool:
    """Whether it is a struct without members."""
    return pa.types.is_struct(kind) and not kind.num_fields


# ------------------------------------------------------------------------- messages


def _page_layout(page: EncodedPage) -> encodings21_pb2.PageLayout:
    if not isinstance(page.layout, encodings21_pb2.PageLayout):
        raise TypeError("the page already consists of two planes")
    return page.layout


def _constant(page: EncodedPage) -> encodings23_pb2.ValuePlane | None:
    """The value plane of a constant page; None when its value does not fit the message."""
    layout = _page_layout(page).constant_layout
    if layout.HasField("inline_value"):
        constant = encodings23_pb2.ConstantValues(scalar=layout.inline_value)
        return encodings23_pb2.ValuePlane(constant=constant)
    if len(page.buffers) % 2:
        return None
    return encodings23_pb2.ValuePlane(no_values=encodings23_pb2.NoValues())


def _dense(page: EncodedPage, layers: tuple[Layer, ...]) -> EncodedPage:
    values = _value_plane(page, dense=True)
    return _planar(_dense_structure(layers), values, page.buffers, page.rows)


def _dense_structure(layers: tuple[Layer, ...]) -> encodings23_pb2.StructuralPlane:
    numbers = [encodings21_pb2.RepDefLayer.ValueType(layer) for layer in layers]
    dense = encodings23_pb2.DenseStructure(layers=numbers)
    return encodings23_pb2.StructuralPlane(dense=dense)


def _sparse(
    values: encodings23_pb2.ValuePlane, buffers: list[Any], layers: Sequence[SlotLayer], rows: int
) -> EncodedPage:
    structure, payloads = write_structure(layers)
    plane = encodings23_pb2.StructuralPlane(sparse=structure)
    return _planar(plane, values, [*buffers, *payloads], rows)


def _planar(
    structure: encodings23_pb2.StructuralPlane,
    values: encodings23_pb2.ValuePlane,
    buffers: list[Any],
    rows: int,
) -> EncodedPage:
    layout = encodings23_pb2.PlanarLayout(structure=structure, values=values)
    return EncodedPage(layout, buffers, rows)


def _value_plane(page: EncodedPage, *, dense: bool) -> encodings23_pb2.ValuePlane:
    """The values of a mini-block or full-zip page, with its levels for dense structure."""
    layout = _page_layout(page)
    if layout.WhichOneof("layout") == "full_zip_layout":
        zipped = _full_zip(layout.full_zip_layout, dense=dense)
        return encodings23_pb2.ValuePlane(zipped=zipped)
    return encodings23_pb2.ValuePlane(chunked=_chunked(layout.mini_block_layout, dense=dense))


def _chunked(
    layout: encodings21_pb2.MiniBlockLayout, *, dense: bool
) -> encodings23_pb2.ChunkedValues:
    chunked = encodings23_pb2.ChunkedValues(
        value_compression=layout.value_compression,
        num_dictionary_items=layout.num_dictionary_items,
        num_buffers=layout.num_buffers,
    )
    if layout.HasField("dictionary"):
        chunked.dictionary.CopyFrom(layout.dictionary)
    if dense:
        chunked.num_items = layout.num_items
        levels = encodings23_pb2.DenseChunkLevels(
            repetition_index_depth=layout.repetition_index_depth
        )
        if layout.HasField("rep_compression"):
            levels.rep_compression.CopyFrom(layout.rep_compression)
        if layout.HasField("def_compression"):
            levels.def_compression.CopyFrom(layout.def_compression)
        chunked.levels.CopyFrom(levels)
    return chunked


def _full_zip(
    layout: encodings21_pb2.FullZipLayout, *, dense: bool
) -> encodings23_pb2.ZippedValues:
    zipped = encodings23_pb2.ZippedValues(
        value_compression=layout.value_compression,
        num_items=layout.num_items,
        num_visible_items=layout.num_visible_items,
    )
    if layout.WhichOneof("details") == "bits_per_value":
        zipped.bits_per_value = layout.bits_per_value
    else:
        zipped.bits_per_offset = layout.bits_per_offset
    if dense:
        levels = encodings23_pb2.DenseZipLevels(bits_rep=layout.bits_rep, bits_def=layout.bits_def)
        zipped.levels.CopyFrom(levels)
    return zipped
