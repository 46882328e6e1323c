"""Read rows from any input: tables, readers, data frames, dictionaries, datasets.

Every input becomes a schema and a stream of tables or record batches. glaive collects
only rows given as mappings that lack a schema, as all rows decide their types.
"""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from itertools import chain, islice
from typing import Any, Final, Union, get_args, get_origin

import numpy as np
import pyarrow as pa

from glaive.arrow.validation import check_schema, in_own_memory, refuse_half_characters
from glaive.errors import GlaiveError, OptionError, SchemaError, UnsupportedFeatureError
from glaive.expr.coerce import is_list, is_number, is_string, plain
from glaive.format.fields import LanceSchema

# --- Pydantic models as rows: their Arrow schema, and tables of instances (Pydantic 2) --

_PLAIN: dict[Any, Any] = {
    bool: pa.bool_(),
    bytes: pa.binary(),
    date: pa.date32(),
    float: pa.float64(),
    int: pa.int64(),
    str: pa.string(),
}


class FixedSizeListMixin(ABC):
    """Base class of types of vectors; see :func:`glaive.pydantic.Vector`."""

    @staticmethod
    @abstractmethod
    def dim() -> int:
        """Return the number of values in a vector."""

    @staticmethod
    @abstractmethod
    def value_arrow_type() -> pa.DataType:
        """Return the Arrow type of a value."""


def is_model(value: object) -> bool:
    """Return whether a value is an instance of a pydantic model, if pydantic is loaded."""
    return any(str(base.__module__).startswith("pydantic.") for base in type(value).__mro__) and (
        hasattr(value, "model_dump")
    )


def model_to_dict(obj: Any) -> dict[str, Any]:
    """Return the fields of an instance as a dictionary."""
    made: dict[str, Any] = obj.model_dump() if hasattr(obj, "model_dump") else obj.dict()
    return made


def rows_of_models(rows: Iterable[Any], model: type, *, schema: pa.Schema) -> pa.Table:
    """Convert instances of a model to a table.

    Raises
    ------
    OptionError
        An instance has another class.
    SchemaError
        A value is invalid for the schema.
    """
    values = []
    for position, row in enumerate(rows):
        if type(row) is not model:
            raise OptionError(
                f"data[{position}] must be an instance of {model!r} exactly (subclasses are not "
                f"accepted), got {type(row)!r}"
            )
        values.append(_without_enumerations(model_to_dict(row)))
    try:
        return pa.Table.from_pylist(values, schema=schema)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        raise SchemaError(
            f"instances of {model.__name__} do not fit its schema: {error}"
        ) from error


def pydantic_to_schema(model: Any) -> pa.Schema:
    """Return the Arrow schema of a pydantic model.

    Supports numbers, strings, bytes, dates, times, lists, nested models, enumerations, ``Vector``
    and ``MultiVector``. ``Field(json_schema_extra={"tz": …})`` sets a time zone. Enumerations of
    strings become dictionaries.

    Raises
    ------
    SchemaError
        The argument is not a model, or Arrow lacks a type for a field.
    """
    return pa.schema(_fields(model, ()))


def get_extras(field: Any, key: str) -> Any:
    """Return an entry of ``json_schema_extra`` of a field, or None."""
    extras = getattr(field, "json_schema_extra", None)
    return extras.get(key) if isinstance(extras, dict) else None


def is_nullable(field: Any) -> bool:
    """Return whether a field may be None: ``Optional``, or a nullable vector."""
    annotation = field.annotation
    if type(None) in _members(annotation):
        return True
    return _is_vector(annotation) and bool(annotation.nullable())


def _fields(model: Any, seen: tuple[Any, ...]) -> list[pa.Field[Any]]:
    fields = getattr(model, "model_fields", None)
    if not isinstance(model, type) or not isinstance(fields, dict):
        raise SchemaError(f"expected a class derived from pydantic.BaseModel, found {model!r:.80}")
    if model in seen:
        raise SchemaError(f"{model.__name__} contains itself, which no Arrow type can")
    return [
        pa.field(name, _type(field.annotation, field, name, (*seen, model)), is_nullable(field))
        for name, field in fields.items()
    ]


