"""Which columns a read returns, and which fields must be read for them.

A scan names its results as they were requested: ``"s.x"`` gives a column called ``s.x``. A
take prunes instead: ``"s.x"`` gives ``s`` with the one member ``x``. Both may have computed
columns; and a scan may need columns for its filter or its order that are no part of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from glaive.arrow.widths import RowSizes
from glaive.dataclass import dataclass
from glaive.errors import ColumnNotFoundError, OptionError
from glaive.format.blobs import as_binary, described, has_blobs_v2, logical
from glaive.format.extension import extended, with_metadata
from glaive.format.fields import Field, LanceSchema
from glaive.scan.nullability import computed_field
from glaive.scan.system_columns import ROW_ADDRESS, ROW_ID, ROW_OFFSET, SYSTEM_COLUMNS

if TYPE_CHECKING:
    from glaive.expr.filters import Value

__all__ = [
    "BlobHandling",
    "Columns",
    "Computed",
    "Output",
    "Projection",
    "column_names",
    "project",
]

BlobHandling = Literal["descriptions", "values", "logical"]
"""Blobs as where they are; as their values; or, to write them again, as what an author would hand
over, where values that lie elsewhere are references."""

Columns = tuple[str, ...] | tuple[tuple[str, str], ...]
"""Column paths, or pairs of a name and an expression."""

_LAST = (ROW_ID, ROW_ADDRESS)
_LISTS = ("list", "large_list", "map", "fixed_size_list")


@dataclass(frozen=True, slots=True)
class Output:
    """One column: member ``path`` of field ``at``, or a column of no file (``system``)."""

    at: int
    path: tuple[str, ...] = ()
    system: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """One column that is worked out from others, which are named as in the expression."""

    value: Value
    inputs: Mapping[str, Output]


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
    has_extension_types
        Some columns of the result have extension types, where files have storage types.
    blob_contents
        Fields that are read as descriptions of blobs, and come out as the values.
    blobs
        What blob columns come as: as ``"logical"``, values that lie elsewhere are references.
    inputs
        Columns that a filter or an order needs, by path; not part of the result.
    """

    fields: tuple[Field, ...]
    outputs: tuple[Output | Computed, ...]
    schema: pa.Schema
    plain: bool
    has_extension_types: bool
    blob_contents: frozenset[int] = frozenset()
    inputs: Mapping[str, Output] = field(default_factory=dict)
    blobs: BlobHandling = "descriptions"

    @cached_property
    def leaves(self) -> frozenset[int]:
        """Ids of the fields that own the physical columns to be read."""
        return frozenset(leaf.id for field in self.fields for leaf in field.leaf_columns())

    @cached_property
    def without_inputs(self) -> Projection:
        """The same result, without the fields that only the inputs need."""
        used = [output.at for output in self.outputs if isinstance(output, Output)]
        for output in self.outputs:
            if isinstance(output, Computed):
                used += [source.at for source in output.inputs.values()]
        count = max(used, default=-1) + 1  # those of the inputs come last
        if count == len(self.fields):
            return self
        fields = self.fields[:count]
        blob_contents = frozenset(at for at in self.blob_contents if at < count)
        plain = _is_plain(fields, self.outputs) and not blob_contents
        return replace(self, fields=fields, plain=plain, blob_contents=blob_contents, inputs={})

    @cached_property
    def row_sizes(self) -> RowSizes:
        """Bytes of a decoded row of the fields, about."""
        return RowSizes(field.to_arrow().type for field in self.fields)

    @cached_property
    def constant_bytes(self) -> int:
        """Bytes of constants in a row of the computed columns, at most."""
        computed = (output for output in self.outputs if isinstance(output, Computed))
        return sum(output.value.constant_bytes for output in computed)

    @cached_property
    def system(self) -> frozenset[str]:
        """Names of the system columns that are needed."""
        sources: list[Output] = list(self.inputs.values())
        for output in self.outputs:
            sources += output.inputs.values() if isinstance(output, Computed) else [output]
        return frozenset(source.system for source in sources if source.system is not None)


