"""Lists in text files: as texts in JSON, and as vectors that all have one length."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["holds_numbers", "numbers_of", "vectors_checked"]

_NUMBERS = r'^\s*\[[^\[\]{}"]*\]\s*$'
"""One list without lists, objects or texts in it: it cannot be read as more than one value."""


def holds_numbers(data_type: Any) -> bool:
    """Whether a type is that of lists or vectors of numbers."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(test(data_type) for test in lists):
        return False
    item = data_type.value_type
    return bool(pa.types.is_integer(item) or pa.types.is_floating(item))


def numbers_of(name: str, texts: Any, data_type: Any) -> Any:
    """Read a column of texts such as ``[0.25, 1e-3]`` as lists of numbers.

    Raises
    ------
    pyarrow.ArrowInvalid
        A text is no such list; names the column.
    """
    json: Any = import_module("pyarrow.json")

    item = data_type.value_type
    parsed: Any = pa.list_(pa.float32() if pa.types.is_float16(item) else item)
    texts = texts.combine_chunks()
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), parsed)
    wrong = pc.invert(pc.match_substring_regex(texts, _NUMBERS))
    if pc.any(wrong).as_py():
        found = texts.filter(wrong)[0].as_py()
        raise pa.ArrowInvalid(
            f"column {name}: expected a list of numbers as in JSON, such as [0.5, 2], found "
            f"{found[:60]!r}"
        )
    lines = pc.binary_join_element_wise('{"v":', pc.fill_null(texts, "null"), "}", "")
    whole: Any = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")
    data = whole[0].as_buffer()
    try:
        table = json.read_json(
            pa.BufferReader(data),
            read_options=json.ReadOptions(use_threads=False, block_size=data.size + 1),
            parse_options=json.ParseOptions(
                explicit_schema=pa.schema([pa.field("v", parsed)]), newlines_in_values=True
            ),
        )
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column {name}: {error}") from None
    return table.column("v")


def vectors_checked(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table whose lists have the lengths that the vectors of a schema have.

    Raises
    ------
    pyarrow.ArrowInvalid
        A list has another length; names the column.
    """
    for field in schema:
        if not pa.types.is_fixed_size_list(field.type) or field.name not in table.column_names:
            continue
        lengths = pc.list_value_length(table.column(field.name))
        wrong = pc.not_equal(lengths, field.type.list_size)
        if pc.any(wrong).as_py():
            raise pa.ArrowInvalid(
                f"column {field.name}: expected {field.type.list_size} numbers, found "
                f"{lengths.filter(wrong)[0].as_py()}"
            )
    return table