def _type(annotation: Any, field: Any, name: str, seen: tuple[Any, ...]) -> Any:
    wanted = [one for one in _members(annotation) if one is not type(None)]
    kind = wanted[0] if len(wanted) == 1 else annotation
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind is datetime:
        return pa.timestamp("us", tz=get_extras(field, "tz"))
    if _is_vector(kind):
        vector = pa.list_(kind.value_arrow_type(), kind.dim())
        return pa.list_(vector) if getattr(kind, "is_multi_vector", lambda: False)() else vector
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enumeration(kind)
    if isinstance(kind, type) and hasattr(kind, "model_fields"):
        return pa.struct(_fields(kind, seen))
    if get_origin(kind) in (list, tuple) and get_args(kind):
        item = get_args(kind)[0]
        nullable = type(None) in _members(item) or get_origin(kind) is list
        return pa.list_(pa.field("item", _type(item, field, name, seen), nullable))
    hint = " Specify the type of items: list[int]." if kind in (list, tuple) else ""
    if kind is Decimal:
        hint = " Give the schema of the data, with its decimal type."
    raise SchemaError(
        f"Converting Pydantic type to Arrow Type: unsupported type {kind} of {name!r}.{hint}"
    )


def _members(annotation: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union; another annotation is its only alternative."""
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def _is_vector(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, FixedSizeListMixin)


def _enumeration(kind: type[Enum]) -> Any:
    values = {type(member.value) for member in kind}
    if values == {str}:
        return pa.dictionary(pa.int32(), pa.string())
    return _PLAIN.get(values.pop(), pa.string()) if len(values) == 1 else pa.string()


def _without_enumerations(value: Any) -> Any:
    """Replace enumerations in a value. Row by row: the rows are Python objects."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: _without_enumerations(one) for key, one in value.items()}
    return [_without_enumerations(one) for one in value] if isinstance(value, list) else value


# --- Members of structs that a cast to another type would leave out ---------------------


def lost_member(given: Any, wanted: Any) -> str | None:
    """Return the path of a struct member, at any depth, that the type to cast to lacks; or None.

    A cast leaves such members out.
    """
    if isinstance(given, pa.BaseExtensionType):
        return lost_member(given.storage_type, wanted)
    if isinstance(wanted, pa.BaseExtensionType):
        return lost_member(given, wanted.storage_type)
    is_struct = pa.types.is_struct(given)
    if is_struct != pa.types.is_struct(wanted) or given.equals(wanted):
        return None
    if is_struct:
        known = {member.name: member for member in wanted}
        pairs = [(member, known.get(member.name)) for member in given]
    elif given.num_fields == wanted.num_fields:
        pairs = [(given.field(at), wanted.field(at)) for at in range(given.num_fields)]
    else:
        return None
    for member, other in pairs:
        if other is None:
            return str(member.name)
        inner = lost_member(member.type, other.type)
        if inner is not None:
            return f"{member.name}.{inner}"
    return None


# --- Casts that lose information, but that Arrow makes silently --------------------------
# A time becomes its day, a double the nearest float, a number ``true``, the string ``007`` a 7.
# You ask for such a cast if you name the type to store, but not if the types of rows differ.


def lost_values(given: Any, wanted: Any) -> str | None:
    """Describe information that a cast between types loses silently; or None.

    Parameters
    ----------
    given, wanted
        Types of a column.
    """
    if given.equals(wanted):
        return None
    member = lost_member(given, wanted)
    if member is not None:
        return f"a member {member!r}, which {wanted} lacks"
    part = _changed(given, wanted)
    return (
        None if part is None else f"values of {part[0]}, which {part[1]} does not hold as they are"
    )


def _changed(given: Any, wanted: Any) -> tuple[Any, Any] | None:
    """Return the first part of a type that a cast changes silently, and its new type."""
    given, wanted = plain(given), plain(wanted)
    types = pa.types
    parts: list[tuple[Any, Any]] = []
    if types.is_struct(given) and types.is_struct(wanted):
        known = {member.name: member.type for member in given}
        parts = [(known[one.name], one.type) for one in wanted if one.name in known]
    elif types.is_map(given) and types.is_map(wanted):
        parts = [(given.key_type, wanted.key_type), (given.item_type, wanted.item_type)]
    elif is_list(given, fixed=True) and is_list(wanted, fixed=True):
        parts = [(given.value_type, wanted.value_type)]
    elif _changes(given, wanted):
        return given, wanted
    return next(filter(None, (_changed(*part) for part in parts)), None)


def _changes(given: Any, wanted: Any) -> bool:
    """Return whether a cast of flat values may change them silently."""
    types = pa.types
    if types.is_boolean(wanted):
        return is_number(given) or is_string(given)
    if is_string(given):  # the cast parses strings
        return is_number(wanted) or types.is_temporal(wanted)
    if is_number(given) and is_number(wanted):
        return _rounds(given, wanted)
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        return (given.tz is None) != (wanted.tz is None)
    if types.is_date(given) and types.is_timestamp(wanted) and wanted.tz is None:
        return False  # midnight
    if types.is_temporal(given):
        return is_number(wanted) or (types.is_temporal(wanted) and _kind(given) != _kind(wanted))
    return is_number(given) and types.is_temporal(wanted)


def _rounds(given: Any, wanted: Any) -> bool:
    """Return whether a cast rounds numbers; out of range and lost fractions are errors."""
    types = pa.types
    if types.is_decimal(wanted):
        return types.is_floating(given)
    if not types.is_floating(wanted):
        return False
    if types.is_integer(given):
        return bool(wanted.bit_width == 16 and given.bit_width > 8)
    return types.is_decimal(given) or given.bit_width > wanted.bit_width


def _kind(data_type: Any) -> str:
    """Return the kind of a type of times."""
    kinds = ("timestamp", "date", "time", "duration")
    return next((kind for kind in kinds if getattr(pa.types, f"is_{kind}")(data_type)), "")


Rows = pa.RecordBatch | pa.Table
"""An item of a stream of rows."""

_INPUT: Final = "data to write"

_INDEX: Final = "__index_level_"
"""Prefix of columns that hold the unnamed levels of a frame's index."""

_MAPPINGS_PER_TABLE: Final = 8192
"""Rows given as mappings that become one table."""


def batches_of(rows: Iterable[Rows]) -> Iterator[pa.RecordBatch]:
    """Yield the rows as record batches only."""
    for item in rows:
        if isinstance(item, pa.Table):
            yield from item.to_batches()
        else:
            yield item


def read_source(
    data: object, schema: pa.Schema | LanceSchema | None = None
) -> tuple[pa.Schema, Iterator[Rows]]:
    """Return the schema and the rows of ``data``.

    Parameters
    ----------
    data
        A table, record batch or reader, a pandas or polars frame, a pyarrow dataset or scanner, or
        a Hugging Face dataset. Or any object with an Arrow stream, a mapping of columns, or an
        iterable of record batches, frames, mappings or pydantic models (rows).
    schema
        Names and types for mappings and untyped rows, and for an empty iterable.

    Raises
    ------
    OptionError
        The data is not a source of rows, or has no schema. Or a string has half of a
        surrogate pair, which is found when its row is converted.
    SchemaError
        A type is nested too deeply, or a name is invalid UTF-8.
    """
    if isinstance(schema, LanceSchema):
        schema = schema.to_pyarrow()
    if not isinstance(schema, pa.Schema | None):
        raise OptionError(f"schema: expected a pa.Schema, found {schema!r:.50}. Call pa.schema.")
    with refuse_half_characters(_INPUT):
        source_schema, rows = _read(data, schema)
    check_schema(source_schema)
    return source_schema, in_own_memory(rows) if _may_reuse_memory(data) else rows


def _may_reuse_memory(data: object) -> bool:
    """Return whether rows come from code that may reuse their memory for the next rows."""
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
        return table.schema, iter([table])
    if _is_pandas(data):
        with _converting():
            frame = pa.Table.from_pandas(data, schema=schema)
        return frame.schema, iter([frame])
    stream = _stream(data)
    if stream is not None:
        return stream
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return _from_items(data, schema)
    raise OptionError(
        f"Unknown data type {type(data)}. data to write: expected a table, record batches, a "
        "data frame, or a list of dicts; glaive.ingest reads files."
    )


def _as_vectors(values: Any) -> Any:
    """Convert a NumPy or torch matrix to fixed-size lists, with nulls for masked numbers."""
    if getattr(values, "ndim", None) != 2:
        return values
    numbers = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    if numbers.shape[1] < 1:
        return values
    flat: Any = pa.array(numbers.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, numbers.shape[1])


def _stream(data: Any) -> tuple[pa.Schema, Iterator[Rows]] | None:
    """Return rows of objects that can stream Arrow batches."""
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):  # a lazy polars frame
        data = data.collect()
    if type(data).__module__.startswith("polars.") and hasattr(data, "to_arrow"):
        refuse_objects(data)
        data = data.to_arrow()  # strings as large strings; the stream would have views
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
    """Return rows of an iterable of batches or mappings."""
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
    return schema, rows if typed else _cast_exactly(rows, schema)


