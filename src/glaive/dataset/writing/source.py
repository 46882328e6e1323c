"""Rows from any input: tables, readers, data frames, dictionaries, datasets.

Every input becomes a schema and a stream of tables or record batches. Streams are not collected,
except rows as mappings without a schema, whose types all of them decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.layout import checked_layout
from glaive.arrow.nesting import check_schema
from glaive.arrow.own_memory import in_own_memory
from glaive.arrow.utf8 import refuse_half_characters
from glaive.dataset.writing.lost_members import lost_members_of
from glaive.dataset.writing.lost_values import (
    lost_values,
    lost_values_of,
    refuse_lost_times,
    series_of,
)
from glaive.dataset.writing.models import is_model, pydantic_to_schema, rows_of_models
from glaive.errors import GlaiveError, OptionError, SchemaError

__all__ = ["Rows", "batches_of", "read_source", "refuse_objects"]

Rows = pa.RecordBatch | pa.Table
"""An item of a stream of rows."""

_GIVEN: Final = "data to write"

_INDEX: Final = "__index_level_"
"""How names begin that columns with the index of a frame have, if that has none."""

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
        Arrow stream, a pyarrow dataset or scanner, a Hugging Face dataset, a mapping of columns,
        or an iterable of record batches, of frames, of mappings or pydantic models (rows).
    schema
        Names and types for mappings and rows without types, and for an empty iterable.

    Raises
    ------
    OptionError
        It is no source of rows, or has no schema; a text has half of a surrogate pair. The latter
        is found where its row is made, which may be later.
    SchemaError
        A type is nested too deeply, or a name is not UTF-8; where a row is made, which may be
        later: the offsets or counts of a column leave its memory.
    """
    with refuse_half_characters(_GIVEN):
        source_schema, rows = _read(data, schema)
    check_schema(source_schema)
    checked = checked_layout(rows, _GIVEN)
    return source_schema, in_own_memory(checked) if _may_be_filled_again(data) else checked


def _may_be_filled_again(data: object) -> bool:
    """Whether rows come one after the other from code that may use their memory for the next."""
    if isinstance(data, pa.RecordBatchReader):
        return True
    held = isinstance(data, Sequence | Mapping | pa.Table | pa.RecordBatch) or _is_frame(data)
    return not held and isinstance(data, Iterable)


def _read(data: object, schema: pa.Schema | None) -> tuple[pa.Schema, Iterator[Rows]]:
    if isinstance(data, pa.Table):
        return data.schema, iter([data])
    if isinstance(data, pa.RecordBatch):
        return data.schema, iter([data])
    if type(data).__module__.startswith("datasets."):
        return _hugging_face(data)
    if isinstance(data, Mapping):
        with _converting():
            columns = {name: _as_vectors(values) for name, values in data.items()}
            table = pa.Table.from_pydict(columns, schema=schema)
        if schema is None:
            refuse_lost_times(lambda: columns, table.schema)
        return table.schema, iter([table])
    if _is_pandas(data):
        with _converting():
            frame = pa.Table.from_pandas(data, schema=schema)
        if schema is None:
            refuse_lost_times(lambda: dict(series_of(data)), frame.schema)
        return frame.schema, iter([frame])
    stream = _stream(data)
    if stream is not None:
        return stream
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return _from_items(data, schema)
    raise OptionError(
        f"Unknown data type {type(data)}. data to write: expected a table, record batches, a "
        f"data frame or rows, found {type(data).__name__}"
    )


def _as_vectors(values: Any) -> Any:
    """A matrix of NumPy or torch as fixed-size lists, masked numbers as nulls; others as given."""
    if getattr(values, "ndim", None) != 2:
        return values
    numbers = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    if numbers.shape[1] < 1:
        return values
    flat: Any = pa.array(numbers.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, numbers.shape[1])


