"""Parameters and column types of scalar indices: refused by name, before anything is read.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from glaive.errors import IndexKindError, OptionError
from glaive.index.index_file import IndexFile
from glaive.index.protocol import PARAMETERS

__all__ = [
    "check_same_type",
    "check_type",
    "integer",
    "known_parameters",
    "no_parameters",
    "probability",
]


def no_parameters(kind: str, parameters: Mapping[str, Any]) -> None:
    """Raise an ``OptionError`` if there are parameters that no kind of index has."""
    known_parameters(kind, parameters, ())


def known_parameters(kind: str, parameters: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise an ``OptionError`` if there are parameters that no kind of index has.

    Parameters of other kinds are ignored, as one set of them may be given to several kinds.
    """
    unknown = sorted(set(parameters).difference(known, PARAMETERS))
    if unknown:
        those = f"only {', '.join(known)}" if known else "none"
        raise OptionError(f"parameter {unknown[0]!r} of a {kind} index: the kind has {those}")


def check_type(kind: str, field: pa.Field[pa.DataType], *, supported: bool) -> None:
    """Raise an ``IndexKindError`` if values of a column cannot be indexed."""
    if not supported:
        raise IndexKindError(
            f"{kind} index column {field.name}: column {field.name!r} of type {field.type} cannot "
            f"have a {kind} index"
        )


def check_same_type(file: IndexFile, name: str, kind: pa.DataType) -> None:
    """Raise a ``CorruptFileError`` if a column of a file has not the type of values to be added."""
    stored = file.schema.field(name).type
    if stored != kind:
        raise file.corrupt_column(name, f"type {kind}, as the column that is indexed", f"{stored}")


_MAX_INTEGER = 2**31 - 1


def integer(parameters: Mapping[str, Any], name: str, default: int) -> int:
    """An integer from 1 on; raises an ``OptionError`` if the parameter is something else."""
    value = parameters.get(name, default)
    if type(value) is not int or not 1 <= value <= _MAX_INTEGER:
        raise OptionError(f"{name}: expected an integer from 1 to {_MAX_INTEGER}, found {value!r}")
    return value


def probability(parameters: Mapping[str, Any], name: str, default: float) -> float:
    """A number between 0 and 1; raises an ``OptionError`` if the parameter is something else."""
    value = parameters.get(name, default)
    if type(value) not in (int, float) or not 0 < value < 1:
        raise OptionError(f"{name}: expected a number between 0 and 1, found {value!r}")
    return float(value)
