"""Text: case, length, trimming, cutting, searching, joining."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from glaive.errors import FilterError
from glaive.expr.functions.registry import Call, Types, function

__all__: list[str] = []


def _one_text(call: Call) -> Types:
    if len(call.types) != 1:
        raise FilterError(f"{call.name} takes 1 argument, {len(call.types)} are given")
    kind = call.types[0]
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise FilterError(f"{call.name} takes text, not {kind}")
    return (kind,), kind


@function("upper", takes=_one_text)
def _upper(text: Any) -> Any:
    return pc.utf8_upper(text)


@function("lower", takes=_one_text)
def _lower(text: Any) -> Any:
    return pc.utf8_lower(text)
