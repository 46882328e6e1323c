"""Divide arrays into the pages of a 0.1 file and write them.

Pages of one column that are written at once are adjacent: a reader finds one run of values.

Specification: "Pages" in ``docs/format/legacy.md``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.blocks import FixedWidth, Variable
from glaive.arrow.build import block_from_array
from glaive.encodings.legacy.lists import encode_lists
from glaive.encodings.legacy.plain import encode_plain
from glaive.encodings.legacy.var_binary import encode_var_binary
from glaive.errors import SchemaError
from glaive.format.fields import Field
from glaive.io.sink import AlignedSink
from glaive.io.store import BytesLike
from glaive.memory import items_of
from glaive.types import Int64s

__all__ = ["PageWriter"]

_MAX_ENTRIES: Final = 4 * 1024 * 1024
"""Entries of a page table, of 16 bytes: ids that lie far apart leave most of it empty."""


class PageWriter:
    """Writes pages and keeps the page table.

    Parameters
    ----------
    dictionaries
        Items by field id, shared by all files of a dataset: those of the first array of a field
        apply to all later ones.
    """

    def __init__(self, sink: AlignedSink, dictionaries: dict[int, pa.Array]) -> None:
        self.sink = sink
        self.dictionaries = dictionaries
        self.table: dict[int, list[Int64s]] = {}

    def write(self, field: Field, array: Any, bounds: Int64s) -> None:
        """Write the pages of a field and those below; ``bounds`` divide its values into batches.

        Raises
        ------
        SchemaError
            A dictionary has other items than before.
        """
        kind = array.type
        if field.logical_type == "struct":
            for at, child in enumerate(field.children):
                self.write(child, array.field(at), bounds)
        elif field.logical_type.startswith(("list", "large_list")):
            self._write_lists(field, array, bounds)
        elif pa.types.is_null(kind):
            self._add(field, np.full(len(bounds) - 1, self.sink.position), np.diff(bounds))
        elif pa.types.is_dictionary(kind):
            self._write_plain(field, self._keys(field, array), bounds)
        else:
            block = None if pa.types.is_nested(kind) else block_from_array(array)
            if isinstance(block, Variable):
                self._write_strings(field, block, bounds)
            else:
                self._write_plain(field, array, bounds)

    def _write_lists(self, field: Field, array: Any, bounds: Int64s) -> None:
        width = 8 if pa.types.is_large_list(array.type) else 4
        count = len(array)
        if count:
            ends = items_of(array.buffers()[1], f"<i{width}", count + 1, array.offset * width)
        else:
            ends = np.zeros(1, f"<i{width}")
        offsets, starts = encode_lists(ends, bounds)
        self._put(field, offsets, starts, np.diff(bounds) + 1)
        first, last = int(ends[0]), int(ends[-1])
        items = array.values.slice(first, last - first)
        self.write(field.children[0], items, ends[bounds].astype(np.int64) - first)

    def _write_strings(self, field: Field, block: Variable, bounds: Int64s) -> None:
        text, offsets = encode_var_binary(block, self.sink.pad())
        self.sink.write([text])
        self._put(field, offsets, bounds[:-1] * 8, np.diff(bounds))

    def _write_plain(self, field: Field, array: Any, bounds: Int64s) -> None:
        items = 1
        while pa.types.is_fixed_size_list(array.type):
            size = array.type.list_size
            array = array.values.slice(array.offset * size, len(array) * size)
            items *= size
        if pa.types.is_boolean(array.type) and array.null_count:
            # Only for booleans the value in the slot of a null is not stored.
            array = array.fill_null(False)
        block = block_from_array(array)
        if not isinstance(block, FixedWidth):
            raise SchemaError(
                f"column {field.name!r} has type {array.type}, which format 0.1 cannot hold"
            )
        values, starts = encode_plain(block, bounds * items)
        self._put(field, values, starts, np.diff(bounds))

    def _keys(self, field: Field, array: Any) -> pa.Array:
        """Keys into the items that all files share."""
        items = self.dictionaries.setdefault(field.id, array.dictionary)
        keys: Any = array.indices
        if not items.equals(array.dictionary):
            moved = pc.index_in(array.dictionary, items)
            keys = moved.take(keys)
            lost = keys.null_count - array.null_count
            if lost:
                raise SchemaError(
                    f"column {field.name!r} ({array.type}): format 0.1 keeps one dictionary per "
                    f"dataset, and {lost} values are not among its {len(items)} items. Write "
                    f"rows that share one dictionary, cast the column to "
                    f"{array.type.value_type}, or use data_storage_version 2.0 or newer."
                )
            keys = keys.cast(array.type.index_type)
        # The values in null slots would be read as keys.
        filled: pa.Array = keys.fill_null(0) if keys.null_count else keys
        return filled

    def _put(self, field: Field, data: BytesLike, starts: Int64s, lengths: Int64s) -> None:
        (written,) = self.sink.write_aligned([data])
        self._add(field, written.offset + starts, lengths)

    def _add(self, field: Field, positions: Int64s, lengths: Int64s) -> None:
        self.table.setdefault(field.id, []).append(np.stack((positions, lengths), 1))

    def table_bytes(self, ids: list[int], batches: int) -> bytes:
        """The page table: an entry per id from the lowest to the highest, and per batch.

        Raises
        ------
        SchemaError
            It would be far larger than what it is of.
        """
        if not ids:
            return b""
        low = min(ids)
        if (max(ids) - low + 1) * batches > _MAX_ENTRIES:
            raise SchemaError(
                f"fields have ids from {low} to {max(ids)}: the page table of a file of format "
                f"0.1 has an entry for each number between, here for each of {batches} batches, "
                f"{_MAX_ENTRIES} at most. Write a new dataset, where fields count from 0, or "
                "use data_storage_version 2.0 or newer."
            )
        entries = np.zeros((max(ids) - low + 1, batches, 2), "<i8")
        for field_id, parts in self.table.items():
            entries[field_id - low] = np.concatenate(parts)
        return entries.tobytes()