def _cast_exactly(rows: Iterator[Rows], schema: pa.Schema) -> Iterator[Rows]:
    """Yield the rows, if a cast to the types of the first rows keeps all information.

    Raises
    ------
    SchemaError
        A cast would lose information.
    """
    for position, item in enumerate(rows):
        if not item.schema.equals(schema):
            for number, field in enumerate(item.schema):
                at = schema.get_field_index(field.name)
                lost = None if at < 0 else lost_values(field.type, schema.field(at).type)
                if lost is not None and item.column(number).null_count < item.num_rows:
                    raise SchemaError(
                        f"column {field.name!r}: item {position} of the {_INPUT} has {lost}. All "
                        "items get the types of the first one: cast the column, or give schema="
                    )
        yield item


def _hugging_face(data: Any) -> tuple[pa.Schema, Iterator[Rows]]:
    """Return rows of a Hugging Face dataset with the types of its features."""
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
        batches = data.with_format("arrow").iter(batch_size=_MAPPINGS_PER_TABLE)
        return schema, (batch.cast(schema) for batch in batches)
    raise OptionError(f"data to write: expected a Dataset or IterableDataset, found {kind}")


def _from_frames(first: Any, rest: Iterator[Any]) -> tuple[pa.Schema, Iterator[Rows]]:
    """Return rows of an iterable of frames, or of other objects with an Arrow stream."""
    if not _is_frame(first):
        raise OptionError(
            "data to write: expected items such as record batches, dicts, models or data frames, "
            f"found {type(first).__name__}. Pass rows as dicts, such as [{{'a': 1}}]."
        )
    schema, rows = _read(first, None)

    def remaining() -> Iterator[Rows]:
        yield from rows
        for position, item in enumerate(rest, 1):
            if not _is_frame(item):
                raise OptionError(
                    f"data to write: expected a data frame as item {position}, found "
                    f"{type(item).__name__}"
                )
            with refuse_half_characters(_INPUT), _converting():
                yield from [_retyped(item, schema)] if _is_pandas(item) else _read(item, schema)[1]

    return schema, remaining()


