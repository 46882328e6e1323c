"""``glaive.sql``: a query over several datasets."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.dataset as pads

from glaive.dataset.interop import SqlQuery
from glaive.dataset.open import dataset
from glaive.dataset.writing.source import batches_of, read_source
from glaive.errors import OptionError


def sql(query: str, /, *, batch_size: int = 8192, **tables: object) -> pa.RecordBatchReader:
    """Run a query over several datasets, in DataFusion: of each, what the query needs is read.

    Parameters
    ----------
    query
        In DataFusion's dialect, as in pylance. It sees the tables and nothing else: no files, no
        network.
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
        DataFusion is not installed.
    OptionError
        The query is invalid, or a table is none.

    Examples
    --------
    >>> sql("SELECT n FROM a JOIN b USING (id)", a="a.lance", b=frame).read_all()
    """
    if not tables:
        raise OptionError('sql: name the tables of the query, as in sql("... FROM a", a=dataset)')
    found = {name: _queried(table) for name, table in tables.items()}
    return SqlQuery(query, found, batch_size).to_stream_reader()


def _queried(table: object) -> object:
    if isinstance(table, str | os.PathLike):
        table = dataset(table)
    if isinstance(table, pads.Dataset):
        return table.to_pyarrow_dataset() if hasattr(table, "to_pyarrow_dataset") else table
    schema, rows = read_source(table)
    read = pa.Table.from_batches(list(batches_of(rows)), schema)
    read.validate(full=True)  # the engine trusts texts to be UTF-8
    return read
