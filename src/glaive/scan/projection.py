"""The columns that a read returns, and the fields that it reads for them.

A scan names its results as they were requested: ``"s.x"`` gives a column called ``s.x``. A
take prunes instead: ``"s.x"`` gives ``s`` with the one member ``x``. Both may have computed
columns. A scan may also read columns for its filter or its order that the result lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import field, replace
from functools import cached_property, reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import ascending, flags_of, number_array
from glaive.arrow.chunked import RowSizes, value_bytes
from glaive.arrow.conditions import Condition, InRange, IsOneOf
from glaive.dataclass import dataclass
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError
from glaive.format.blobs import as_binary, described, has_blobs_v2, logical
from glaive.format.extension import extended, with_metadata
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Feature
from glaive.scan.snapshot import Snapshot
from glaive.types import items_of

if TYPE_CHECKING:
    from glaive.expr.filters import Value
    from glaive.expr.tree import Node
    from glaive.format.rowids import RowValues
    from glaive.table.rowids import Lineage


# --- Columns computed for every dataset: row ids, addresses, positions, versions --------

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"
ROW_OFFSET = "_rowoffset"
CREATED_AT = "_row_created_at_version"
UPDATED_AT = "_row_last_updated_at_version"

SYSTEM_COLUMNS: Mapping[str, pa.DataType] = MappingProxyType(
    dict.fromkeys((ROW_ID, ROW_ADDRESS, ROW_OFFSET, CREATED_AT, UPDATED_AT), pa.uint64())
)
"""Their names and types."""

_LINEAGE: Mapping[str, Lineage] = MappingProxyType(
    {ROW_ID: "row_ids", CREATED_AT: "created_at", UPDATED_AT: "updated_at"}
)
_NUMBERS: WeakKeyDictionary[IsOneOf, NDArray[np.uint64]] = WeakKeyDictionary()
"""Numbers of sets, for as long as the sets are used."""

_MAX_UINT64 = 2**64 - 1


class SystemColumns:
    """The system columns of one fragment, each computed on first use."""

    __slots__ = ("_first_live", "_ids", "_kept", "_live", "_load", "rows", "stable")

    def __init__(self, snapshot: Snapshot, position: int) -> None:
        from glaive.table.rowids import load_lineage

        fragment = snapshot.manifest.fragment(position)
        # Leave out the snapshot: it refers to the session, which caches this.
        store, manifest = snapshot.store, snapshot.manifest

        def load(what: Lineage) -> RowValues:
            return load_lineage(store, manifest, manifest.fragment(position), what)

        self._load = load
        self._kept: dict[str, RowValues] = {}
        self._live = snapshot.live_rows(fragment)
        self._ids = fragment.id << 32
        self._first_live = snapshot.row_start_list[position]
        self.rows = fragment.physical_rows
        self.stable = snapshot.manifest.uses(Feature.STABLE_ROW_IDS)

    def of(self, name: str, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return values of a column for physical rows, including deleted rows."""
        if name == ROW_OFFSET:
            before: NDArray[np.int64] = rows + self._first_live
            if self._live is not None:
                before = before - self._live.deleted_before(rows)
            return before.astype(np.uint64)
        if is_address(name, stable=self.stable):
            return rows.view(np.uint64) + np.uint64(self._ids)  # rows are at least 0
        values = self._kept.get(name)
        if values is None:
            values = self._kept[name] = self._decode(name)
        return values.at(rows)

    def find(self, name: str, condition: Condition, start: int, stop: int) -> NDArray[np.int64]:
        """Return the rows from ``start`` to ``stop`` whose value passes, ascending."""
        if is_address(name, stable=self.stable):
            if isinstance(condition, InRange):
                first, last = bounds(condition)
                first, last = max(start, first - self._ids), min(stop - 1, last - self._ids)
                return np.arange(first, max(first, last + 1), dtype=np.int64)
            if isinstance(condition, IsOneOf) and not condition.negated:
                wanted = numbers(condition)
                low = np.uint64(self._ids + start)
                rows = wanted[wanted.searchsorted(low) :] - np.uint64(self._ids)
                return rows[: rows.searchsorted(np.uint64(stop))].astype(np.int64)
        values = self.of(name, np.arange(start, stop, dtype=np.int64))
        mask: Any = condition.mask(number_array(values))
        flags = flags_of(mask.buffers()[1], len(mask), mask.offset)
        return flags.nonzero()[0] + start

    def _decode(self, name: str) -> RowValues:
        from glaive.format.rowids import FIRST_VERSION, RowValues

        if name != ROW_ID and not self.stable:
            return RowValues.constant(FIRST_VERSION, self.rows)
        return self._load(_LINEAGE[name])