def _retyped(frame: Any, schema: pa.Schema) -> pa.Table:
    """Convert a pandas frame with its own types, and the index levels of the first frame."""
    kept = any(name.startswith(_INDEX) for name in schema.names)
    table = pa.Table.from_pandas(frame, preserve_index=True if kept else None)
    names = table.schema.names
    return table.select([one for one in names if one in schema.names or not one.startswith(_INDEX)])


def _is_pandas(item: object) -> bool:
    return type(item).__module__.startswith("pandas.") and hasattr(item, "columns")


def _is_frame(item: object) -> bool:
    return _is_pandas(item) or hasattr(item, "__arrow_c_stream__")


def refuse_objects(frame: Any) -> None:
    """Refuse polars columns of Python objects: Arrow would see their addresses."""
    for column in frame.get_columns() if hasattr(frame, "get_columns") else [frame]:
        if f"{column.dtype}" == "Object":
            raise SchemaError(
                f"column {column.name!r} holds objects of Python, for which Arrow has no type. "
                "Drop it, or cast it before writing."
            )


@contextmanager
def _converting() -> Iterator[None]:
    """Convert unhelpful errors of Arrow for values of the caller.

    Raises
    ------
    OptionError
        A number is too large, a column is missing, or Arrow lacks a type for the values.
    """
    try:
        yield
    except GlaiveError:
        raise
    except (ArithmeticError, LookupError, NotImplementedError, TypeError, pa.ArrowInvalid) as e:
        cause = "; ".join(map(str, e.args))
        raise OptionError(f"{_INPUT}: {cause}. Give lists of one length, each of one type.") from e


