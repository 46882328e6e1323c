"""Execute a write plan: write rows to data files, uncommitted."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from glaive.arrow.dictionaries import null_count
from glaive.arrow.views import cut_views
from glaive.dataset.writing.conform import conform
from glaive.dataset.writing.plan import WritePlan
from glaive.dataset.writing.rolling import RollingWriter
from glaive.dataset.writing.source import Rows
from glaive.errors import SchemaError
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.fragment import Fragment

__all__ = ["FragmentWriter", "write_fragments"]


def write_fragments(
    plan: WritePlan, rows: Iterable[Rows], *, keep_dictionaries: bool = False
) -> list[Fragment]:
    """Write rows into as many files as needed; one fragment each, without an id yet.

    Parameters
    ----------
    plan
        Columns, locations, limits and encodings.
    rows
        Tables or batches whose columns match those of the plan by name, in any order.
    keep_dictionaries
        Whether strings may be dictionary-encoded, as from
        :meth:`glaive.scan.query.Query.tables`.

    Raises
    ------
    SchemaError
        A batch has other columns, or values that cannot be cast. Only this function compares the
        columns of each batch with the plan; the plan checks the schema of the input as a whole.

    Notes
    -----
    On failure the files written so far are removed, if possible; no version refers to them.
    """
    writer = FragmentWriter(plan, keep_dictionaries=keep_dictionaries)
    try:
        for piece in rows:
            writer.write(piece)
        return writer.finish()
    except BaseException:
        writer.discard()
        raise


class FragmentWriter:
    """Writes rows as they come; for those who write several streams at a time.

    Parameters and errors are those of :func:`write_fragments`; after an error call
    :meth:`discard`.
    """

    __slots__ = ("_arrow", "_keep_dictionaries", "_plan", "_roll")

    def __init__(self, plan: WritePlan, *, keep_dictionaries: bool = False) -> None:
        self._plan, self._keep_dictionaries = plan, keep_dictionaries
        self._arrow = plan.schema.to_arrow()
        self._roll = RollingWriter(plan)

    def write(self, piece: Rows) -> None:
        """Append rows."""
        for part in cut_views(piece):
            fitted = conform(part, self._arrow, keep_dictionaries=self._keep_dictionaries)
            _check_members(fitted, self._plan.schema)
            self._roll.write(fitted)

    def finish(self) -> list[Fragment]:
        """Finish the last file; one fragment for each, without an id yet."""
        self._roll.close()
        return self._roll.fragments

    def discard(self) -> None:
        """Remove the files written so far, if possible."""
        self._roll.discard()


def _check_members(rows: Rows, schema: LanceSchema) -> None:
    """Refuse nulls in non-nullable members of structs and items of lists, except below a null.

    File writers check top-level columns, as they count their nulls anyway. The rows have the
    columns of ``schema``, in its order.
    """
    for at in _strict_columns(schema):
        field, column = schema.fields[at], rows.column(at)
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            _check(chunk, field, field.name)


@lru_cache(maxsize=64)  # repeated appends have the same schema
def _strict_columns(schema: LanceSchema) -> tuple[int, ...]:
    """Columns with a non-nullable member or item."""
    return tuple(at for at, field in enumerate(schema.fields) if _is_strict(field))


def _is_strict(field: Field) -> bool:
    children = field.children
    if field.logical_type == "map":  # Arrow never has null entries or keys of maps
        children = field.children[0].children[1:]
    return any(not child.nullable or _is_strict(child) for child in children)


def _check(array: Any, field: Field, path: str) -> None:
    if not _is_strict(field):
        return
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_struct(array.type):
        array = array.drop_null() if array.null_count else array
        parts = [array.field(child.name) for child in field.children]
    else:
        if pa.types.is_map(array.type):  # Arrow does not flatten these
            array = _listed(array, field.children[0])
        parts = [array.flatten()]
    for child, part in zip(field.children, parts, strict=True):
        below = f"{path}.{child.name}"
        if not child.nullable and (nulls := null_count(part)):
            raise SchemaError(
                f"column {below!r}: expected no nulls, found {nulls}. Fill them, or "
                "make it nullable: in a dataset by alter_columns."
            )
        _check(part, child, below)


def _listed(array: Any, entries: Field) -> Any:
    """A map as lists of its entries; a cast would refuse nulls itself."""
    names = [child.name for child in entries.children]
    pairs = pa.StructArray.from_arrays([array.keys, array.items], names)
    kind = pa.list_(pairs.type)
    own = array.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(array), own, array.null_count, array.offset, children=[pairs]
    )