def is_address(name: str, *, stable: bool) -> bool:
    """Return whether a system column has addresses; with ``stable``, ``_rowid`` does not."""
    return name == ROW_ADDRESS or (name == ROW_ID and not stable)


def refuse_reserved_names(schema: LanceSchema, *names: str) -> None:
    """Refuse to read system columns if the dataset has columns with their names.

    Other writers use such names. Their values, of any type, would pass for row ids or versions.

    Raises
    ------
    SchemaError
        There is such a column; the message says how to remove it.
    """
    for name in names:
        if name in schema.names:
            raise SchemaError(
                f"column {name!r} of the dataset has a name that is reserved for what is known of "
                "each row, which is needed here. Rename the column (alter_columns), drop it "
                "(drop_columns), or read a version without it"
            )


def bounds(condition: InRange) -> tuple[int, int]:
    """Return the lowest and highest number of a range, both included."""
    lower: Any = condition.low
    upper: Any = condition.high
    low = 0 if lower is None else lower.as_py() + (not condition.low_included)
    high = _MAX_UINT64 if upper is None else upper.as_py() - (not condition.high_included)
    return low, high


def numbers(condition: IsOneOf) -> NDArray[np.uint64]:
    """Return the numbers of a set, ascending and unique; computed once for all fragments."""
    known = _NUMBERS.get(condition)
    if known is None:
        values: Any = condition.values.drop_null().cast(pa.uint64())
        data = items_of(values.buffers()[1], np.uint64, len(values), 8 * values.offset)
        known = _NUMBERS[condition] = ascending(data)
    return known


# --- Whether a computed column may have nulls, by its expression ------------------------


def computed_field(
    name: str, kind: pa.DataType, node: Node, column: Callable[[str], bool]
) -> pa.Field[Any]:
    """Return the field of a computed column; a column of type null is always nullable."""
    return pa.field(name, kind, pa.types.is_null(kind) or may_be_null(node, column))


def may_be_null(node: Node, column: Callable[[str], bool]) -> bool:
    """Return whether a bound expression may be null.

    Operators pass on the nulls of their operands. Functions may always be null, except functions
    that return the first value. ``column`` returns whether the column at a path may be null.
    """
    from glaive.expr import tree

    todo: list[Node] = [node]
    while todo:
        node = todo.pop()
        match node:
            case tree.Column():
                if column(node.path):
                    return True
            case tree.Literal():
                if node.is_null:
                    return True
            case tree.IsNull() | tree.IsTruth():
                pass
            case tree.Compare(op) if "DISTINCT" in op:
                pass
            case tree.Call(name=name) if name in tree.FIRST_VALUE:
                if all(may_be_null(argument, column) for argument in node.arguments):
                    return True
            case tree.Call() | tree.Member() | tree.Subscript():
                return True
            case tree.Cast() if node.attempt:
                return True
            case _:
                todo.extend(tree.children(node))
    return False


BlobHandling = Literal["descriptions", "values", "logical"]
"""Blobs as descriptions of their location; as values; or as logical values to write again, with
references to external values.
"""

Columns = tuple[str, ...] | tuple[tuple[str, str], ...]
"""Column paths, or pairs of a name and an expression."""

_TRAILING = (ROW_ID, ROW_ADDRESS)
_LISTS = ("list", "large_list", "map", "fixed_size_list")


@dataclass(frozen=True, slots=True)
class Output:
    """One column: member ``path`` of field ``at``, or a system column."""

    at: int
    path: tuple[str, ...] = ()
    system: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """One column that is computed from other columns, which are named as in the expression."""

    value: Value
    inputs: Mapping[str, Output]


