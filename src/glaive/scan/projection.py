"""Which columns a read returns, and which fields must be read for them.

A scan names its results as they were asked for: ``"s.x"`` gives a column called ``s.x``. A
take prunes instead: ``"s.x"`` gives ``s`` with the one member ``x``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Literal

import pyarrow as pa

from glaive.errors import ColumnNotFoundError, OptionError, UnsupportedFeatureError
from glaive.format.blobs import as_binary, described, has_blobs_v2
from glaive.format.extension import extended
from glaive.format.fields import Field, LanceSchema

__all__ = [
    "ROW_ADDRESS",
    "ROW_ID",
    "BlobHandling",
    "Output",
    "Projection",
    "column_names",
    "project",
]

BlobHandling = Literal["descriptions", "values"]

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"
_SYSTEM = (ROW_ID, ROW_ADDRESS)
_LISTS = ("list", "large_list", "map", "fixed_size_list")


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the result: member ``path`` of field ``at``, or row ids (``system``)."""

    at: int
    path: tuple[str, ...] = ()
    system: str | None = None


@dataclass(frozen=True)  # no slots: a derived value is cached on the instance
class Projection:
    """What is read and what comes out.

    Parameters
    ----------
    fields
        Top-level fields to read, some without all of their children.
    outputs
        Columns of the result, in order.
    schema
        Arrow schema of the result.
    plain
        The result is the fields, one by one.
    presented
        Some columns of the result have extension types, where files have storage types.
    payloads
        Fields that are read as descriptions of blobs, and come out as the values.
    """

    fields: tuple[Field, ...]
    outputs: tuple[Output, ...]
    schema: pa.Schema
    plain: bool
    presented: bool
    payloads: frozenset[int] = frozenset()

    @cached_property
    def leaves(self) -> frozenset[int]:
        """Ids of the fields that own the physical columns to be read."""
        return frozenset(leaf.id for field in self.fields for leaf in field.leaf_columns())


def column_names(columns: object, *, pruning: bool = False) -> tuple[str, ...] | None:
    """Check the ``columns`` argument of public functions; ``None`` means all columns.

    Where columns are only told apart from those left out (``pruning``), a name may be
    there more than once.

    Raises
    ------
    OptionError
        It is not a list of names, or a name is there twice.
    UnsupportedFeatureError
        It is a mapping whose values are more than column names.
    """
    if columns is None:
        return None
    if isinstance(columns, dict):
        raise UnsupportedFeatureError(
            "columns: computed columns (a mapping of names to expressions) are not supported "
            "yet; pass a list of column names"
        )
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise OptionError(f"columns: expected a list of names, found {columns!r}")
    names: list[str] = []
    for name in columns:
        if not isinstance(name, str):
            raise OptionError(f"columns: expected names, found {name!r}")
        if name in names:
            if pruning:
                continue
            raise OptionError(f"columns: {name!r} is there twice; name each column once")
        names.append(name)
    return tuple(names)


def project(
    schema: LanceSchema,
    names: Sequence[str] | None,
    *,
    with_row_id: bool = False,
    with_row_address: bool = False,
    nested: bool = False,
    blobs: BlobHandling = "descriptions",
) -> Projection:
    """Work out a projection.

    Parameters
    ----------
    names
        Column paths, ``_rowid`` and ``_rowaddr`` among them; all columns when ``None``.
    with_row_id, with_row_address
        Put the column last, wherever ``names`` has it.
    nested
        Keep members within their struct, as a take does.
    blobs
        Whether blob columns come as descriptions of where values are, or as the values.

    Raises
    ------
    ColumnNotFoundError
        A column does not exist; the message names the closest ones.
    """
    last = [name for name, on in zip(_SYSTEM, (with_row_id, with_row_address), strict=True) if on]
    wanted = schema.names if names is None else names
    order = [name for name in wanted if name not in last] + last
    own = set(schema.names)
    fields: list[Field] = []
    outputs: list[Output] = []
    arrow: list[pa.Field] = []
    if nested:
        paths = [name for name in order if name not in _SYSTEM or name in own]
        for name in paths:
            _check_blobs(schema.find(name))
        fields = list(schema.project(paths).fields)
        tops = {field.name: at for at, field in enumerate(fields)}
    for name in order:
        if name in _SYSTEM and name not in own:
            outputs.append(Output(-1, (), name))
            arrow.append(pa.field(name, pa.uint64()))
            continue
        chain = schema.find(name)
        if nested:
            at = tops.pop(chain[0].name, None)
            if at is not None:
                outputs.append(Output(at))
                arrow.append(_shown(fields[at], blobs).to_arrow())
            continue
        _check_blobs(chain)
        outputs.append(Output(len(fields), tuple(one.name for one in chain[1:])))
        fields.append(_only(chain))
        arrow.append(_output_field(name, [*chain[:-1], _shown(chain[-1], blobs)]))
    plain = len(fields) == len(outputs) and not any(o.path or o.system for o in outputs)
    payloads: frozenset[int] = frozenset()
    if blobs == "values":
        payloads = frozenset(at for at, field in enumerate(fields) if has_blobs_v2(field))
        plain = plain and not payloads
    else:
        fields = [described(field) for field in fields]
    metadata: Any = schema.to_arrow().metadata
    stored = pa.schema(arrow, metadata)
    seen = extended(stored)
    return Projection(tuple(fields), tuple(outputs), seen, plain, seen is not stored, payloads)


def _shown(field: Field, blobs: BlobHandling) -> Field:
    """The field as it comes out."""
    return described(field) if blobs == "descriptions" else as_binary(field)


def _check_blobs(chain: Sequence[Field]) -> None:
    """Refuse paths into the parts of a blob."""
    for field in chain[:-1]:
        if field.is_blob_v2:
            path = ".".join(one.name for one in chain)
            raise ColumnNotFoundError(
                f"column {path!r} lies within the blob column {field.name!r}; ask for that itself"
            )


def _only(chain: Sequence[Field]) -> Field:
    """The top-level field with nothing but the chain below it."""
    for field in chain[:-1]:
        if field.logical_type.startswith(_LISTS):
            path = ".".join(one.name for one in chain)
            raise ColumnNotFoundError(
                f"column {path!r} lies within the list {field.name!r}; ask for the list itself"
            )
    return reduce(lambda child, parent: replace(parent, children=(child,)), reversed(chain))


def _output_field(name: str, chain: Sequence[Field]) -> pa.Field:
    last = chain[-1].to_arrow()
    if len(chain) == 1:
        return last
    nullable = any(field.nullable for field in chain)
    return pa.field(name, last.type, nullable, last.metadata)
