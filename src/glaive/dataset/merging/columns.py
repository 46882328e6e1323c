"""A merge that replaces columns in place: matched rows keep their addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import ascending
from glaive.dataset.columns.column_files import (
    physical_rows,
    replace_files,
    replaced_values,
    view_of,
    write_column_file,
)
from glaive.dataset.merging.clauses import MergeClauses
from glaive.dataset.merging.row_windows import gather_rows
from glaive.errors import OptionError
from glaive.format.bitmaps import bitmap_of
from glaive.format.blobs import is_blob
from glaive.format.fields import LanceSchema
from glaive.format.fragment import LEGACY, Fragment
from glaive.table.operations.update import Update

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["replace_in_fragments", "replace_matched"]


def replace_matched(
    dataset: OpenedVersion,
    clauses: MergeClauses,
    fits: LanceSchema,
    rows: pa.Table,
    addresses: NDArray[np.uint64],
    source: NDArray[np.int64],
) -> tuple[Update, dict[str, int]]:
    """Rewrite the source's columns for the fragments with matched rows.

    Parameters
    ----------
    fits
        The columns of the source, as the dataset has them.
    rows
        The source.
    addresses, source
        Matched pairs: address of a row of the dataset, position of a row of the source; shape
        ``(pairs,)``.

    Raises
    ------
    OptionError
        The merge does more than update, or the source has no column to replace, or all columns.
    """
    schema = dataset.manifest.schema
    names = [name for name in fits.names if name not in clauses.on]
    faults = [
        reason
        for reason, applies in (
            ("it has other clauses than an update of matched rows", not _only_updates(clauses)),
            ("the source covers every column", len(fits.names) == len(schema.names)),
            ("the source has no column but the keys", not names),
            ("files of format 0.1 cannot be split", dataset.manifest.data_format == LEGACY),
            ("the source has a blob column", any(map(is_blob, fits.fields))),
        )
        if applies
    ]
    if faults:
        raise OptionError(
            "write_mode 'rewrite_columns' cannot express this merge insert: "
            f"{'; '.join(faults)}. Leave the mode out, or choose 'rewrite_rows'."
        )
    operation = replace_in_fragments(dataset, fits.project(names), rows, addresses, source)
    counts = {"num_inserted_rows": 0, "num_updated_rows": len(source), "num_deleted_rows": 0}
    return operation, counts


def replace_in_fragments(
    dataset: OpenedVersion,
    columns: LanceSchema,
    rows: pa.Table,
    addresses: NDArray[np.uint64],
    source: NDArray[np.int64],
) -> Update:
    """The operation that sets the rows at ``addresses`` to the rows ``source`` of ``rows``."""
    order = np.argsort(addresses, kind="stable")
    addresses, source = addresses[order], source[order]
    fragments = (addresses >> np.uint64(32)).astype(np.int64)
    offsets = (addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)
    updated: list[Fragment] = []
    changed: dict[int, bytes] = {}
    view = view_of(dataset.snapshot, columns.names)
    for fragment_id in ascending(fragments).tolist():
        in_fragment = fragments == fragment_id
        position = dataset.manifest.position_of(fragment_id)
        fragment = dataset.manifest.fragment(position)
        new = gather_rows(rows.select(columns.names), source[in_fragment])
        batches = replaced_values(physical_rows(view, position), offsets[in_fragment], new)
        file = write_column_file(dataset.snapshot, fragment, columns, batches)
        updated.append(replace_files(fragment, file))
        changed[fragment_id] = bitmap_of(offsets[in_fragment].astype(np.uint32))
    return Update(
        updated=tuple(updated),
        fields_modified=tuple(sorted(field.id for field in columns.walk())),
        columns=True,
        changed_offsets=changed,
    )


def _only_updates(clauses: MergeClauses) -> bool:
    return clauses.update and not (clauses.insert or clauses.delete or clauses.delete_by_source)
