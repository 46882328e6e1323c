"""Choose the array encodings of a page of format 2.0.

===================== ====================================================================
type                  encoding
===================== ====================================================================
string                dictionary from 100 rows on when fewer than 100 differ, else binary
other text, binary    binary
Arrow dictionary      dictionary; nulls point to an item that is null
packed struct         packed struct
other types           flat under nullable
===================== ====================================================================

Specification: "What writers choose in format 2.0" in ``docs/format/arrays.md``.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.blocks import FixedWidth, slice_bits
from glaive.arrow.build import block_from_array, offset_bits
from glaive.encodings.array_protocol import ArrayEncoding, Outlet
from glaive.encodings.arrays.plain import (
    Binary,
    Dictionary,
    FixedSizeList,
    Flat,
    Nullable,
    fixed_bits,
)
from glaive.encodings.arrays.rare import PackedStruct, packed_width
from glaive.encodings.compression import Scheme
from glaive.errors import SchemaError

_MIN_DICTIONARY_ROWS: Final = 100
"""A page with fewer strings gets no dictionary."""


def encode_values(
    array: Any, out: Outlet, scheme: Scheme | None = None, level: int | None = None
) -> ArrayEncoding:
    """Put the values of a column without children into a page.

    Parameters
    ----------
    scheme, level
        Compression of the bytes of strings; nothing else is compressed in format 2.0.

    Raises
    ------
    SchemaError
        Format 2.0 cannot hold such values.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return encode_values(array.storage, out, scheme, level)
    if offset_bits(kind) is not None:
        # Readers support dictionaries of plain strings only.
        if pa.types.is_string(kind) and len(array) >= _MIN_DICTIONARY_ROWS:
            dictionary = Dictionary.write_text(array, out)
            if dictionary is not None:
                return dictionary
        return Binary.write(array, out, scheme, level)
    if pa.types.is_dictionary(kind):
        return _dictionary(array, out)
    if pa.types.is_struct(kind):
        return _packed(array, out)
    return _nullable(array, out)


def _nullable(array: Any, out: Outlet) -> Nullable:
    """Fixed-width values and lists of them, with a bitmap when some are null."""
    kind, count = array.type, len(array)
    if pa.types.is_null(kind) or (count == array.null_count and not pa.types.is_nested(kind)):
        return Nullable(kind, None, None)
    validity = None
    if array.null_count:
        bitmap = slice_bits(array.buffers()[0], array.offset, count)
        validity = Flat.write(pa.bool_(), bitmap, out)
    return Nullable(kind, validity, _plain(array, out))


def _plain(array: Any, out: Outlet) -> ArrayEncoding:
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        if isinstance(items.type, pa.BaseExtensionType):
            items = items.storage
        return FixedSizeList(kind, size, _nullable(items, out))
    block = block_from_array(array) if fixed_bits(kind) is not None else None
    if not isinstance(block, FixedWidth):
        raise SchemaError(
            f"values of type {kind} cannot be written in format 2.0; cast the column, for instance "
            "to a list"
        )
    return Flat.write(kind, block.values, out)


def _dictionary(array: Any, out: Outlet) -> Dictionary:
    """An Arrow dictionary, unchanged but for an item for nulls."""
    kind = array.type
    indices, items = array.indices, array.dictionary
    if indices.null_count:
        if not items.null_count:
            items = pa.concat_arrays([items, pa.nulls(1, items.type)])
        at = pc.index(items.is_null(), value=True).as_py()
        most = 2 ** (kind.index_type.bit_width - pa.types.is_signed_integer(kind.index_type)) - 1
        if at > most:
            raise SchemaError(
                f"a dictionary of {len(items)} items and nulls needs wider indices than "
                f"{kind.index_type} in format 2.0; cast the column to {kind.value_type}"
            )
        indices = pc.fill_null(indices, pa.scalar(at, kind.index_type))
    encoded = _nullable(indices, out)
    return Dictionary(kind, encoded, _items(items, out), len(items))


def _items(items: Any, out: Outlet) -> ArrayEncoding:
    """Items of a dictionary: never a dictionary themselves."""
    if offset_bits(items.type) is not None:
        return Binary.write(items, out)
    return _nullable(items, out)


def _remedy(member: Any) -> str:
    if member.null_count or offset_bits(member.type) is None:
        return ""
    return ", or use data_storage_version 2.2"


def _packed(array: Any, out: Outlet) -> PackedStruct:
    """Members of whole bytes without nulls, row by row."""
    members, values = [], []
    for number, member in enumerate(array.type):
        child = array.field(number)
        own = Outlet()
        encoding = None
        if not child.null_count and offset_bits(member.type) is None:
            encoding = _nullable(child, own)
        if encoding is None or packed_width(encoding) is None:
            raise SchemaError(
                f"member {member.name!r} ({member.type}) of a packed struct: format 2.0 packs "
                "fixed-width values of whole bytes without nulls. Remove 'packed' from the "
                f"field's metadata{_remedy(child)}"
            )
        members.append(encoding)
        values.append(pa.py_buffer(own.buffers[0]))
    return PackedStruct.write(array.type, members, values, len(array), out)
