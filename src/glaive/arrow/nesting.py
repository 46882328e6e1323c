"""A limit of the nesting of types, because code that walks them, also in Arrow, recurses."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from glaive.errors import SchemaError

__all__ = ["MAX_NESTING", "check_nesting"]

MAX_NESTING: Final = 64
"""Maximum levels of a type, the column included: far more than data need, and far fewer than
Python or the stack of a thread can take."""


def check_nesting(schema: pa.Schema) -> None:
    """Refuse a schema whose types are nested too deeply, without recursion.

    Raises
    ------
    SchemaError
        A column has more than :data:`MAX_NESTING` levels.
    """
    for at, kind in enumerate(schema.types):
        if type(kind) is pa.DataType:  # numbers, texts: most columns, which have no parts
            continue
        level = _parts(kind)
        for _ in range(MAX_NESTING - 1):
            if not level:
                break
            level = [part for data_type in level for part in _parts(data_type)]
        if level:
            name = schema.field(at).name
            raise SchemaError(
                f"column {name!r}: nested deeper than {MAX_NESTING} levels. Flatten it."
            )


def _parts(kind: Any) -> list[Any]:
    if isinstance(kind, pa.BaseExtensionType):
        return [kind.storage_type]
    if isinstance(kind, pa.DictionaryType):
        return [kind.value_type]
    return [kind.field(at).type for at in range(kind.num_fields)]
