"""Existing values of matched rows: for the condition of a merge, and those it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import ascending
from glaive.arrow.capacity import in_parts
from glaive.arrow.chunked import one_array
from glaive.dataset.merging.partial_members import is_partial, keep_members
from glaive.format.fields import LanceSchema
from glaive.scan.addresses import find_rows
from glaive.scan.passed_pages import PassedPages
from glaive.scan.take import take_physical
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["OldValues", "is_complete", "kept_columns", "padded_rows", "with_old_values"]

Addresses = NDArray[np.uint64]

_SAMPLED_FRAGMENTS: Final = 16
"""Fragments whose files are looked at to estimate the size of a row."""

_FEW_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a take whose pages may stay mapped."""


class OldValues:
    """Some columns of the dataset, as written, of any of its rows.

    Parameters
    ----------
    names
        The columns.
    """

    def __init__(self, dataset: OpenedVersion, names: Sequence[str]) -> None:
        self._snapshot = dataset.snapshot
        self._view = Views(dataset.snapshot).take(tuple(names), blobs="logical")
        self._passed = PassedPages(searched=True)

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a row in memory, about: twice those in the files."""
        manifest = self._snapshot.manifest
        size = rows = 0
        for position in range(min(manifest.num_fragments, _SAMPLED_FRAGMENTS)):
            fragment = manifest.fragment(position)
            size += sum(file.size or 0 for file in fragment.files)
            rows += fragment.physical_rows
        return 2 * size // max(1, rows)

    def take(self, addresses: Addresses) -> pa.Table:
        """The values of the rows at these addresses."""
        selected = find_rows(self._snapshot, "addresses", addresses.astype(np.int64))
        table = take_physical(self._view, selected.fragment, selected.row)
        size = len(addresses) * self.row_bytes
        if size > _FEW_BYTES:
            fragments = ascending(selected.fragment).tolist()
            for position in fragments:
                self._passed.add(self._view.fragment(position), size // len(fragments))
        return table


def kept_columns(fits: LanceSchema, schema: LanceSchema) -> list[str]:
    """Columns that the source lacks, fully or in some members; updated rows keep their values."""
    given = {field.name: field.type for field in fits.to_arrow()}
    return [
        field.name
        for field in schema.to_arrow()
        if field.name not in given or is_partial(given[field.name], field.type)
    ]


def is_complete(fits: LanceSchema, schema: LanceSchema) -> bool:
    """Whether a source with these columns has all columns, and all of their members."""
    return not kept_columns(fits, schema)


def with_old_values(new: pa.Table, old: pa.Table, schema: LanceSchema) -> pa.Table:
    """Rows of the source with all columns of the dataset.

    Parameters
    ----------
    old
        Those of :func:`kept_columns`, of the same rows of the dataset.
    """
    whole = schema.to_arrow()
    for field in old.schema:
        name = field.name
        if name not in new.schema.names:
            new = new.append_column(field, old.column(name))
        elif is_partial(new.schema.field(name).type, whole.field(name).type):
            kept = _with_members(new.column(name), old.column(name), name)
            at = new.schema.get_field_index(name)
            new = new.set_column(at, new.schema.field(name).with_type(kept.type), kept)
    return new


def _with_members(new: Any, old: Any, name: str) -> Any:
    """The new structs of a column, with members that only ``old`` has, in chunks."""

    def work(start: int, stop: int) -> Any:
        rows = stop - start
        parts = one_array(new.slice(start, rows)), one_array(old.slice(start, rows))
        return keep_members(*parts, name)

    return pa.chunked_array(list(in_parts(work, 0, len(new))))


def padded_rows(rows: pa.Table, schema: LanceSchema) -> pa.Table:
    """The rows, with nulls in the columns that they lack."""
    for field in schema.to_arrow():
        if field.name not in rows.schema.names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows
