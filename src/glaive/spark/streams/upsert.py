"""Upserts of streams: rows of a batch, which tasks have written to files, merged by key.

Tasks write the rows of a batch to data files that no version refers to. The commit reads them from
there, so no row passes through the messages of the tasks; then it removes the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.python_values import python_rows
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.scanner import Scanner
from glaive.errors import ColumnNotFoundError, SchemaError
from glaive.format.column_path import quoted_name
from glaive.scan.take import take
from glaive.scan.views import Views
from glaive.table.app_transactions import AppTransaction

__all__ = ["check_keys", "upsert"]

_WINDOW = 64 * 1024


def check_keys(columns: pa.Schema, keys: Sequence[str], order_by: str | None, where: str) -> None:
    """Check that keys and order are columns of the stream.

    Raises
    ------
    ColumnNotFoundError
        One is not.
    """
    for name in (*keys, *([] if order_by is None else [order_by])):
        if name not in columns.names:
            raise ColumnNotFoundError.among(name, columns.names, where=where)


def upsert(
    dataset: LanceDataset,
    staged: Views,
    keys: Sequence[str],
    order_by: str | None,
    transaction: AppTransaction,
) -> None:
    """Merge rows into a dataset as one transaction, unless it was applied before.

    Parameters
    ----------
    staged
        The rows, with the columns of the dataset.
    keys
        Columns that identify a row.
    order_by
        Of rows with the same keys, the one with the highest value here is kept, the last one of
        those with the same value; null is below all values. ``None`` if no keys repeat.

    Raises
    ------
    SchemaError
        Keys repeat, and there is no order.
    """
    kept = _last_of_each_key(staged, keys, order_by)
    condition = None
    if order_by is not None:
        column = quoted_name(order_by)
        condition = f"target.{column} is null or source.{column} >= target.{column}"
    merge = dataset.merge_insert(keys).when_matched_update_all(condition)
    merge.when_not_matched_insert_all().transaction_properties(transaction.properties)
    merge.execute(_rows(staged, kept))


def _rows(staged: Views, kept: np.ndarray[Any, Any] | None) -> pa.RecordBatchReader:
    """All rows, or those at ascending positions."""
    if kept is None:
        return Scanner.of(staged).to_reader()
    view = staged.take(None)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(kept), _WINDOW):
            yield from take(view, kept[start : start + _WINDOW]).to_batches()

    return pa.RecordBatchReader.from_batches(view.schema, batches())


def _last_of_each_key(
    staged: Views, keys: Sequence[str], order_by: str | None
) -> np.ndarray[Any, Any] | None:
    """Positions of the last row of each key, ascending; ``None`` if no key repeats.

    Rows that have a null in their key match nothing, and are all kept. Holds the columns of keys
    and order of one batch in memory.
    """
    wanted = list(dict.fromkeys([*keys, *([] if order_by is None else [order_by])]))
    read: Any = Scanner.of(staged, columns=list(wanted)).to_table()
    table = read.rename_columns(wanted)
    position = pa.array(np.arange(table.num_rows, dtype=np.int64))
    valid = reduce(pc.and_, [pc.is_valid(table[name]) for name in keys])
    names = [f"key {at}" for at in range(len(keys))]
    columns = {name: table[key] for name, key in zip(names, keys, strict=True)}
    if order_by is not None:
        # A null is below all values, as it is for rows of the dataset.
        columns |= {"known": pc.is_valid(table[order_by]), "order": table[order_by]}
    found: Any = pa.table({**columns, "position": position}).filter(valid)
    try:
        if order_by is not None:
            ascending: Any = [(name, "ascending") for name in ("known", "order", "position")]
            found = found.sort_by(ascending)
        rank = pa.array(np.arange(found.num_rows, dtype=np.int64))
        last = found.append_column("rank", rank).group_by(names).aggregate([("rank", "max")])
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise SchemaError(
            f"merge_keys {', '.join(keys)}: repeated keys of these types cannot be found ({error})"
        ) from error
    if last.num_rows == found.num_rows:
        return None
    if order_by is None:
        counts = found.group_by(names).aggregate([("position", "count")])
        repeated: Any = pc.greater(counts["position_count"], pa.scalar(1))
        (first,) = python_rows(counts.filter(repeated).slice(0, 1))
        key = ", ".join(f"{name}={first[at]!r:.60}" for name, at in zip(keys, names, strict=True))
        raise SchemaError(
            f"{first['position_count']} rows of one batch have the key {key}. Give the option "
            "merge_order_by, a column of which the highest value wins, or make keys unique before "
            "the sink"
        )
    chosen = found["position"].take(last["rank_max"]).to_numpy()
    loose = np.flatnonzero(~np.asarray(valid))
    return np.sort(np.concatenate([chosen, loose]))
