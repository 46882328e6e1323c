"""The check of a version: what its change makes of the one before, and nothing else."""

from __future__ import annotations

from tests.kit.observe import expect, expect_equal
from tests.proof.simulated.changes import Change
from tests.proof.simulated.contents import Contents, Expected, Rows, changed_meanwhile

__all__ = ["check_contents", "check_lineage", "expected_after"]


def expected_after(change: Change, before: Contents, opened: Contents, first: Contents) -> Expected:
    """What a change, made for the version ``opened``, makes of the version before it."""
    if change.after is not None:
        return change.after(change, before, opened)
    types, rows = before.types, before.values
    match change.kind:
        case "append":
            expect(not change.rows.keys() & rows.keys(), lambda: f"rows twice: {change}")
            given = _given(change, before, opened), change.number
            rows |= {key: before.new_row(value, *given) for key, value in change.rows.items()}
            return Expected(types, rows)
        case "overwrite":
            rows = {key: {"value": value} for key, value in change.rows.items()}
            return Expected({"value": types["value"]}, rows)
        case "restore":
            return Expected(first.types, first.values)
        case _:
            return _changed_rows(change, before, opened)


def _given(change: Change, before: Contents, opened: Contents) -> list[int]:
    """Ids of columns of which new rows have values: renamed meanwhile, or of another type.

    A column that took the name of a renamed one has none: the rows have the renamed column.
    """
    there = {at for at, _ in before.columns.values()}
    gone = {name for name, (at, _) in opened.columns.items() if at not in there}
    whole = gone if change.fields else ()
    columns = before.columns.items()
    return [at for name, (at, _) in columns if at in change.fields or name in whole]


def _changed_rows(change: Change, before: Contents, opened: Contents) -> Expected:
    """Of a change of single rows, which may have met what another has changed, or not."""
    rows = before.values
    given = change.rows if change.kind == "upsert" else None
    touched = {
        key
        for key, row in before.rows.items()
        if (change.matches(key, row.value) if given is None else key in given)
    }
    for key in touched:
        if change.kind == "delete":
            del rows[key]
        else:
            value = change.rows[key] if change.kind == "upsert" else rows[key]["value"] + 100
            rows[key] = {**rows[key], "value": value}
    if change.kind == "upsert":
        new = {key: value for key, value in change.rows.items() if key not in rows}
        rows |= {key: before.new_row(value) for key, value in new.items()}
    return Expected(before.types, rows, touched, touched & changed_meanwhile(before, opened))


def check_contents(what: str, expected: Expected, before: Contents, after: Contents) -> None:
    """A version has the columns and the rows that it should have."""
    rows = dict(expected.rows)
    found = after.values
    for key in expected.free:  # either untouched or changed, and nothing else
        if found.get(key) == before.rows[key].values:
            rows[key] = before.rows[key].values
    expect(found == rows, lambda: f"{what}:\n{before}\n{after}\n{expected}")
    types = after.types
    expect(types == expected.types, lambda: f"{what} has {types}, not {expected.types}")


def check_lineage(
    version: int, expected: Expected, used: set[int], before: Rows, after: Rows
) -> None:
    """Rows keep their ids; the versions of a row say when it was made and changed."""
    for key, row in after.items():
        old = before.get(key)
        if old is None:
            expect(row.row_id not in used, (version, key, row))
            expect_equal((key, row.created, row.updated), (key, version, version))
            continue
        expect_equal((key, row.row_id, row.created), (key, old.row_id, old.created))
        if key not in expected.touched:
            expect_equal((key, row.updated), (key, old.updated))
        elif row.values != old.values:
            expect_equal((key, row.updated), (key, version))
