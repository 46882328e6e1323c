"""Rows from any input: tables, readers, data frames, dictionaries, datasets.

Every input becomes a schema and a stream of tables or record batches. Streams are not collected,
except rows as mappings without a schema, whose types all of them decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.nesting import check_nesting
from glaive.errors import OptionError

__all__ = ["Rows", "batches_of", "read_source"]

Rows = pa.RecordBatch | pa.Table
"""An item of a stream of rows."""

_MAPPINGS: Final = 8192
"""Rows given as mappings that become a table at a time."""


def batches_of(rows: Iterable[Rows]) -> Iterator[pa.RecordBatch]:
    """The rows as record batches only."""
    for item in rows:
        if isinstance(item, pa.Table):
            yield from item.to_batches()
        else:
            yield item


def read_source(data: object, schema: pa.Schema | None = None) -> tuple[pa.Schema, Iterator[Rows]]:
    """Schema and rows of ``data``.

    Parameters
    ----------
    data
        Table, record batch, record batch reader, pandas or polars frame, any object with an
        Arrow stream, a pyarrow dataset or scanner, a mapping of columns, or an iterable of
        record batches or of mappings (rows).
    schema
        Names and types for mappings and rows without types, and for an empty iterable.

    Raises
    ------
    OptionError
        It is no source of rows, or has no schema.
    SchemaError
        A type is nested too deeply.
    """
    source_schema, rows = _read(data, schema)
    check_nesting(source_schema)
    return source_schema, rows


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
    stream = _stream(data)
    if stream is not None:
        return stream
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return _from_items(data, schema)
    raise OptionError(
        f"data to write: expected a table, record batches, a data frame or rows, "
        f"found {type(data).__name__}"
    )


def _stream(data: Any) -> tuple[pa.Schema, Iterator[Rows]] | None:
    """Rows of objects that can stream Arrow batches."""
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


def _from_items(data: Iterable[Any], schema: pa.Schema | None) -> tuple[pa.Schema, Iterator[Rows]]:
    """Rows of an iterable of batches, or of mappings."""
    rest = iter(data)
    first = next(rest, None)
    if first is None:
        if schema is None:
            raise OptionError("data to write: no rows and no schema were given; pass schema=")
        return schema, iter([])
    if isinstance(first, Mapping):
        if schema is not None:
            return schema, _typed_rows(chain([first], rest), schema)
        table = _from_rows([first, *rest])
        return table.schema, iter([table])
    if not isinstance(first, pa.RecordBatch | pa.Table):
        raise OptionError(
            f"data to write: expected record batches or mappings, found {type(first).__name__}"
        )
    return first.schema, _checked(first, rest)


def _typed_rows(rows: Iterator[Mapping[str, Any]], schema: pa.Schema) -> Iterator[Rows]:
    while some := list(islice(rows, _MAPPINGS)):
        yield pa.Table.from_pylist(some, schema=schema)


def _from_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows of unknown types: all of them are needed to know those."""
    names = dict.fromkeys(chain.from_iterable(rows))  # of all rows, in order of appearance
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def _checked(first: Rows, rest: Iterator[Any]) -> Iterator[Rows]:
    for position, item in enumerate(chain([first], rest)):
        if not isinstance(item, pa.RecordBatch | pa.Table):
            raise OptionError(
                f"data to write: expected a record batch as item {position}, found "
                f"{type(item).__name__}"
            )
        yield item
