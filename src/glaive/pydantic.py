"""Pydantic models, under the names of ``lance.pydantic``. Vectors need pydantic 2."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from glaive.dataset.writing.source import (
    FixedSizeListMixin,
    get_extras,
    is_nullable,
    pydantic_to_schema,
)
from glaive.errors import OptionError

__all__ = [
    "FixedSizeListMixin",
    "MultiVector",
    "Vector",
    "get_extras",
    "is_nullable",
    "pydantic_to_schema",
]


class _Vectors(list[Any], FixedSizeListMixin):
    """A list whose class has the size of vectors."""

    _dim = 0
    _value_type: Any = None
    _nullable = True
    _many = False

    @classmethod
    def nullable(cls) -> bool:
        """Return whether the column may contain nulls."""
        return cls._nullable

    @classmethod
    def dim(cls) -> int:
        """Return the number of elements of a vector."""
        return cls._dim

    @classmethod
    def value_arrow_type(cls) -> pa.DataType:
        """Return the Arrow type of an element."""
        return cls._value_type  # type: ignore[no-any-return]  # set by _vectors

    @classmethod
    def is_multi_vector(cls) -> bool:
        """Return whether a value is a list of vectors."""
        return cls._many

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Return pydantic's schema to check a value."""
        from pydantic_core import core_schema

        vector = core_schema.list_schema(
            core_schema.float_schema(), min_length=cls._dim, max_length=cls._dim
        )
        checked = core_schema.list_schema(vector) if cls._many else vector
        listed = core_schema.no_info_before_validator_function(_as_list, checked)
        return core_schema.no_info_after_validator_function(cls, listed)


def _as_list(value: Any) -> Any:
    """Convert arrays to lists, which pydantic can check."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [_as_list(one) for one in value] if isinstance(value, list | tuple | range) else value


def _vectors(name: str, dim: int, value_type: Any, *, nullable: bool, many: bool) -> Any:
    if type(dim) is not int or dim < 1:
        raise OptionError(f"dim: expected an integer from 1 on, found {dim!r}")
    kind = pa.float32() if value_type is None else value_type
    body = {"_dim": dim, "_value_type": kind, "_nullable": nullable, "_many": many}
    return type(f"{name}({dim})", (_Vectors,), body)


def Vector(  # noqa: N802  # pylance's name: it makes a class
    dim: int, value_type: pa.DataType | None = None, nullable: bool = True
) -> Any:
    """Make the type of a field with a vector.

    Parameters
    ----------
    dim
        Number of elements of a vector.
    value_type
        Arrow type of an element; float32 by default.
    nullable
        Whether the column may contain nulls.

    Raises
    ------
    OptionError
        ``dim`` is not a positive integer.
    """
    return _vectors("Vector", dim, value_type, nullable=nullable, many=False)


def MultiVector(  # noqa: N802  # pylance's name: it makes a class
    dim: int, value_type: pa.DataType | None = None, nullable: bool = True
) -> Any:
    """Make the type of a field with vectors of one size; see :func:`Vector` for parameters."""
    return _vectors("MultiVector", dim, value_type, nullable=nullable, many=True)