def _stream(data: Any) -> tuple[pa.Schema, Iterator[Rows]] | None:
    """Rows of objects that can stream Arrow batches."""
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):  # a lazy polars frame
        data = data.collect()
    if type(data).__module__.startswith("polars.") and hasattr(data, "to_arrow"):
        refuse_objects(data)
        data = data.to_arrow()  # texts as large strings, where its stream has views
    if hasattr(data, "to_reader"):  # a pyarrow or glaive scanner
        data = data.to_reader()
    elif not hasattr(data, "__arrow_c_stream__") and hasattr(data, "scanner"):
        data = data.scanner().to_reader()  # a pyarrow dataset or fragment
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, iter(data)
    if isinstance(data, pa.Table):
        return data.schema, iter([data])
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return reader.schema, iter(reader)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return batch.schema, iter([batch])
    return None


def _from_items(data: Iterable[Any], schema: pa.Schema | None) -> tuple[pa.Schema, Iterator[Rows]]:
    """Rows of an iterable of batches, or of mappings."""
    typed = schema is not None
    rest = iter(data)
    first = next(rest, None)
    if first is None:
        if schema is None:
            raise OptionError(
                "Must provide schema to write dataset: no rows and no schema were given; pass "
                "schema="
            )
        return schema, iter([])
    if isinstance(first, Mapping):
        if schema is not None:
            return schema, _typed_rows(chain([first], rest), schema)
        table = _from_rows([first, *rest])
        return table.schema, iter([table])
    if is_model(first):
        model: Any = type(first)
        columns = pydantic_to_schema(model) if schema is None else schema
        return columns, _model_rows(chain([first], rest), model, columns)
    if not isinstance(first, pa.RecordBatch | pa.Table):
        schema, rows = _from_frames(first, rest)
    else:
        schema, rows = first.schema, _checked(first, rest)
    return schema, rows if typed else _as_exact(rows, schema)


def _as_exact(rows: Iterator[Rows], schema: pa.Schema) -> Iterator[Rows]:
    """The rows, if none of their values is changed to fit the types of the first ones.

    Raises
    ------
    SchemaError
        One would be.
    """
    for position, item in enumerate(rows):
        if not item.schema.equals(schema):
            for number, field in enumerate(item.schema):
                at = schema.get_field_index(field.name)
                lost = None if at < 0 else lost_values(field.type, schema.field(at).type)
                if lost is not None and item.column(number).null_count < item.num_rows:
                    raise SchemaError(
                        f"column {field.name!r}: item {position} of the {_GIVEN} has {lost}. All "
                        "items get the types of the first one: cast the column, or give schema="
                    )
        yield item


def _hugging_face(data: Any) -> tuple[pa.Schema, Iterator[Rows]]:
    """Rows of a Hugging Face dataset with the types of its features."""
    kind = type(data).__name__
    features = getattr(data, "features", None)
    if kind.endswith("DatasetDict"):
        raise OptionError(
            "DatasetDict is not yet supported: it has several datasets. Write them one by one, "
            f"such as data[{next(iter(data), 'train')!r}]"
        )
    if features is None:
        raise OptionError(
            f"data to write: the features of this {kind} are not known. Set them with "
            "data.cast(features), or pass record batches"
        )
    schema = features.arrow_schema
    if hasattr(data, "with_format"):  # rows as Arrow, with selections and filters applied
        batches = data.with_format("arrow").iter(batch_size=_MAPPINGS)
        return schema, (batch.cast(schema) for batch in batches)
    raise OptionError(f"data to write: expected a Dataset or IterableDataset, found {kind}")


def _from_frames(first: Any, rest: Iterator[Any]) -> tuple[pa.Schema, Iterator[Rows]]:
    """Rows of an iterable of frames, or of other objects with an Arrow stream."""
    if not _is_frame(first):
        raise OptionError(
            "data to write: expected record batches, mappings, models or data frames, found "
            f"{type(first).__name__}"
        )
    schema, rows = _read(first, None)

    def later() -> Iterator[Rows]:
        yield from rows
        for position, item in enumerate(rest, 1):
            if not _is_frame(item):
                raise OptionError(
                    f"data to write: expected a data frame as item {position}, found "
                    f"{type(item).__name__}"
                )
            with refuse_half_characters(_GIVEN):
                if _is_pandas(item):
                    yield _as_first(item, schema, f"frame {position} of the {_GIVEN}")
                else:
                    yield from _read(item, schema)[1]

    return schema, later()


