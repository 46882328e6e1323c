"""Members of structs that Arrow leaves out of values that become those of another type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["lost_member", "lost_members_of"]


def lost_member(given: Any, wanted: Any) -> str | None:
    """A member of structs, at any depth, that is not in the type to cast to: a cast leaves it out.

    Returns its path, or None.
    """
    if isinstance(given, pa.BaseExtensionType):
        return lost_member(given.storage_type, wanted)
    if isinstance(wanted, pa.BaseExtensionType):
        return lost_member(given, wanted.storage_type)
    is_struct = pa.types.is_struct(given)
    if is_struct != pa.types.is_struct(wanted) or given.equals(wanted):
        return None
    if is_struct:
        known = {member.name: member for member in wanted}
        pairs = [(member, known.get(member.name)) for member in given]
    elif given.num_fields == wanted.num_fields:
        pairs = [(given.field(at), wanted.field(at)) for at in range(given.num_fields)]
    else:
        return None
    for member, other in pairs:
        if other is None:
            return str(member.name)
        inner = lost_member(member.type, other.type)
        if inner is not None:
            return f"{member.name}.{inner}"
    return None


def lost_members_of(values: Any, wanted: Any) -> str | None:
    """The same for a column of pandas, whose values may be mappings.

    None also where no type holds all of them: these do not become others without an error.
    """
    if not _has_members(wanted):
        return None
    try:
        given = pa.Array.from_pandas(values).type
    except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return lost_member(given, wanted)


def _has_members(kind: Any) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_members(kind.storage_type)
    return pa.types.is_struct(kind) or any(
        _has_members(kind.field(at).type) for at in range(kind.num_fields)
    )
