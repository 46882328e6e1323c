"""What users say of an index to be built: kind, name and parameters, checked.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from glaive.dataclass import dataclass
from glaive.errors import IndexKindError, OptionError
from glaive.index.protocol import IndexKind
from glaive.index.registry import index_kinds, kind_by_name

__all__ = ["IndexConfig", "SupportedDistributedIndices", "kind_named"]

_ALIASES = {"fts": "inverted", "scalar": "btree"}


@dataclass
class IndexConfig:
    """A kind of index with parameters of its own.

    Parameters
    ----------
    index_type
        Such as ``"btree"``, ``"zonemap"`` or ``"json"``.
    parameters
        By name, such as ``{"rows_per_zone": 1000}``.
    """

    index_type: str
    parameters: dict[str, Any] = field(default_factory=dict)


class SupportedDistributedIndices(StrEnum):
    """Kinds that pylance names for builds by several workers. Here all kinds can be."""

    BTREE = "BTREE"
    INVERTED = "INVERTED"
    IVF_FLAT = "IVF_FLAT"
    IVF_PQ = "IVF_PQ"
    IVF_SQ = "IVF_SQ"
    VECTOR = "VECTOR"


def kind_named(
    index_type: object, parameters: Mapping[str, Any]
) -> tuple[IndexKind, dict[str, Any]]:
    """The kind of index that users name, and its parameters.

    Kinds of vector indices are one kind; the parameter ``index_type`` says which.

    Raises
    ------
    OptionError
        There is no such kind; the message names those there are.
    """
    given = dict(parameters)
    config: Any = index_type
    if hasattr(config, "parameters") and hasattr(config, "index_type"):  # pylance's as well
        given = {**config.parameters, **given}
        index_type = config.index_type
    if not isinstance(index_type, str):
        raise OptionError(f"index_type must be str or IndexConfig, found {index_type!r}")
    name = index_type.lower().replace("_", "")
    name = _ALIASES.get(name, name)
    if name.startswith(("ivf", "hnsw")):
        name, given["index_type"] = "vector", index_type.upper()
    kind = kind_by_name(name)
    if kind is None:
        names = (known.upper() for known in index_kinds() if known != "vector")
        expected = ", ".join(sorted(names))
        raise IndexKindError(
            f"index_type: Only {expected} are supported for scalar columns, and IVF_FLAT, IVF_SQ, "
            "IVF_PQ, IVF_RQ, IVF_HNSW_FLAT, IVF_HNSW_SQ and IVF_HNSW_PQ index types supported for "
            f"vectors. Got {index_type}"
        )
    return kind, given
