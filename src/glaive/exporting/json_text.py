"""Arrow values as JSON texts, column by column.

As Spark writes them: times in ISO 8601, numbers that JSON lacks as texts, decimals as numbers.
Nulls are written, so that every line has all columns.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.errors import SchemaError

__all__ = ["check_json_types", "json_lines", "json_texts"]

_TEXT: Final = pa.large_string()
_CONTROL: Final = {number: f"\\u{number:04x}" for number in range(32)} | {
    8: "\\b",
    9: "\\t",
    10: "\\n",
    12: "\\f",
    13: "\\r",
}
"""Characters that JSON has to escape, besides quotation mark and backslash."""


def check_json_types(schema: pa.Schema) -> None:
    """Refuse columns that JSON has no values for.

    Raises
    ------
    SchemaError
        A column holds bytes; names it.
    """
    for field in schema:
        if _has_bytes(field.type):
            raise SchemaError(
                f"column {field.name}: JSON has no bytes, found {field.type}. Leave the column "
                "out, or export as parquet or arrow"
            )


def json_lines(batch: pa.RecordBatch) -> pa.Buffer:
    """The rows of a batch, each a JSON object and a line end."""
    rows = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
    lines: Any = pc.binary_join_element_wise(json_texts(rows), _constant(""), _constant("\n"))
    offsets = np.frombuffer(lines.buffers()[1], np.int64)[lines.offset :]
    first, end = int(offsets[0]), int(offsets[len(lines)])
    data: pa.Buffer = lines.buffers()[2]
    return data.slice(first, end - first)


def json_texts(values: Any) -> Any:
    """The values of an array as JSON; ``null`` for null."""
    data_type = values.type
    if isinstance(values, pa.ExtensionArray):
        return json_texts(values.storage)
    if pa.types.is_null(data_type):
        return pa.repeat(_constant("null"), len(values))
    if pa.types.is_dictionary(data_type):
        return json_texts(values.cast(data_type.value_type))
    if pa.types.is_struct(data_type):
        texts = _members(values)
    elif pa.types.is_map(data_type):
        texts = _entries(values)
    elif hasattr(data_type, "value_field"):
        texts = _joined(values, json_texts(values.flatten()), "[", "]")
    else:
        texts = _plain(values)
    return pc.fill_null(texts, _constant("null"))


def _plain(values: Any) -> Any:
    """Texts of values that are not nested; null for null."""
    data_type = values.type
    types = pa.types
    if types.is_boolean(data_type) or types.is_integer(data_type) or types.is_decimal(data_type):
        return values.cast(_TEXT)
    if types.is_floating(data_type):
        return _numbers(values)
    if types.is_timestamp(data_type):
        texts = values.cast(_TEXT)
        iso = pc.replace_substring(texts, " ", "T", max_replacements=1)
        return _quoted(pc.if_else(pc.starts_with(texts, "<"), texts, iso))  # <value out of range…>
    if types.is_duration(data_type):
        return values.cast(pa.int64()).cast(_TEXT)
    return _quoted(_escaped(values.cast(_TEXT)))


def _numbers(values: Any) -> Any:
    """Numbers of which some may be infinite, or none."""
    if values.type == pa.float16():
        values = values.cast(pa.float32())
    texts = values.cast(_TEXT)
    for special, text in (
        (pc.is_nan(values), '"NaN"'),
        (pc.equal(values, pa.scalar(float("inf"), values.type)), '"Infinity"'),
        (pc.equal(values, pa.scalar(float("-inf"), values.type)), '"-Infinity"'),
    ):
        texts = pc.if_else(special, _constant(text), texts)
    return texts


def _escaped(texts: Any) -> Any:
    for character, escape in (("\\", "\\\\"), ('"', '\\"')):
        texts = pc.replace_substring(texts, character, escape)
    if pc.any(pc.match_substring_regex(texts, "[\\x00-\\x1f]")).as_py():
        for number, escape in _CONTROL.items():
            texts = pc.replace_substring(texts, chr(number), escape)
    return texts


def _quoted(texts: Any) -> Any:
    return _around(texts, '"', '"')


def _members(values: Any) -> Any:
    """Structs as objects; null for null."""
    parts: list[Any] = []
    for number, (field, column) in enumerate(zip(values.type, values.flatten(), strict=True)):
        name = _quoted(_escaped(pa.array([field.name], _TEXT)))[0].as_py()
        parts += [_constant(f"{',' if number else '{'}{name}:"), json_texts(column)]
    if not parts:
        parts = [pa.repeat(_constant("{"), len(values))]
    texts = pc.binary_join_element_wise(*parts, _constant("}"), _constant(""))
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, _TEXT))


def _entries(values: Any) -> Any:
    """Maps as objects; keys are texts; null for null."""
    # As lists: Arrow counts the entries of these, and leaves out what lies behind null maps.
    key, item = values.type.key_field, values.type.item_field
    lists = values.cast(pa.list_(pa.struct([key, item])))
    keys, items = lists.flatten().flatten()
    names = json_texts(keys)
    # Those of texts and times are texts already, those of numbers, lists and structs are none.
    names = pc.if_else(pc.starts_with(names, '"'), names, _quoted(_escaped(names)))
    pairs = pc.binary_join_element_wise(names, json_texts(items), _constant(":"))
    return _joined(lists, pairs, "{", "}")


def _joined(values: Any, texts: Any, opening: str, closing: str) -> Any:
    """The texts of each list, with commas; null for null."""
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    ends = np.cumsum(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)
    offsets = pa.array(np.concatenate([np.zeros(1, np.int64), ends]))
    lists = pa.LargeListArray.from_arrays(offsets, texts)
    joined = _around(pc.binary_join(lists, _constant(",")), opening, closing)
    return pc.if_else(values.is_valid(), joined, pa.scalar(None, _TEXT))


def _around(texts: Any, before: str, after: str) -> Any:
    return pc.binary_join_element_wise(_constant(before), texts, _constant(after), _constant(""))


def _constant(text: str) -> Any:
    return pa.scalar(text, _TEXT)


def _has_bytes(data_type: Any) -> bool:
    types = pa.types
    if isinstance(data_type, pa.BaseExtensionType):
        return _has_bytes(data_type.storage_type)
    if types.is_binary(data_type) or types.is_large_binary(data_type):
        return True
    if types.is_fixed_size_binary(data_type) or types.is_binary_view(data_type):
        return True
    if types.is_dictionary(data_type):
        return _has_bytes(data_type.value_type)
    return any(_has_bytes(data_type.field(at).type) for at in range(data_type.num_fields))
