"""Structs of which a source has only some members: the other members keep their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.errors import SchemaError
from glaive.expr.coerce import is_list

__all__ = ["is_partial", "keep_members"]


def is_partial(given: Any, full: Any) -> bool:
    """Whether ``given`` lacks members of structs, at any depth, that ``full`` has."""
    if pa.types.is_struct(given) and pa.types.is_struct(full):
        if given.num_fields < full.num_fields:
            return True
        members = {field.name: field.type for field in full}
        return any(
            field.name in members and is_partial(field.type, members[field.name]) for field in given
        )
    if is_list(given, fixed=True) and is_list(full, fixed=True):
        return is_partial(given.value_type, full.value_type)
    return False


def keep_members(new: Any, old: Any, name: str) -> Any:
    """The values of ``new`` with the members that only ``old`` has.

    A struct is null where both are null, as a null in ``new`` does not cover the missing members.
    List items are matched by position, so lists must keep their lengths.

    Parameters
    ----------
    new, old
        Arrays of equal length; ``old`` has all members.
    name
        Name of the column, for the message.

    Raises
    ------
    SchemaError
        The length of a list of structs differs.
    """
    if not is_partial(new.type, old.type):
        return new
    if pa.types.is_struct(old.type):
        return _structs(new, old, name)
    return _lists(new, old, name)


def _structs(new: Any, old: Any, name: str) -> Any:
    given = dict(zip((field.name for field in new.type), new.flatten(), strict=True))
    children = [
        keep_members(given[field.name], had, f"{name}.{field.name}") if field.name in given else had
        for field, had in zip(old.type, old.flatten(), strict=True)
    ]
    kinds = [field.with_type(child.type) for field, child in zip(old.type, children, strict=True)]
    neither = pc.and_(new.is_null(), old.is_null())
    return pa.StructArray.from_arrays(children, fields=kinds, mask=neither)


def _lists(new: Any, old: Any, name: str) -> Any:
    if pa.types.is_fixed_size_list(old.type):
        # Null fixed-size lists have items, too.
        size = old.type.list_size
        given, had = (
            array.values.slice(array.offset * size, len(array) * size) for array in (new, old)
        )
        items = keep_members(given, had, f"{name}.item")
        data_type = pa.list_(old.type.value_field.with_type(items.type), size)
        return pa.FixedSizeListArray.from_arrays(items, type=data_type, mask=_nulls(new))
    counts = [pc.fill_null(pc.list_value_length(array), 0) for array in (new, old)]
    differ = pc.index(pc.not_equal(*counts), True).as_py()
    if differ >= 0:
        lengths = " and ".join(str(count[differ].as_py()) for count in counts)
        raise SchemaError(
            f"column {name!r}: the source has only some members of structs in lists, {new.type}, "
            f"and the dataset has {old.type}. Keeping the other members requires lists of the same "
            f"length, found {lengths} items. Give all members, or leave the column out."
        )
    items = keep_members(new.flatten(), old.flatten(), f"{name}.item")
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[0].to_numpy())])
    field = old.type.value_field.with_type(items.type)
    if pa.types.is_list(old.type):
        offsets: Any = pa.array(ends.astype(np.int32))
        return pa.ListArray.from_arrays(offsets, items, type=pa.list_(field), mask=_nulls(new))
    data_type = pa.large_list(field)
    return pa.LargeListArray.from_arrays(pa.array(ends), items, type=data_type, mask=_nulls(new))


def _nulls(array: Any) -> Any:
    return array.is_null() if array.null_count else None
