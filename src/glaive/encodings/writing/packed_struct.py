"""Write a page of packed structs: mini-blocks for rows of a fixed width, else full-zip.

Specification: "Writer choices" in ``docs/format/pages.md``.
"""

from __future__ import annotations

import pyarrow as pa

from glaive.arrow.blocks import FixedList, FixedWidth, Struct, Variable
from glaive.encodings.levels.repdef import Levels
from glaive.encodings.miniblock.writer import encode_mini_page
from glaive.encodings.options import AUTOMATIC, EncodingOptions
from glaive.encodings.pages.full_zip import encode_full_zip_page
from glaive.encodings.protocol import EncodedPage, ValueEncoding
from glaive.encodings.values.fixed_size_list import FixedSizeList
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.packed_struct import PackedStruct
from glaive.encodings.values.packed_struct_variable import Member, VariablePackedStruct
from glaive.encodings.writing.string_stats import VariableStats
from glaive.encodings.writing.variable_width import zip_text_encoding
from glaive.errors import SchemaError

__all__ = ["encode_packed_page"]

_LENGTH_BITS = 32
"""Width of the length in front of a nested packed struct."""


def encode_packed_page(
    block: Struct,
    kind: pa.DataType,
    levels: Levels,
    rows: int,
    wanted: EncodingOptions,
    *,
    large_chunks: bool,
    level_runs: bool,
) -> EncodedPage | None:
    """Encode one page; ``wanted.members`` are the options of each member.

    Returns
    -------
    EncodedPage or None
        None when the page has more levels than its layout can hold: split it.

    Raises
    ------
    SchemaError
        Rows are too wide for mini-blocks.
    """
    fixed = [member.bits for member in block.members if isinstance(member, FixedWidth)]
    if len(fixed) == len(block.members):
        encoding = PackedStruct(tuple(fixed))
        page = encode_mini_page(
            block,
            encoding,
            levels.rep,
            levels.definition,
            levels.layers,
            rows,
            large_chunks=large_chunks,
            level_runs=level_runs,
        )
        if page is None and rows == 1:
            raise SchemaError(
                f"rows of {sum(fixed) // 8} bytes are too wide for packed structs, or a row has "
                "too many of them. Remove 'packed' from the metadata of the column."
            )
        return page
    return encode_full_zip_page(
        block,
        _variable(block, kind, wanted),
        layers=levels.layers,
        rows=rows,
        rep=levels.rep,
        definition=levels.definition,
    )


def _variable(block: Struct, kind: pa.DataType, wanted: EncodingOptions) -> VariablePackedStruct:
    options = wanted.members or (AUTOMATIC,) * len(block.members)
    members = [_member(block, at, kind.field(at).type, own) for at, own in enumerate(options)]
    return VariablePackedStruct(tuple(members))


def _member(block: Struct, at: int, kind: pa.DataType, wanted: EncodingOptions) -> Member:
    values = block.members[at]
    if isinstance(values, FixedWidth):
        return Member(Flat(values.bits), values.bits, is_variable=False)
    if isinstance(values, FixedList):
        lists = FixedSizeList.for_block(values)
        return Member(lists, lists.bits_per_value, is_variable=False)
    if isinstance(values, Variable):
        encoding: ValueEncoding = zip_text_encoding(VariableStats.of(values), kind, wanted)
        return Member(encoding, values.offset_bits, is_variable=True)
    if isinstance(values, Struct):
        fixed = [member.bits for member in values.members if isinstance(member, FixedWidth)]
        if len(fixed) == len(values.members):
            return Member(PackedStruct(tuple(fixed)), sum(fixed), is_variable=False)
        return Member(_variable(values, kind, wanted), _LENGTH_BITS, is_variable=True)
    raise SchemaError(f"values of type {kind} cannot be members of packed structs")
