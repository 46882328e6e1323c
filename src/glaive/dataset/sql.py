"""``glaive.sql``: a query over several datasets."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.dataset as pads

from glaive.dataset.interop import SqlQuery
from glaive.dataset.open import dataset
from glaive.errors import OptionError


def sql(query: str, /, *, batch_size: int = 8192, **tables: object) -> pa.RecordBatchReader:
    """Run a query over several datasets, in DuckDB: of each, what the query needs is read.

    Parameters
    ----------
    query
        In DuckDB's dialect, where ``/`` divides integers to a float, and ``//`` to an integer. It
        sees the tables and nothing else: no files, no network.
    batch_size
        Approximate rows per batch of the result.
    **tables
        By name in the query: datasets, places of datasets, pyarrow tables, datasets and readers,
        frames of pandas or polars.

    Returns
    -------
    pyarrow.RecordBatchReader
        The result, as it is made; ``read_all()`` makes a table.

    Raises
    ------
    MissingDependencyError
        DuckDB is not installed, or a version before 2.
    OptionError
        The query is invalid, or a table is none.

    Examples
    --------
    >>> sql("SELECT n FROM a JOIN b USING (id)", a="a.lance", b=frame).read_all()
    """
    if not tables:
        raise OptionError('sql: name the tables of the query, as in sql("... FROM a", a=dataset)')
    found = {name: _queried(name, table) for name, table in tables.items()}
    return SqlQuery(query, found, batch_size).to_stream_reader()


def _queried(name: str, table: object) -> object:
    if isinstance(table, str | os.PathLike):
        table = dataset(table)
    if isinstance(table, pads.Dataset) and hasattr(table, "to_pyarrow_dataset"):
        return table.to_pyarrow_dataset()
    known = isinstance(table, pads.Dataset) or any(
        hasattr(table, one) for one in ("__arrow_c_stream__", "__dataframe__", "to_arrow")
    )
    if not known:
        raise OptionError(
            f"sql: {name}: expected a dataset, the place of one, an Arrow table or a frame, found "
            f"{type(table).__name__}"
        )
    return table