def _as_first(frame: Any, schema: pa.Schema, what: str) -> pa.Table:
    """A frame of pandas with the columns of the first one, of which Arrow leaves others out."""
    series = series_of(frame)
    given = [name for name, _ in series]
    expected = [name for name in schema.names if not name.startswith(_INDEX)]
    if not set(expected) <= set(given) <= set(schema.names):
        raise SchemaError(
            f"{what} has the columns {', '.join(given)}, expected {', '.join(expected)}, those of "
            "the first. Rename, add or drop columns first."
        )
    for name, values in series:
        if name not in expected:
            continue
        wanted = schema.field(name).type
        lost = lost_members_of(values, wanted)
        if lost is not None:
            raise SchemaError(
                f"column {name!r}: {what} has a member {lost!r}, which {wanted} lacks. All frames "
                "need the members that the first one has."
            )
        lost = lost_values_of(values, wanted)
        if lost is not None:
            raise SchemaError(
                f"column {name!r}: {what} has {lost}. All frames get the types of the first one: "
                "cast the column first."
            )
    try:
        return pa.Table.from_pandas(frame, schema=schema)
    except UnicodeEncodeError:
        raise
    except (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError) as error:
        raise SchemaError(f"{what} does not fit the types of the first: {error}") from error


def _is_pandas(item: object) -> bool:
    return type(item).__module__.startswith("pandas.") and hasattr(item, "columns")


def _is_frame(item: object) -> bool:
    return _is_pandas(item) or hasattr(item, "__arrow_c_stream__")


def refuse_objects(frame: Any) -> None:
    """Refuse columns of polars that Arrow has no type for, such as of numbers with 128 bits.

    Values that are objects are addresses of these to Arrow.
    """
    for column in frame.get_columns() if hasattr(frame, "get_columns") else [frame]:
        if f"{column.dtype}" == "Object":
            raise SchemaError(
                f"column {column.name!r} holds objects of Python, for which Arrow has no type. "
                "Drop it, or cast it before writing."
            )
        try:
            column.head(0).to_arrow()
        except pa.ArrowException as error:
            raise SchemaError(
                f"column {column.name!r} holds {column.dtype}, for which Arrow has no type. Drop "
                "it, or cast it before writing."
            ) from error


@contextmanager
def _converting() -> Iterator[None]:
    """Name what Arrow makes of a caller's values where it ends in an error that is of no use.

    Raises
    ------
    OptionError
        A number is too large, a column is missing, or Arrow has no such values.
    """
    try:
        yield
    except GlaiveError:
        raise
    except (ArithmeticError, LookupError, NotImplementedError) as error:
        raise OptionError(f"{_GIVEN}: {error}. Convert the values first") from error


def _model_rows(rows: Iterator[Any], model: type, schema: pa.Schema) -> Iterator[Rows]:
    while some := list(islice(rows, _MAPPINGS)):
        with refuse_half_characters(_GIVEN):
            yield rows_of_models(some, model, schema=schema)


def _typed_rows(rows: Iterator[Mapping[str, Any]], schema: pa.Schema) -> Iterator[Rows]:
    while some := list(islice(rows, _MAPPINGS)):
        with refuse_half_characters(_GIVEN), _converting():
            made = pa.Table.from_pylist(some, schema=schema)
        yield made


def _from_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows of unknown types: all of them are needed to know those."""
    names = dict.fromkeys(chain.from_iterable(rows))  # of all rows, in order of appearance
    columns = {name: [row.get(name) for row in rows] for name in names}
    with _converting():
        table = pa.table(columns)
    refuse_lost_times(lambda: columns, table.schema)
    return table


def _checked(first: Rows, rest: Iterator[Any]) -> Iterator[Rows]:
    for position, item in enumerate(chain([first], rest)):
        if not isinstance(item, pa.RecordBatch | pa.Table):
            raise OptionError(
                f"data to write: expected a record batch as item {position}, found "
                f"{type(item).__name__}"
            )
        yield item