def _model_rows(rows: Iterator[Any], model: type, schema: pa.Schema) -> Iterator[Rows]:
    while some := list(islice(rows, _MAPPINGS_PER_TABLE)):
        with refuse_half_characters(_INPUT):
            yield rows_of_models(some, model, schema=schema)


def _typed_rows(rows: Iterator[Mapping[str, Any]], schema: pa.Schema) -> Iterator[Rows]:
    while some := list(islice(rows, _MAPPINGS_PER_TABLE)):
        with refuse_half_characters(_INPUT), _converting():
            made = pa.Table.from_pylist(some, schema=schema)
        yield made


def _from_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Make a table of rows of unknown types; all rows decide the types."""
    names = dict.fromkeys(chain.from_iterable(rows))  # of all rows, in order of appearance
    columns = {name: [row.get(name) for row in rows] for name in names}
    with _converting():
        return pa.table(columns)


def _checked(first: Rows, rest: Iterator[Any]) -> Iterator[Rows]:
    for position, item in enumerate(chain([first], rest)):
        if not isinstance(item, pa.RecordBatch | pa.Table):
            raise OptionError(
                f"data to write: expected a record batch as item {position}, found "
                f"{type(item).__name__}"
            )
        yield item


# --- Tables with a column of vectors, from Python objects that hold vectors -------------


def vec_to_table(
    data: Mapping[Any, Any] | Sequence[Any] | np.ndarray[Any, Any],
    names: str | Sequence[str] | None = None,
    ndim: int | None = None,
    check_ndim: bool = True,  # by position, as in pylance
) -> pa.Table:
    """Make a table of vectors, as fixed-size lists of ``float``.

    Parameters
    ----------
    data
        Vectors, or a mapping from ids to vectors.
    names
        Name of the column; default: ``vector``. For a mapping two names; default: ``id`` and
        ``vector``.
    ndim
        Number of values in a vector; default: the length of the first vector.
    check_ndim
        Whether to check the length of each vector; otherwise only their sum must fit.

    Raises
    ------
    OptionError
        Vectors differ in length, the data is empty, or the number of names is wrong.
    UnsupportedFeatureError
        The data has another type.
    """
    keys = list(data) if isinstance(data, Mapping) else None
    vectors = list(data.values()) if isinstance(data, Mapping) else data
    if not isinstance(vectors, list | tuple | np.ndarray):
        raise UnsupportedFeatureError(
            f"data must be dict, list, or ndarray, got {type(data)} instead"
        )
    default = ["vector"] if keys is None else ["id", "vector"]
    columns = default if names is None else [names] if isinstance(names, str) else list(names)
    if len(columns) != len(default):
        raise OptionError(f"names: expected {len(default)}, found {columns!r}")
    if not len(vectors):
        raise OptionError("data: expected at least one vector")
    size = len(vectors[0]) if ndim is None else ndim
    if check_ndim:
        wrong = next((vector for vector in vectors if len(vector) != size), None)
        if wrong is not None:
            raise OptionError(
                f"data: Expected {size} dimensions but got {len(wrong)} for {wrong!r:.60}"
            )
    numbers = np.concatenate([np.asarray(vector, np.float32).reshape(-1) for vector in vectors])
    if size < 1 or len(numbers) != size * len(vectors):
        raise OptionError(f"ndim: {len(numbers)} numbers are not {len(vectors)} vectors of {size}")
    column: Any = pa.FixedSizeListArray.from_arrays(pa.array(numbers), size)
    arrays = [column] if keys is None else [pa.array(keys), column]
    return pa.Table.from_arrays(arrays, names=columns)
