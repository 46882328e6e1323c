"""What is asked of a schema before anything walks it: few levels, and names that are texts.

Code that walks types, also in Arrow, recurses; and parsers of Arrow do not look at names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from glaive.errors import SchemaError

__all__ = ["MAX_NESTING", "check_schema", "without_json_strings"]

MAX_NESTING: Final = 64
"""Maximum levels of a type, the column included: far more than data need, and far fewer than
Python or the stack of a thread can take."""


_JSON_STRINGS: Final = re.compile(rb'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?')
"""Within a line, as JSON has them: one without an end hides nothing of the next line.

It is no JSON, and readers stop there. It is matched up to the end of its line: else each mark that
is escaped in it would begin another search for that end.
"""


def without_json_strings(text: bytes | memoryview) -> bytes:
    """JSON without its strings, in which brackets stand for nothing."""
    return _JSON_STRINGS.sub(b"", text)


def check_schema(schema: pa.Schema) -> None:
    """Refuse types that are nested too deeply, without recursion, and texts that are not UTF-8.

    Raises
    ------
    SchemaError
        A column has more than :data:`MAX_NESTING` levels, or a name or metadata is not UTF-8.
    """
    try:
        _check_metadata(schema.metadata, "the schema")
        for field in schema:
            _check_metadata(field.metadata, field.name)
        for at, kind in enumerate(schema.types):
            if type(kind) is not pa.DataType:  # numbers, texts: most columns, which have no parts
                _check_parts(schema, at, kind)
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"the name of a column or of a member is not UTF-8: {error}. Rename it before writing"
        ) from None


def _check_metadata(metadata: Mapping[bytes, bytes] | None, name: str) -> None:
    for key, value in metadata.items() if metadata else ():
        if key.endswith(b":extension:metadata"):  # any bytes, as Arrow says
            continue
        try:
            _ = key.decode(), value.decode()
        except UnicodeDecodeError:
            raise SchemaError(
                f"metadata of {name!r}: the value of {key!r} is not UTF-8. Encode bytes as Base64"
            ) from None


def _check_parts(schema: pa.Schema, at: int, kind: Any) -> None:
    level = _parts(kind)
    for _ in range(MAX_NESTING - 1):
        if not level:
            return
        level = [part for data_type in level for part in _parts(data_type)]
    if level:
        name = schema.field(at).name
        raise SchemaError(f"column {name!r}: nested deeper than {MAX_NESTING} levels. Flatten it.")


def _parts(kind: Any) -> list[Any]:
    if isinstance(kind, pa.BaseExtensionType):
        return [kind.storage_type]
    if isinstance(kind, pa.DictionaryType):
        return [kind.value_type]
    fields = [kind.field(at) for at in range(kind.num_fields)]
    for field in fields:
        _check_metadata(field.metadata, field.name)
    return [field.type for field in fields]