def column_names(columns: object, *, pruning: bool = False) -> Columns | None:
    """Check the ``columns`` argument of public functions; ``None`` means all columns.

    Where columns are only distinguished from those left out (``pruning``), a name may be
    there more than once.

    Raises
    ------
    OptionError
        It is neither a list of names nor a mapping of names to expressions, or a name is
        there twice.
    """
    if columns is None:
        return None
    if isinstance(columns, Mapping):
        for name, text in columns.items():
            if not isinstance(name, str) or not isinstance(text, str):
                raise OptionError(
                    "columns: expected names with SQL expressions as strings, found "
                    f"{name!r}: {text!r}"
                )
        return tuple(columns.items())
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise OptionError(
            "columns must be a list or dict[name, expression], of names, or of names and "
            f"expressions, got {type(columns)}: {columns!r:.100}"
        )
    names: list[str] = []
    for name in columns:
        if not isinstance(name, str):
            raise OptionError(f"columns: expected names, found {name!r}")
        if name in names and not pruning:
            raise OptionError(f"columns: Duplicate column name: {name}. Name each column once")
        if name not in names or name in SYSTEM_COLUMNS:  # these come as often as they are named
            names.append(name)
    return tuple(names)


def project(
    schema: LanceSchema,
    columns: Columns | Sequence[str] | None,
    *,
    with_row_id: bool = False,
    with_row_address: bool = False,
    nested: bool = False,
    blobs: BlobHandling = "descriptions",
    inputs: Sequence[str] = (),
) -> Projection:
    """Work out a projection.

    Parameters
    ----------
    columns
        Column paths, system columns among them, or pairs of a name and an expression; all
        columns when ``None``.
    with_row_id, with_row_address
        Put the column last, wherever ``columns`` has it.
    nested
        Keep members within their struct, as a take does.
    blobs
        What blob columns come as.
    inputs
        Paths of columns that are needed beside those of the result.

    Raises
    ------
    ColumnNotFoundError
        A column does not exist; the message names the closest ones.
    FilterError
        An expression cannot be understood.
    """
    last = [name for name, on in zip(_LAST, (with_row_id, with_row_address), strict=True) if on]
    wanted = schema.names if columns is None else columns
    order = [column for column in wanted if _name(column) not in last] + last
    made = _Maker(schema, blobs, nested=nested)
    if nested:
        made.add_tops([column for column in order if isinstance(column, str)])
    for column in order:
        if not isinstance(column, str):
            made.add_computed(*column)
        elif not nested:
            made.add_path(column)
        else:
            made.add_top(column)
    return made.done(inputs, same=all(isinstance(column, str) for column in order))


def _is_plain(fields: Sequence[Field], outputs: Sequence[Output | Computed]) -> bool:
    """Whether the result is the fields, one by one."""
    return len(fields) == len(outputs) and all(
        isinstance(output, Output) and output.at == at and not output.path
        for at, output in enumerate(outputs)
    )


def _name(column: str | tuple[str, str]) -> str:
    """What a column of the result is called."""
    return column if isinstance(column, str) else column[0]