@dataclass(frozen=True)  # derived values are cached in ``__dict__``
class Projection:
    """The fields to read and the columns of the result.

    Parameters
    ----------
    fields
        Top-level fields to read, some with a part of their children.
    outputs
        Columns of the result, in order.
    schema
        Arrow schema of the result.
    plain
        Whether the result is the fields, one by one.
    has_extension_types
        Whether columns of the result have extension types, where files have storage types.
    blob_contents
        Fields that are read as descriptions of blobs, and returned as values.
    blobs
        Form of blob columns.
    inputs
        Columns that a filter or an order needs, by path.
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
    def field_ids(self) -> frozenset[int]:
        """Ids of the fields and of all fields below."""
        return frozenset(member.id for field in self.fields for member in field.walk())

    @cached_property
    def field_keys(self) -> Sequence[tuple[Hashable, ...]]:
        """Keys of the fields in caches."""
        return [*map(column_key, self.fields)]

    @cached_property
    def read_as(self) -> str:
        """Key of the fields with their names and types."""
        return repr(self.fields)

    def unmeasured(self) -> Projection:
        """Return a copy that knows no sizes of rows; all copies share the keys of the fields."""
        _ = self.leaves, self.field_ids, self.read_as
        made = copy(self)
        made.__dict__["row_sizes"] = self.row_sizes.unmeasured()
        return made

    @cached_property
    def without_inputs(self) -> Projection:
        """The same result; only fields that it needs."""
        used = [output.at for output in self.outputs if isinstance(output, Output)]
        for output in self.outputs:
            if isinstance(output, Computed):
                used += [source.at for source in output.inputs.values()]
        count = max(used, default=-1) + 1  # fields of the inputs come last
        if count == len(self.fields):
            return self
        fields = self.fields[:count]
        blob_contents = frozenset(at for at in self.blob_contents if at < count)
        plain = _is_plain(fields, self.outputs) and not blob_contents
        return replace(self, fields=fields, plain=plain, blob_contents=blob_contents, inputs={})

    @cached_property
    def row_sizes(self) -> RowSizes:
        """Approximate bytes of a decoded row of the fields."""
        return RowSizes([field.to_arrow().type for field in self.fields])

    @cached_property
    def value_bytes(self) -> int:
        """Approximate bytes of a row, without the contents of lists and strings."""
        return sum(value_bytes(field.to_arrow().type) for field in self.fields)

    @cached_property
    def constant_bytes(self) -> int:
        """Maximum bytes of constants in a row of the computed columns."""
        computed = (output for output in self.outputs if isinstance(output, Computed))
        return sum(output.value.constant_bytes for output in computed)

    @cached_property
    def system(self) -> frozenset[str]:
        """Names of the system columns that are needed."""
        sources: list[Output] = list(self.inputs.values())
        for output in self.outputs:
            sources += output.inputs.values() if isinstance(output, Computed) else [output]
        return frozenset(source.system for source in sources if source.system is not None)


def column_key(field: Field) -> tuple[Hashable, ...]:
    """Return the ids and the type of a field, which identify it in all versions of a dataset."""
    return tuple(member.id for member in field.walk()), str(field.to_arrow().type)


def column_names(columns: object, *, pruning: bool = False) -> Columns | None:
    """Check the ``columns`` argument of public functions; ``None`` means all columns.

    With ``pruning``, where names only select columns, a name may be repeated.

    Raises
    ------
    OptionError
        It is another value than a list of names or a mapping of names to expressions. Or a name is
        repeated.
    """
    if columns is None:
        return None
    if isinstance(columns, Mapping):
        for name, text in columns.items():
            if not isinstance(name, str) or not isinstance(text, str):
                raise OptionError(
                    "columns: expected names with SQL expressions as strings, found "
                    f"{name!r}: {text!r}. Write an expression such as {{'b': 'a + 1'}}."
                )
        return tuple(columns.items())
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise OptionError(
            f"columns must be a list or dict[name, expression], got {type(columns)}: "
            f"{columns!r:.100}. Pass a list of names such as ['a']."
        )
    names: list[str] = []
    for name in columns:
        if not isinstance(name, str):
            raise OptionError(f"columns: expected names, found {name!r}. Pass strings: ['a'].")
        if name in names and not pruning:
            raise OptionError(f"columns: Duplicate column name: {name}. Name each column once")
        if name not in names or name in SYSTEM_COLUMNS:  # system columns may be repeated
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
    """Make a projection.

    Parameters
    ----------
    columns
        Column paths, also of system columns, or pairs of a name and an expression; all columns if
        ``None``.
    with_row_id, with_row_address
        Put the column last, whatever its place in ``columns``.
    nested
        Keep members within their struct, as a take does.
    blobs
        Form of blob columns.
    inputs
        Paths of further columns that are needed.

    Raises
    ------
    ColumnNotFoundError
        A column does not exist; the message names the closest ones.
    FilterError
        An expression is invalid.
    """
    last = [name for name, on in zip(_TRAILING, (with_row_id, with_row_address), strict=True) if on]
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
    """Return whether the result is the fields, one by one."""
    return len(fields) == len(outputs) and all(
        isinstance(output, Output) and output.at == at and not output.path
        for at, output in enumerate(outputs)
    )


def _name(column: str | tuple[str, str]) -> str:
    """Return the name of a column of the result."""
    return column if isinstance(column, str) else column[0]


class _Maker:
    """Makes a projection."""

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
        """Return whether a name is a system column."""
        return name in SYSTEM_COLUMNS and name not in self._own

    def add_tops(self, names: Sequence[str]) -> None:
        """Read the top-level fields of paths, each once, with the members that are named."""
        paths = [name for name in names if not self.is_system(name)]
        for name in paths:
            _check_blobs(self.schema.find(name))
        self.fields = list(self.schema.project(paths).fields)
        self._tops = {field.name: at for at, field in enumerate(self.fields)}

    def add_top(self, name: str) -> None:
        """Add the top-level field of a path, once."""
        if self.is_system(name):
            self._add_system(name)
            return
        at = self._tops.pop(self.schema.find(name)[0].name, None)
        if at is not None:
            self.outputs.append(Output(at))
            self.arrow.append(_result_field(self.fields[at], self.blobs).to_arrow())

    def add_path(self, name: str) -> None:
        """Add the column at a path."""
        if self.is_system(name):
            self._add_system(name)
            return
        chain = self._chain(name)
        self.outputs.append(self._read(name))
        self.arrow.append(_output_field(name, [*chain[:-1], _result_field(chain[-1], self.blobs)]))

    def add_computed(self, name: str, text: str) -> None:
        """Add the value of an expression, or a renamed column."""
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
        """Return the projection with further ``inputs``; ``same`` if all columns are stored."""
        fields, outputs = self.fields, self.outputs
        values = {path: self._read(path) for path in inputs}
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
            inputs=values,
            blobs=self.blobs,
        )

    def _add_system(self, name: str) -> None:
        self.outputs.append(Output(-1, (), name))
        # Takes compute positions among all rows, which are always valid.
        nullable = not (self.nested and name == ROW_OFFSET)
        self.arrow.append(pa.field(name, SYSTEM_COLUMNS[name], nullable))

    def _read(self, path: str) -> Output:
        """Read the column at a path, once."""
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
        """Return the field of a column under another name."""
        if self.is_system(path):
            return pa.field(name, SYSTEM_COLUMNS[path])
        chain = self._chain(path)
        return _output_field(path, [*chain[:-1], _result_field(chain[-1], self.blobs)]).with_name(
            name
        )


def _result_field(field: Field, blobs: BlobHandling) -> Field:
    """Return the field in the form of the result."""
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
    """Return the top-level field with only the chain below it."""
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


# --- Columns of some rows, each decoded on first use and then kept ----------------------


class LazyColumns:
    """Columns of ``count`` rows.

    Parameters
    ----------
    read
        Returns the rows of a field, by its number in the projection, in its stored type.
    system
        Returns the rows of a system column, by its name.
    logical
        Converts a field to its logical type, which results have.
    """

    __slots__ = ("_fields", "_logical", "_read", "_system", "count")

    def __init__(
        self,
        count: int,
        read: Callable[[int], Any],
        system: Callable[[str], Any],
        logical: Callable[[int, Any], Any],
    ) -> None:
        self.count = count
        self._read, self._system, self._logical = read, system, logical
        self._fields: dict[int, Any] = {}

    def field(self, at: int) -> Any:
        """Return a whole field, as stored."""
        array = self._fields.get(at)
        if array is None:
            array = self._fields[at] = self._read(at)
        return array

    def has(self, at: int) -> bool:
        """Return whether a field was decoded already."""
        return at in self._fields

    def put(self, at: int, array: Any) -> None:
        """Keep a field that was read in another way."""
        self._fields[at] = array

    def column(self, output: Output, *, stored: bool = False) -> Any:
        """Return a field, a member of a field, or a system column.

        It has the type of the result, or the ``stored`` type, which expressions use.
        """
        if output.system is not None:
            return self._system(output.system)
        array = self.field(output.at)
        if not stored:
            array = self._logical(output.at, array)
        for name in output.path:
            array = array.flatten()[array.type.get_field_index(name)]
        return array

    def batch(self, inputs: Mapping[str, Output]) -> pa.RecordBatch:
        """Return columns for an expression, named by their paths."""
        names = list(inputs)
        arrays = [self.column(output, stored=True) for output in inputs.values()]
        if not arrays:  # a constant still has as many values as there are rows
            names, arrays = ["rows"], [pa.nulls(self.count)]
        return pa.RecordBatch.from_arrays(arrays, names)

    def picked(
        self, count: int, pick: Callable[[Any], Any], system: Callable[[str], Any]
    ) -> LazyColumns:
        """Return ``count`` rows that ``pick`` picks from each field, with their system columns."""
        return LazyColumns(count, lambda at: pick(self.field(at)), system, self._logical)

    def output(self, output: Output | Computed) -> Any:
        """Return a column of the result."""
        if isinstance(output, Output):
            return self.column(output)
        return output.value.evaluate(self.batch(output.inputs))
