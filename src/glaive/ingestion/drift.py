"""Files whose columns differ from each other or from the dataset: the rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import OptionError, SchemaError
from glaive.ingestion.sources import SourceFile

__all__ = ["DriftRule", "Reconciled", "check_rule", "reconcile"]

DriftRule: TypeAlias = Literal["fail", "widen", "add"]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The columns of an ingest.

    Parameters
    ----------
    schema
        All columns.
    widened
        Columns of the dataset whose type becomes wider, with the new one.
    added
        Columns that the dataset lacks.
    """

    schema: pa.Schema
    widened: tuple[pa.Field[Any], ...] = ()
    added: tuple[pa.Field[Any], ...] = ()


def check_rule(rule: str) -> None:
    """Refuse what is no rule."""
    if rule not in get_args(DriftRule):
        known = ", ".join(repr(name) for name in get_args(DriftRule))
        raise OptionError(f"schema_drift: expected one of {known}, found {rule!r}")


def reconcile(
    files: Iterable[tuple[SourceFile, pa.Schema]],
    existing: pa.Schema | None,
    rule: DriftRule,
    *,
    typed: bool,
    named: bool,
    chosen: bool = False,
) -> Reconciled:
    """Find the columns of an ingest from those of its files.

    Parameters
    ----------
    files
        The files with their columns.
    existing
        Columns of the dataset or those that the caller gave; None: what the files have.
    rule
        ``fail``: every file has the same columns and types. ``widen``: types may differ where
        one type holds the values of both. ``add``: besides, columns may be added, and files may
        lack columns that may be null.
    typed
        Files state their types. Those that were inferred from samples only count where nothing
        else is known, or with ``widen`` and ``add``.
    named
        Files state their columns. Else those that are known need not be in every file, and
        others are an error of the record that has them.
    chosen
        ``existing`` are what the caller gave: types inferred from samples do not change them.

    Raises
    ------
    SchemaError
        A file differs in a way that the rule does not allow; names file and column.
    """
    known: dict[str, pa.Field[Any]] = {field.name: field for field in existing or ()}
    original = dict(known)
    seen: dict[str, str] = {}
    first: str | None = None
    for file, schema in files:
        uri = file.uri
        for field in schema:
            current = known.get(field.name)
            if current is None:
                if existing is not None and rule != "add" and not named:
                    continue
                if named and (existing is not None or first is not None) and rule != "add":
                    raise SchemaError(
                        f"{uri}: column {field.name} is not in "
                        f"{'the dataset' if existing is not None else first}. Pass "
                        "schema_drift='add' to add it"
                    )
                optional = existing is not None or first is not None
                known[field.name] = field.with_nullable(True) if optional else field
            elif (
                not typed
                and field.name in original
                and (chosen or rule == "fail" or _read_as(field.type, current.type))
            ):
                continue
            else:
                other = seen.get(field.name, "the dataset")
                inferred = not typed and field.name not in original
                known[field.name] = _joined(
                    current, field, rule, f"{uri} and {other}", inferred=inferred
                )
            seen.setdefault(field.name, uri)
        names = frozenset(schema.names)
        lacking = [name for name in known if name not in names]
        for name in lacking:
            if (named and rule != "add") or (name in original and not known[name].nullable):
                raise SchemaError(
                    f"{uri}: column {name} is missing. "
                    + (
                        "It may not be null"
                        if rule == "add" or not named
                        else "Pass schema_drift='add' to read it as null"
                    )
                )
            known[name] = known[name].with_nullable(True)
        first = first or uri
    changed = [field for name, field in known.items() if name in original]
    return Reconciled(
        pa.schema(list(known.values())),
        tuple(field for field in changed if field.type != original[field.name].type),
        tuple(field for name, field in known.items() if name not in original),
    )


def _joined(
    current: pa.Field[Any], field: pa.Field[Any], rule: DriftRule, where: str, *, inferred: bool
) -> pa.Field[Any]:
    """The field that holds the values of both."""
    nullable = current.nullable or field.nullable
    if _plain(current.type) == _plain(field.type):
        return current if inferred else current.with_nullable(nullable)
    if rule == "fail" and not inferred:
        raise SchemaError(
            f"column {field.name}: {field.type} and {current.type} in {where}. Pass "
            "schema_drift='widen' if one type shall hold both, or schema= to name the types"
        )
    refused = SchemaError(
        f"column {field.name}: no type holds {field.type} and {current.type}, in {where}. Pass "
        "schema= to name the types"
    )
    if _would_round(current.type, field.type):
        raise refused
    joined: pa.Field[Any]
    try:
        joined = pa.unify_schemas(
            [pa.schema([current.with_nullable(True)]), pa.schema([field.with_nullable(True)])],
            promote_options="permissive",
        ).field(0)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise refused from error
    if _plain(joined.type) == _plain(current.type):
        return current.with_nullable(nullable)
    return joined.with_nullable(nullable)


def _read_as(inferred: Any, known: Any) -> bool:
    """Whether values of a type that was inferred are read as those of the type that is known.

    Texts and lists as lists or vectors; numbers as decimals or ``uint64``, which are exact: what is
    inferred of integers that no ``bigint`` holds is a float.
    """
    if pa.types.is_fixed_size_list(known):
        return bool(pa.types.is_string(inferred) or pa.types.is_list(inferred))
    if pa.types.is_decimal(known):
        return bool(pa.types.is_floating(inferred))
    if pa.types.is_uint64(known):
        return bool(pa.types.is_integer(inferred) or pa.types.is_floating(inferred))
    return bool(pa.types.is_string(inferred) and pa.types.is_list(known))


def _would_round(one: Any, other: Any) -> bool:
    """Whether decimals would become floats, in the same place at any depth."""
    for decimal, kind in ((one, other), (other, one)):
        if pa.types.is_decimal(decimal) and pa.types.is_floating(kind):
            return True
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        names = {field.name for field in one} & {field.name for field in other}
        return any(_would_round(one.field(name).type, other.field(name).type) for name in names)
    if not one.num_fields or one.num_fields != other.num_fields:
        return False
    pairs = ((one.field(at).type, other.field(at).type) for at in range(one.num_fields))
    return any(_would_round(*pair) for pair in pairs)


def _plain(data_type: Any) -> Any:
    """Types whose values are the same, as one of them."""
    if pa.types.is_dictionary(data_type):
        return _plain(data_type.value_type)
    if pa.types.is_large_string(data_type) or data_type == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(data_type) or data_type == pa.binary_view():
        return pa.binary()
    if pa.types.is_large_list(data_type) or pa.types.is_list(data_type):
        return pa.list_(_plain(data_type.value_type))
    return data_type
