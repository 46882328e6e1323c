"""Rules of a table: ``CHECK`` constraints, defaults, generated and identity columns.

Constraints are entries of the configuration, rules of a column are metadata of its field, so other
libraries keep them. :class:`glaive.dataset.writing.fragments.FragmentWriter` applies the rules to
the rows of all writers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.blocks import number_array
from glaive.arrow.chunked import batch_parts, dictionary_encoded
from glaive.arrow.conditions import python_rows
from glaive.arrow.jsonb import encode_jsonb
from glaive.dataset.writing.conform import conform
from glaive.dataset.writing.source import Rows
from glaive.errors import FilterError, SchemaError
from glaive.expr.casts import cast, check_members
from glaive.expr.coerce import is_string
from glaive.expr.compare import distinct
from glaive.expr.filters import (
    Filter,
    Value,
    bind_filter,
    bind_value,
    is_volatile,
    refuse_blob_uses,
)
from glaive.format.field import Field, quoted_name
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Manifest
from glaive.table.configuration import DEFAULT, GENERATED, IdentityGenerator, Rules
from glaive.table.named_jobs import Numbered


def user_of(rules: Rules, names: Iterable[str], *, own: bool) -> str | None:
    """Return the first constraint or generated column that uses one of some columns.

    ``own``: or a generated or identity column among these columns.
    """
    bound, wanted = BoundRules(rules), set(names)
    for title, test in bound.checks:
        if wanted & _tops(test):
            return title
    for name, value in bound.generated.items():
        if wanted & _tops(value) or (own and name in wanted):
            return f"generated column {name!r}"
    named = wanted & bound.identities.keys() if own else ()
    return f"identity column {min(named)!r}" if named else None


def _tops(bound: Filter | Value) -> set[str]:
    """Return the top-level columns that an expression uses."""
    return {path.partition(".")[0] for path in bound.columns}


class BoundRules:
    """Rules, ready to be applied to the batches of one writer.

    Parameters
    ----------
    rules
        The rules.
    written
        The columns to write; default: all columns of the table.

    Raises
    ------
    SchemaError
        An expression is invalid for the columns of the table.
    """

    def __init__(self, rules: Rules, written: LanceSchema | None = None) -> None:
        self._schema = rules.schema
        self._written = (written or rules.schema).to_arrow()
        self._rules, self._rows, self._numbers = rules, 0, dict(rules.numbers)
        self._given = dict.fromkeys(self._numbers, 0)
        found = ((field.name, IdentityGenerator.of(field)) for field in self._schema.fields)
        self.identities = {name: one for name, one in found if one is not None}
        self._strict = [
            self._identity_check(name, stored=written is None) for name in self.identities
        ]
        self.checks = [
            (f"CHECK constraint {name!r} ({text})", self._check(name, text))
            for name, text in rules.checks
        ]
        self.defaults = self._values(DEFAULT)
        self.generated = self._values(GENERATED)

    def _check(self, name: str, text: str) -> Filter:
        try:
            bind_filter(text, self._schema)  # the text alone, without the negation around it
            return bind_filter(f"NOT ({text}\n)", self._schema)
        except FilterError as error:
            raise SchemaError(
                f"CHECK constraint {name!r} of the table: {error} Remove it with "
                f"drop_constraint({name!r}), or restore the columns that it needs."
            ) from error

    def _identity_check(self, name: str, *, stored: bool) -> tuple[str, Filter]:
        """Return the filter of values that no commit gave: nulls, and later numbers if stored."""
        column, identity = quoted_name(name), self.identities[name]
        text, given = f"{column} IS NULL", self._numbers.get(name)
        if stored and identity.always and given is not None:
            low, high = identity.start, identity.start + (given - 1) * identity.step
            low, high = (low, high) if identity.step > 0 else (high, low)
            text += f" OR {column} < {low} OR {column} > {high}"
        return f"identity column {name!r}", bind_filter(text, self._schema)

    def _values(self, key: str) -> dict[str, Value]:
        found = dict[str, Value]()
        for field in self._schema.fields:
            if key in field.metadata:
                try:
                    found[field.name] = bind_value(field.metadata[key].decode(), self._schema)
                except (FilterError, ValueError) as error:
                    raise SchemaError(
                        f"column {field.name!r}: its {key} is invalid: {error} Correct it, or "
                        "remove it with alter_columns."
                    ) from error
        return found

    @property
    def columns(self) -> list[str]:
        """The columns that constraints and generated columns use."""
        used = {name for _, test in self.checks for name in _tops(test)}
        used |= {name for made, value in self.generated.items() for name in (made, *_tops(value))}
        used |= self.identities.keys()
        return [name for name in self._schema.names if name in used]

    def applied(self, rows: Rows) -> Rows:
        """Return rows with all columns to write, after checking them.

        Raises
        ------
        SchemaError
            The columns differ, or a row breaks a rule. The message names the rule and the row.
        """
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        given = set(table.schema.names)
        for name, value in self.defaults.items():
            if name not in given and name in self._written.names:
                table = self._with(table, name, value)
        computed = [name for name in self.generated if name not in given]
        later = {*computed, *(self.identities.keys() - given if self._numbers else ())}
        kept = [field for field in self._written if field.name not in later]
        fitted: Any = conform(table, pa.schema(kept))
        for name in self._numbers:
            fitted = self._numbered(fitted, name)
        for name in computed:
            fitted = self._with(fitted, name, self.generated[name])
        fitted = fitted.select(self._written.names)
        self.check(fitted)
        result: Rows = fitted
        return result

    def _numbered(self, table: pa.Table, name: str) -> pa.Table:
        """Give the rows that lack a value of an identity column their numbers."""
        identity, rows = self.identities[name], table.num_rows
        given = table.column(name) if name in table.schema.names else None
        if given is not None and self._rules.moved:
            return table
        if given is not None and given.null_count < rows and identity.always:
            raise always_generated(name)
        start = self._given[name]
        self._given[name] += rows
        places = places_of(np.arange(start, start + rows), self._rules.task)
        first = identity.start + identity.step * self._numbers[name]
        last = first + identity.step * int(places.max(initial=0))
        if abs(last) >= 1 << 63:
            raise SchemaError(
                f"identity column {name!r} has no number for {rows:,} rows: {last} exceeds its "
                "type. Choose a column with another start or step."
            )
        numbers: Any = number_array(first + identity.step * places)
        field = self._schema.by_name[name].to_arrow()
        if given is None:
            return table.append_column(field, pa.chunked_array([numbers], field.type))
        if given.null_count:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, field, pc.coalesce(given, numbers))
        return table

    def _with(self, table: pa.Table, name: str, value: Value) -> pa.Table:
        field = self._schema.by_name[name]
        work = partial(stored_values, value, field)
        parts = [part for batch in self.batches(table, value) for part in batch_parts(work, batch)]
        arrow = field.to_arrow()
        return table.append_column(arrow, pa.chunked_array(parts, arrow.type))

    def batches(self, table: pa.Table, bound: Filter | Value, *more: str) -> Iterator[Any]:
        """Yield batches with the columns of an expression; columns that the rows lack are null."""
        needed = {*_tops(bound), *more}
        present = [name for name in table.schema.names if name in needed]
        part = table.select(present or table.schema.names[:1])
        for name in needed.difference(present):
            field = self._schema.by_name[name].to_arrow().with_nullable(True)
            part = part.append_column(field, pa.nulls(part.num_rows, field.type))
        return iter(part.to_batches())

    def check(self, rows: Rows) -> None:
        """Raise if a row breaks a rule; nulls pass a constraint.

        Raises
        ------
        SchemaError
            The message names the rule and the row.
        """
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        for title, test in (*self.checks, *self._strict):
            self._refuse(title, table, test, test.mask)
        for name, value in self.generated.items():
            if name in table.schema.names:
                differs = partial(_differs, value, self._schema.by_name[name])
                title = f"generated column {name!r} ({value.text})"
                self._refuse(title, table, value, differs, name)
        self._rows += table.num_rows

    def _refuse(
        self,
        title: str,
        table: pa.Table,
        bound: Filter | Value,
        broken: Callable[[Any], Any],
        *more: str,
    ) -> None:
        row = self._rows
        for batch in self.batches(table, bound, *more):
            mask = broken(batch)
            if mask.true_count:
                at = pc.index(mask, True).as_py()
                (found,) = python_rows(batch.slice(at, 1))
                shown = ", ".join(f"{name} = {value!r:.60}" for name, value in found.items())
                rest = mask.true_count - 1
                others = f", and by {rest:,} more rows" if rest else ""
                raise SchemaError(
                    f"{title} is broken by row {row + at:,}, {shown}{others}. Correct these rows, "
                    "or drop the rule."
                )
            row += batch.num_rows


def _differs(value: Value, field: Field, batch: pa.RecordBatch) -> Any:
    """Return for each row whether the value of a generated column is another one."""
    flags = [
        distinct(part.column(field.name), stored_values(value, field, part))
        for part in batch_parts(lambda part: part, batch)
    ]
    return pa.concat_arrays(flags)


# --- Numbers of rows --------------------------------------------------------------------
# The writers of a job do not know how many they are. So each task has places of its own: blocks
# of rows on levels. A block of level n has every 2^(n+1)th place, and each level has 64 times the
# blocks of the level below.

_BLOCK_ROWS: Final = 16
_GROWTH: Final = 64
_LEVELS: Final = np.cumsum([0, *(_GROWTH**level for level in range(10))])
"""Number of blocks of a task below each level."""


def places_of(rows: NDArray[np.int64], task: int | None) -> NDArray[np.int64]:
    """Return for rows of a task, by their number in it, their number among all rows of a job."""
    if task is None:
        return rows
    block: NDArray[np.int64] = rows // _BLOCK_ROWS
    level = np.searchsorted(_LEVELS, block, "right") - 1
    block = ((task * _GROWTH**level + block - _LEVELS[level]) * 2 + 1) * 2**level - 1
    return block * _BLOCK_ROWS + rows % _BLOCK_ROWS


def numbered(
    rules: Rules | None, rows: Sequence[int], *, tasks: int | None = None
) -> dict[str, str]:
    """Return the properties of the commit of rows that writers numbered.

    Parameters
    ----------
    rows
        Number of rows that each writer wrote.
    tasks
        Number of tasks of the job; ``None`` for a writer alone.
    """
    if rules is None or not rules.numbers:
        return {}
    most = max(rows, default=0)
    ends = np.minimum(_LEVELS[1:] * _BLOCK_ROWS, most) - 1
    used = 1 + int(places_of(ends, tasks and tasks - 1).max()) if most else 0
    by_id = (
        (IdentityGenerator.of(rules.schema.by_name[name]), first) for name, first in rules.numbers
    )
    return Numbered(
        {one.id: (first, first + used) for one, first in by_id if one is not None}
    ).properties


# --- Values of expressions, with the types of columns -----------------------------------


def stored_values(value: Value, field: Field, batch: pa.RecordBatch) -> Any:
    """Return the values of an expression for a batch, with the type of a column.

    Raises
    ------
    SchemaError
        A value cannot be cast.
    """
    array, data_type = value.evaluate(batch), field.to_arrow().type
    try:
        if field.logical_type == "json" and is_string(array.type):
            array = encode_jsonb(array)
        return _as(array, data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, FilterError) as error:
        raise SchemaError(
            f"Cast error: Cannot cast {value.text} of type {array.type} to {data_type}, the "
            f"type of column {field.name!r}. {error}"
        ) from error


def _as(values: Any, data_type: Any) -> Any:
    """Cast values of an expression to the type of a column, as CAST does."""
    if values.type == data_type:
        return values
    if isinstance(data_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(data_type, _as(values, data_type.storage_type))
    if pa.types.is_dictionary(data_type):
        return pc.cast(dictionary_encoded(_as(values, data_type.value_type)), data_type)
    if pa.types.is_nested(data_type):
        check_members(values.type, data_type)
        return pc.cast(values, data_type)
    return cast(values, data_type)


def check_values(schema: LanceSchema) -> None:
    """Refuse invalid defaults and generated columns.

    Raises
    ------
    SchemaError, FilterError
        An expression is invalid, cannot be cast, or depends on other things than it may.
    """
    bound = BoundRules(Rules(schema))
    stub = pa.table({"": pa.nulls(1)})
    for key, values in ((DEFAULT, bound.defaults), (GENERATED, bound.generated)):
        for name, value in values.items():
            field, used = schema.by_name[name], _tops(value)
            refuse_blob_uses(value.expression, schema.fields, f"{key} of {name!r}")
            wrong = None
            if key == DEFAULT:
                wrong = f"uses the columns {', '.join(sorted(used))}" if used else None
            elif not used or is_volatile(value.expression):
                wrong = "does not depend on columns alone"
            elif used & bound.generated.keys():
                wrong = "uses a generated column"
            elif name in bound.defaults:
                wrong = "excludes the default that the column has"
            if name in bound.identities:
                wrong = "excludes the identity that the column has"
            if wrong is not None:
                raise SchemaError(
                    f"column {name!r}: its {key} {value.text!r:.80} {wrong}. A default is "
                    "constant for a row, a generated column is computed from stored columns."
                )
            (row,) = bound.batches(stub, value)
            stored_values(value, field, row)


def refuse_given(schema: LanceSchema, names: Iterable[str]) -> None:
    """Refuse to set columns whose values only commits give.

    Raises
    ------
    SchemaError
        One of the columns is an identity column that is always generated.
    """
    for name in names:
        identity = IdentityGenerator.of(schema.by_name[name])
        if identity is not None and identity.always:
            raise always_generated(name)


def always_generated(name: str) -> SchemaError:
    """Return the error for values of a column that only commits give."""
    return SchemaError(
        f"identity column {name!r} is GENERATED ALWAYS, so rows cannot bring their own values. "
        "Leave the column out, or declare it GENERATED BY DEFAULT."
    )


# --- Changes of rules -------------------------------------------------------------------


def refuse_ruled(manifest: Manifest, names: Iterable[str], change: str, *, own: bool) -> None:
    """Refuse to change columns that rules use.

    Parameters
    ----------
    change
        What is done to the columns, for the message.
    own
        Whether to refuse generated columns, too.

    Raises
    ------
    SchemaError
        A rule uses one of the columns.
    """
    rules, names = Rules.of_version(manifest), list(names)
    user = None if rules is None or not names else user_of(rules, names, own=own)
    if user is not None:
        raise SchemaError(
            f"columns {', '.join(names)} cannot be {change}: {user} uses them. Drop the rule first."
        )
