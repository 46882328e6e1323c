"""Pydantic models as rows: their Arrow schema, and rows out of instances. Pydantic 2."""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Union, get_args, get_origin

import pyarrow as pa

from glaive.errors import OptionError, SchemaError

__all__ = [
    "FixedSizeListMixin",
    "get_extras",
    "is_model",
    "is_nullable",
    "model_to_dict",
    "pydantic_to_schema",
    "rows_of_models",
]

_PLAIN: dict[Any, Any] = {
    bool: pa.bool_(),
    bytes: pa.binary(),
    date: pa.date32(),
    float: pa.float64(),
    int: pa.int64(),
    str: pa.string(),
}


class FixedSizeListMixin(ABC):
    """What types of vectors say of themselves; see :func:`glaive.pydantic.Vector`."""

    @staticmethod
    @abstractmethod
    def dim() -> int:
        """Numbers in a vector."""

    @staticmethod
    @abstractmethod
    def value_arrow_type() -> pa.DataType:
        """Arrow type of a number."""


def is_model(value: object) -> bool:
    """Whether this is an instance of a pydantic model; imports nothing."""
    return any(str(base.__module__).startswith("pydantic.") for base in type(value).__mro__) and (
        hasattr(value, "model_dump")
    )


def model_to_dict(obj: Any) -> dict[str, Any]:
    """The fields of an instance as a dictionary."""
    made: dict[str, Any] = obj.model_dump() if hasattr(obj, "model_dump") else obj.dict()
    return made


def rows_of_models(rows: Iterable[Any], model: type, *, schema: pa.Schema) -> pa.Table:
    """Instances of a model as a table.

    Raises
    ------
    OptionError
        One is of another class.
    SchemaError
        A value does not fit the schema.
    """
    values = []
    for position, row in enumerate(rows):
        if type(row) is not model:
            raise OptionError(
                f"data[{position}] must be an instance of {model!r} exactly (subclasses are not "
                f"accepted), got {type(row)!r}"
            )
        values.append(_plain(model_to_dict(row)))
    try:
        return pa.Table.from_pylist(values, schema=schema)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        raise SchemaError(
            f"instances of {model.__name__} do not fit its schema: {error}"
        ) from error


def pydantic_to_schema(model: Any) -> pa.Schema:
    """Arrow schema of a pydantic model.

    Numbers, texts, bytes, dates, times (``Field(json_schema_extra={"tz": …})`` for a time zone),
    lists, nested models, enumerations (of texts: as dictionaries), ``Vector`` and ``MultiVector``.

    Raises
    ------
    SchemaError
        It is no model, or a field has a type without counterpart in Arrow.
    """
    return pa.schema(_fields(model, ()))


def get_extras(field: Any, key: str) -> Any:
    """An entry of ``json_schema_extra`` of a field; None if there is none."""
    extras = getattr(field, "json_schema_extra", None)
    return extras.get(key) if isinstance(extras, dict) else None


def is_nullable(field: Any) -> bool:
    """Whether a field may be None: ``Optional``, or a nullable vector."""
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
    """The alternatives of a union; the annotation itself if it is none."""
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


def _plain(value: Any) -> Any:
    """A value without enumerations. Row by row: the rows are Python objects."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value
