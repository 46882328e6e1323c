"""Types whose values are views, on which Arrow has few kernels: no ``take``, no ``filter``."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["without_views"]


def without_views(kind: Any) -> Any:
    """The type with 64-bit offsets in place of views, at any depth; itself when it has none."""
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        field = kind.value_field
        inner = without_views(field.type)
        if inner == field.type:
            return kind
        field = field.with_type(inner)
        if types.is_fixed_size_list(kind):
            return pa.list_(field, kind.list_size)
        return pa.large_list(field) if types.is_large_list(kind) else pa.list_(field)
    if types.is_struct(kind):
        members = [member.with_type(without_views(member.type)) for member in kind]
        plain = pa.struct(members)
        return kind if plain == kind else plain
    return kind
