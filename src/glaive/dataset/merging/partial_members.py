"""Structs of which a source gives some members: the others keep the values they have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from glaive.errors import SchemaError

__all__ = ["is_partial", "keep_members"]


def is_partial(given: Any, full: Any) -> bool:
    """Whether ``given`` lacks members of structs, at any depth, that ``full`` has."""
    if pa.types.is_struct(given) and pa.types.is_struct(full):
        if given.num_fields < full.num_fields:
            return True
        members = {one.name: one.type for one in full}
        return any(one.name in members and is_partial(one.type, members[one.name]) for one in given)
    if _is_list(given) and _is_list(full):
        return is_partial(given.value_type, full.value_type)
    return False


def keep_members(new: Any, old: Any, name: str) -> Any:
    """The values of ``new`` with the members that only ``old`` has.

    A struct is null where both are: a null that lacks members says nothing of those.

    Parameters
    ----------
    new, old
        Arrays of equal length; ``old`` has all members.
    name
        Of the column, for the message.

    Raises
    ------
    SchemaError
        The structs are items of lists: which items belong together is not known.
    """
    if not is_partial(new.type, old.type):
        return new
    if not pa.types.is_struct(old.type):
        raise SchemaError(
            f"column {name!r}: the source gives some members of structs in lists, {new.type}, and "
            f"the dataset has {old.type}. Give all members, or leave the column out."
        )
    given = dict(zip((one.name for one in new.type), new.flatten(), strict=True))
    children = [
        keep_members(given[one.name], had, f"{name}.{one.name}") if one.name in given else had
        for one, had in zip(old.type, old.flatten(), strict=True)
    ]
    kinds = [one.with_type(child.type) for one, child in zip(old.type, children, strict=True)]
    neither = pc.and_(new.is_null(), old.is_null())
    return pa.StructArray.from_arrays(children, fields=kinds, mask=neither)


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
