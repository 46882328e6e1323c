"""Lists, large lists and maps over resolved offsets."""

from __future__ import annotations

import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.types import Where

__all__ = ["list_array"]


def list_array(
    kind: pa.DataType,
    slots: int,
    validity: pa.Buffer | None,
    null_count: int,
    offsets: pa.Buffer,
    items: pa.Array,
    where: Where,
) -> pa.Array:
    """A list, large list or map array over resolved offsets and the items' array, without a copy.

    Parameters
    ----------
    slots
        Lists, null ones included.
    validity
        A bit per list; ``None`` if none is null.
    null_count
        How many are null.
    offsets
        ``slots + 1`` ascending numbers of the width that the type has.
    items
        The items of all lists, one list after the other.

    Raises
    ------
    CorruptFileError
        The last list ends behind the items: what follows them is foreign memory.
    """
    width = 8 if pa.types.is_large_list(kind) else 4
    last = int.from_bytes(offsets.slice(slots * width, width).to_pybytes(), "little", signed=True)
    if not 0 <= last <= len(items):
        expected, found = f"{last} items", f"{len(items)}"
        raise CorruptFileError("items of lists", expected=expected, found=found, where=where)
    return pa.Array.from_buffers(kind, slots, [validity, offsets], null_count, children=[items])
