"""Parameters and column types of scalar indices: refused by name, before anything is read.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from glaive.errors import OptionError, UnsupportedFeatureError

__all__ = ["check_type", "known_parameters", "no_parameters"]


def no_parameters(kind: str, parameters: Mapping[str, Any]) -> None:
    """Raise an ``OptionError`` if there are parameters."""
    known_parameters(kind, parameters, ())


def known_parameters(kind: str, parameters: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise an ``OptionError`` if there are parameters that a kind does not have."""
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        those = f"only {', '.join(known)}" if known else "none"
        raise OptionError(f"parameter {unknown[0]!r} of a {kind} index: the kind has {those}")


def check_type(kind: str, field: pa.Field[pa.DataType], *, supported: bool) -> None:
    """Raise an ``UnsupportedFeatureError`` if values of a column cannot be indexed."""
    if not supported:
        raise UnsupportedFeatureError(
            f"column {field.name!r} of type {field.type} cannot have a {kind} index"
        )
