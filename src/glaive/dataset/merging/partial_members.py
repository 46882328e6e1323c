"""Structs of which a source gives some members: the others keep the values they have."""

from __future__ import annotations

from typing import Any

import numpy as np
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

    A struct is null where both are: a null that lacks members says nothing of those. Items
    of lists belong together by their place; so lists must be as long as they were.

    Parameters
    ----------
    new, old
        Arrays of equal length; ``old`` has all members.
    name
        Of the column, for the message.

    Raises
    ------
    SchemaError
        A list of structs has another length than it had.
    """
    if not is_partial(new.type, old.type):
        return new
    if pa.types.is_struct(old.type):
        return _structs(new, old, name)
    return _lists(new, old, name)


def _structs(new: Any, old: Any, name: str) -> Any:
    given = dict(zip((one.name for one in new.type), new.flatten(), strict=True))
    children = [
        keep_members(given[one.name], had, f"{name}.{one.name}") if one.name in given else had
        for one, had in zip(old.type, old.flatten(), strict=True)
    ]
    kinds = [one.with_type(child.type) for one, child in zip(old.type, children, strict=True)]
    neither = pc.and_(new.is_null(), old.is_null())
    return pa.StructArray.from_arrays(children, fields=kinds, mask=neither)


def _lists(new: Any, old: Any, name: str) -> Any:
    if pa.types.is_fixed_size_list(old.type):
        # Items under a null are there, whatever they are.
        size = old.type.list_size
        given, had = (one.values.slice(one.offset * size, len(one) * size) for one in (new, old))
        items = keep_members(given, had, f"{name}.item")
        kind = pa.list_(old.type.value_field.with_type(items.type), size)
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=_nulls(new))
    counts = [pc.fill_null(pc.list_value_length(one), 0) for one in (new, old)]
    differ = pc.index(pc.not_equal(*counts), True).as_py()
    if differ >= 0:
        lengths = " and ".join(str(count[differ].as_py()) for count in counts)
        raise SchemaError(
            f"column {name!r}: the source gives some members of structs in lists, {new.type}, and "
            f"the dataset has {old.type}. The others are kept where lists are as long as they "
            f"were; {lengths} items differ. Give all members, or leave the column out."
        )
    items = keep_members(new.flatten(), old.flatten(), f"{name}.item")
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[0].to_numpy())])
    field = old.type.value_field.with_type(items.type)
    if pa.types.is_list(old.type):
        offsets: Any = pa.array(ends.astype(np.int32))
        return pa.ListArray.from_arrays(offsets, items, type=pa.list_(field), mask=_nulls(new))
    kind = pa.large_list(field)
    return pa.LargeListArray.from_arrays(pa.array(ends), items, type=kind, mask=_nulls(new))


def _nulls(array: Any) -> Any:
    return array.is_null() if array.null_count else None


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
