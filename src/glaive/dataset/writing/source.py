"""Rows from whatever users have: tables, readers, data frames, dictionaries, datasets.

Everything becomes a schema and a stream of tables or record batches; nothing is collected
that came as a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from glaive.arrow.nesting import check_nesting
from glaive.errors import OptionError

__all__ = ["Rows", "read_source"]

Rows = pa.RecordBatch | pa.Table
"""A piece of a stream of rows."""


def read_source(data: object, schema: pa.Schema | None = None) -> tuple[pa.Schema, Iterator[Rows]]:
    """Schema and rows of ``data``.

    Parameters
    ----------
    data
        Table, record batch, record batch reader, pandas or polars frame, anything that
        offers an Arrow stream, a pyarrow dataset or scanner, a mapping of columns, or an
        iterable of record batches or of mappings (rows).
    schema
        Names and types for mappings and rows without types, and for an empty iterable.

    Raises
    ------
    OptionError
        It is nothing that rows can be had from, or has no schema.
    SchemaError
        A type is nested too deeply.
    """
    found, rows = _read(data, schema)
    check_nesting(found)
    return found, rows


def _read(data: object, schema: pa.Schema | None) -> tuple[pa.Schema, Iterator[Rows]]:
    if isinstance(data, pa.Table):
        return data.schema, iter([data])
    if isinstance(data, pa.RecordBatch):
        return data.schema, iter([data])
    if isinstance(data, Mapping):
        table = pa.Table.from_pydict(dict(data), schema=schema)
        return table.schema, iter([table])
    if type(data).__module__.startswith("pandas."):
        frame = pa.Table.from_pandas(data, schema=schema)
        return frame.schema, iter([frame])
    found = _stream(data)
    if found is not None:
        return found
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return _pieces(data, schema)
    raise OptionError(
        f"data to write: expected a table, record batches, a data frame or rows, "
        f"found {type(data).__name__}"
    )


def _stream(data: Any) -> tuple[pa.Schema, Iterator[Rows]] | None:
    """Rows of objects that stream Arrow batches by themselves."""
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):  # a lazy polars frame
        data = data.collect()
    if hasattr(data, "to_reader"):  # a pyarrow or glaive scanner
        data = data.to_reader()
    elif not hasattr(data, "__arrow_c_stream__") and hasattr(data, "scanner"):
        data = data.scanner().to_reader()  # a pyarrow dataset or fragment
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, iter(data)
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return reader.schema, iter(reader)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return batch.schema, iter([batch])
    return None


def _pieces(data: Iterable[Any], schema: pa.Schema | None) -> tuple[pa.Schema, Iterator[Rows]]:
    """Rows of an iterable of batches, or of mappings."""
    rest = iter(data)
    first = next(rest, None)
    if first is None:
        if schema is None:
            raise OptionError("data to write: nothing came and no schema was given; pass schema=")
        return schema, iter([])
    if isinstance(first, Mapping):
        table = _from_rows([first, *rest], schema)
        return table.schema, iter([table])
    if not isinstance(first, pa.RecordBatch | pa.Table):
        raise OptionError(
            f"data to write: expected record batches or mappings, found {type(first).__name__}"
        )
    return first.schema, _checked(first, rest)


def _from_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None) -> pa.Table:
    if schema is not None:
        return pa.Table.from_pylist(rows, schema=schema)
    names = dict.fromkeys(chain.from_iterable(rows))  # of all rows, in order of appearance
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def _checked(first: Rows, rest: Iterator[Any]) -> Iterator[Rows]:
    for at, piece in enumerate(chain([first], rest)):
        if not isinstance(piece, pa.RecordBatch | pa.Table):
            raise OptionError(
                f"data to write: item {at} is no record batch but {type(piece).__name__}"
            )
        yield piece