class _Maker:
    """A projection in the making."""

    def __init__(self, schema: LanceSchema, blobs: BlobHandling, *, nested: bool) -> None:
        self.schema = schema
        self.blobs = blobs
        self.nested = nested
        self.fields: list[Field] = []
        self.outputs: list[Output | Computed] = []
        self.arrow: list[pa.Field] = []
        self._own = frozenset(schema.names)
        self._tops: dict[str, int] = {}
        self._paths: dict[str, Output] = {}

    def is_system(self, name: str) -> bool:
        """Whether a name is one of the columns that no file has."""
        return name in SYSTEM_COLUMNS and name not in self._own

    def add_tops(self, names: Sequence[str]) -> None:
        """Read the top-level fields of paths, each once, with the members that are named."""
        paths = [name for name in names if not self.is_system(name)]
        for name in paths:
            _check_blobs(self.schema.find(name))
        self.fields = list(self.schema.project(paths).fields)
        self._tops = {field.name: at for at, field in enumerate(self.fields)}

    def add_top(self, name: str) -> None:
        """The next column: the field that a path lies in, unless it is there already."""
        if self.is_system(name):
            self._add_system(name)
            return
        at = self._tops.pop(self.schema.find(name)[0].name, None)
        if at is not None:
            self.outputs.append(Output(at))
            self.arrow.append(_result_field(self.fields[at], self.blobs).to_arrow())

    def add_path(self, name: str) -> None:
        """The next column: what is at a path."""
        if self.is_system(name):
            self._add_system(name)
            return
        chain = self._chain(name)
        self.outputs.append(self._read(name))
        self.arrow.append(_output_field(name, [*chain[:-1], _result_field(chain[-1], self.blobs)]))

    def add_computed(self, name: str, text: str) -> None:
        """The next column: the value of an expression; a column under a name of its own."""
        from glaive.expr.filters import bind_value
        from glaive.expr.tree import Column

        value = bind_value(text, self.schema, system=SYSTEM_COLUMNS)
        node = value.expression
        if isinstance(node, Column):
            self.outputs.append(self._read(node.path))
            self.arrow.append(self._renamed(node.path, name))
            return
        inputs = {path: self._read(path) for path in value.columns}
        self.outputs.append(Computed(value, inputs))
        self.arrow.append(computed_field(name, value.type, node, self._may_be_null))

    def done(self, inputs: Sequence[str], *, same: bool) -> Projection:
        """The projection, with columns needed beside it; ``same`` if none of it is computed."""
        fields, outputs = self.fields, self.outputs
        beside = {path: self._read(path) for path in inputs}
        plain = _is_plain(fields, outputs)
        blob_contents: frozenset[int] = frozenset()
        if self.blobs != "descriptions":
            blob_contents = frozenset(at for at, field in enumerate(fields) if has_blobs_v2(field))
            plain = plain and not blob_contents
        else:
            fields = [described(field) for field in fields]
        stored = with_metadata(self.arrow, self.schema.to_arrow(), same=same)
        logical_schema = extended(stored)
        return Projection(
            fields=tuple(fields),
            outputs=tuple(outputs),
            schema=logical_schema,
            plain=plain,
            has_extension_types=logical_schema is not stored,
            blob_contents=blob_contents,
            inputs=beside,
            blobs=self.blobs,
        )

    def _add_system(self, name: str) -> None:
        self.outputs.append(Output(-1, (), name))
        # Positions among all rows are worked out by takes, and never null there.
        nullable = not (self.nested and name == ROW_OFFSET)
        self.arrow.append(pa.field(name, SYSTEM_COLUMNS[name], nullable))

    def _read(self, path: str) -> Output:
        """A path as a column that is read, once however often it is needed."""
        if self.is_system(path):
            return Output(-1, (), path)
        output = self._paths.get(path)
        if output is None:
            chain = self._chain(path)
            output = Output(len(self.fields), tuple(field.name for field in chain[1:]))
            self._paths[path] = output
            self.fields.append(_only(chain))
        return output

    def _chain(self, path: str) -> tuple[Field, ...]:
        chain = self.schema.find(path)
        _check_blobs(chain)
        return chain

    def _may_be_null(self, path: str) -> bool:
        return self.is_system(path) or any(field.nullable for field in self.schema.find(path))

    def _renamed(self, path: str, name: str) -> pa.Field:
        """The field of a column under another name; it stays what it is."""
        if self.is_system(path):
            return pa.field(name, SYSTEM_COLUMNS[path])
        chain = self._chain(path)
        return _output_field(path, [*chain[:-1], _result_field(chain[-1], self.blobs)]).with_name(
            name
        )


def _result_field(field: Field, blobs: BlobHandling) -> Field:
    """The field as it comes out."""
    return _RESULT_FIELD[blobs](field)


_RESULT_FIELD: Mapping[BlobHandling, Callable[[Field], Field]] = {
    "descriptions": described,
    "values": as_binary,
    "logical": logical,
}


def _check_blobs(chain: Sequence[Field]) -> None:
    """Refuse paths into the parts of a blob."""
    for above in chain[:-1]:
        if above.is_blob_v2:
            path = ".".join(field.name for field in chain)
            raise ColumnNotFoundError(
                f"column {path!r} lies within the blob column {above.name!r}; ask for that itself"
            )


def _only(chain: Sequence[Field]) -> Field:
    """The top-level field with nothing but the chain below it."""
    for above in chain[:-1]:
        if above.logical_type.startswith(_LISTS):
            path = ".".join(field.name for field in chain)
            raise ColumnNotFoundError(
                f"column {path!r} lies within the list {above.name!r}; ask for the list itself"
            )
    return reduce(lambda child, parent: replace(parent, children=(child,)), reversed(chain))


def _output_field(name: str, chain: Sequence[Field]) -> pa.Field:
    last = chain[-1].to_arrow()
    if len(chain) == 1:
        return last
    nullable = any(field.nullable for field in chain)
    return pa.field(name, last.type, nullable, last.metadata)
