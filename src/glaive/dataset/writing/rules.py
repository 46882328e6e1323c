"""Rules of a table: ``CHECK`` constraints, defaults and generated columns.

Constraints are entries of the configuration, rules of a column are metadata of its field, so other
libraries keep them. :class:`glaive.dataset.writing.fragments.FragmentWriter` applies the rules to
the rows of all writers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Manifest
from glaive.table.configuration import DEFAULT, GENERATED, Rules


def user_of(rules: Rules, names: Iterable[str], *, own: bool) -> str | None:
    """Return the first constraint or generated column that uses one of some columns.

    ``own``: or a generated column among these columns.
    """
    bound, wanted = BoundRules(rules), set(names)
    for title, test in bound.checks:
        if wanted & _tops(test):
            return title
    for name, value in bound.generated.items():
        if wanted & _tops(value) or (own and name in wanted):
            return f"generated column {name!r}"
    return None


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
        self._rows = 0
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
        kept = [field for field in self._written if field.name not in computed]
        fitted: Any = conform(table, pa.schema(kept))
        for name in computed:
            fitted = self._with(fitted, name, self.generated[name])
        fitted = fitted.select(self._written.names)
        self.check(fitted)
        result: Rows = fitted
        return result

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
        for title, test in self.checks:
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
            if wrong is not None:
                raise SchemaError(
                    f"column {name!r}: its {key} {value.text!r:.80} {wrong}. A default is "
                    "constant for a row, a generated column is computed from stored columns."
                )
            (row,) = bound.batches(stub, value)
            stored_values(value, field, row)


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
    rules, names = Rules.of(manifest.schema, manifest.wire.config), list(names)
    user = None if rules is None or not names else user_of(rules, names, own=own)
    if user is not None:
        raise SchemaError(
            f"columns {', '.join(names)} cannot be {change}: {user} uses them. Drop the rule first."
        )
