"""Changes of columns: added, dropped, renamed, cast, and given new values where they lie."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from tests.proof.simulated.changes import Change
from tests.proof.simulated.contents import (
    VECTOR,
    Contents,
    Expected,
    Values,
    changed_meanwhile,
    typed,
)
from tests.proof.simulated.frames import KEY_COLUMNS, key_columns, schema_of, table

from glaive.dataset.columns.column_files import write_column_file
from glaive.dataset.columns.udf import batch_udf
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.lance_operation import LanceOperation
from glaive.dataset.tasks import commit_operation
from glaive.format.field import Field
from glaive.table.operations.merge import DataReplacement

_TYPES: dict[str, pa.DataType] = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "string": pa.string(),
    VECTOR: pa.list_(pa.float32(), 2),
}


_CHECKPOINTS = TemporaryDirectory(prefix="simulated-")
"""Of all schedules."""


def _other(at: LanceDataset, change: Change) -> Field | None:
    """A column besides those of all versions, if there is one; noted for the check."""
    fields = at.manifest.schema.fields
    others = [field for field in fields if field.name not in (*KEY_COLUMNS, "value")]
    change.fields = [field.id for field in others[:1]]
    change.found = others[0].name if others else None
    return others[0] if others else None


def _name_of(before: Contents, change: Change) -> str:
    """What the column of a change is called: another change may have renamed it, or replaced it."""
    names = [name for name, (at, _) in before.columns.items() if at in change.fields]
    return names[0] if names else change.found  # type: ignore[no-any-return]  # text


def _given(at: LanceDataset, keys: Collection[int], name: str, value: int, kind: str) -> pa.Table:
    """One value for some keys."""
    schema = pa.schema([at.schema.field("key"), pa.field(name, _TYPES[kind])])
    return pa.table({**key_columns(keys, schema), name: [typed(kind, value)] * len(keys)}, schema)


# --------------------------------------------------------------------------- added


def add_column(number: int, rng: random.Random) -> Change:
    """Add a column in one of the ways in which its values can be given."""
    name = rng.choice([f"c{number}", "more"])
    how = rng.choice(["expression", "function", "stream", "table", "fragments", "nothing"])
    keys = range(4)

    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = [2 * value.as_py() for value in batch["value"]]
        return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], names=[name])

    def run(at: LanceDataset, _: Change) -> None:
        match how:
            case "expression":
                at.add_columns({name: "value * 2"})
            case "function":
                at.add_columns(doubled, read_columns=["value"])
            case "stream":
                at.add_columns(_stream(name, number, at.count_rows()))
            case "table":
                at.merge(_given(at, keys, name, number, "int64"), "key")
            case "fragments":
                made = [one.merge_columns({name: "value * 2"}) for one in at.get_fragments()]
                if made:
                    operation = LanceOperation.Merge([one for one, _ in made], made[0][1])
                    LanceDataset.commit(at, operation, read_version=at.version)
            case _:
                at.add_columns(pa.field(name, pa.int64()))

    def value_of(key: int, values: Values) -> int | None:
        match how:
            case "stream":
                return number
            case "table":
                return number if key in keys else None
            case "nothing":
                return None
            case _:
                return 2 * values["value"]  # type: ignore[no-any-return]  # a number

    def after(_: Change, before: Contents, __: Contents) -> Expected:
        rows = {key: {**old, name: value_of(key, old)} for key, old in before.values.items()}
        types = {**before.types, name: "int64"}
        return Expected(types, rows, () if how == "nothing" else rows)

    return Change(number, "add column", run, after=after)


def checkpointed(number: int, rng: random.Random) -> Change:
    """Add a column by a function, with a checkpoint: again until it is known to be there."""
    name = f"c{number}"
    checkpoint = Path(_CHECKPOINTS.name, f"{rng.getrandbits(64):x}")
    checkpoint.unlink(missing_ok=True)
    noted: dict[int, tuple[Collection[int], str]] = {}  # what attempts read, by their version

    def run(at: LanceDataset, change: Change) -> None:
        if name in at.schema.names:
            return  # an attempt whose end was not known
        other = _other(at, change)
        if other is None or other.logical_type != "int64":
            change.fields, change.found = [], "value"
        read = change.found
        noted[at.version] = change.fields, read

        @batch_udf(pa.schema([pa.field(name, pa.int64())]), checkpoint)
        def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
            values = [None if value is None else 2 * value for value in batch[read].to_pylist()]
            return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], names=[name])

        at.add_columns(doubled, read_columns=[read], batch_size=2)

    def after(change: Change, before: Contents, _: Contents) -> Expected:
        change.fields, change.found = noted[change.planned]
        read = _name_of(before, change)
        doubled = {key: old[read] and 2 * old[read] for key, old in before.values.items()}
        rows = {key: {**old, name: doubled[key]} for key, old in before.values.items()}
        return Expected({**before.types, name: "int64"}, rows, rows)

    return Change(number, "add column", run, after=after, retried=True)


def _stream(name: str, value: int, rows: int) -> pa.RecordBatchReader:
    """One value for each row of a table, in batches of three."""
    schema = pa.schema([pa.field(name, pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, 3):
            part = pa.array([value] * min(3, rows - start), pa.int64())
            yield pa.RecordBatch.from_arrays([part], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


# ------------------------------------------------------------------------- altered


def drop_column(number: int, _: random.Random) -> Change:
    def run(at: LanceDataset, change: Change) -> None:
        if other := _other(at, change):
            at.drop_columns([other.name])

    def after(change: Change, before: Contents, _: Contents) -> Expected:
        name = _name_of(before, change)
        types = {one: kind for one, kind in before.types.items() if one != name}
        rows = {
            key: {one: value for one, value in old.items() if one != name}
            for key, old in before.values.items()
        }
        return Expected(types, rows)

    return Change(number, "drop column", run, after=after)


def rename_column(number: int, _: random.Random) -> Change:
    new = f"r{number}"

    def run(at: LanceDataset, change: Change) -> None:
        if other := _other(at, change):
            at.alter_columns({"path": other.name, "name": new})

    def after(change: Change, before: Contents, _: Contents) -> Expected:
        name = _name_of(before, change)
        types = {new if one == name else one: kind for one, kind in before.types.items()}
        rows = {
            key: {new if one == name else one: value for one, value in old.items()}
            for key, old in before.values.items()
        }
        return Expected(types, rows)

    return Change(number, "rename column", run, after=after)


def cast_column(number: int, _: random.Random) -> Change:
    def run(at: LanceDataset, change: Change) -> None:
        other = _other(at, change)
        if other is not None and other.logical_type in ("int32", "int64"):
            kind = pa.int32() if other.logical_type == "int64" else pa.int64()
            at.alter_columns({"path": other.name, "data_type": kind})

    def after(change: Change, before: Contents, _: Contents) -> Expected:
        name, types = _name_of(before, change), before.types
        types[name] = "int32" if types[name] == "int64" else "int64"
        return Expected(types, before.values, before.rows)

    return Change(number, "cast column", run, after=after)


# ---------------------------------------------------------------------- new values


def replace_column(number: int, _: random.Random) -> Change:
    """Give every row of the fragments that there are the same value, by new files for them."""

    def run(at: LanceDataset, change: Change) -> None:
        if (other := _other(at, change)) is None or at.manifest.num_fragments == 0:
            return
        snapshot, columns = at.opened.snapshot, at.manifest.schema.project([other.name])
        made = []
        for fragment in map(at.manifest.fragment, range(at.manifest.num_fragments)):
            kind = other.logical_type
            values = pa.array([typed(kind, number)] * fragment.physical_rows, _TYPES[kind])
            rows = pa.RecordBatch.from_arrays([values], names=[other.name])
            made.append((fragment.id, write_column_file(snapshot, fragment, columns, [rows])))
        commit_operation(at.opened, DataReplacement(tuple(made)))

    def after(change: Change, before: Contents, opened: Contents) -> Expected:
        name, rows = _name_of(before, change), before.values
        there = opened.rows
        met = [key for key in rows if key in there and there[key].row_id == before.rows[key].row_id]
        rows |= {key: {**rows[key], name: typed(before.types[name], number)} for key in met}
        return Expected(before.types, rows, met)

    return Change(number, "replace column", run, after=after)


def update_column(number: int, rng: random.Random) -> Change:
    """Give some rows a value where they lie: by fragments that are committed, or by a merge."""
    keys, by_merge = range(rng.randrange(4), 8), rng.random() < 0.6

    def run(at: LanceDataset, change: Change) -> None:
        if (other := _other(at, change)) is None:
            return
        source = _given(at, keys, other.name, number, other.logical_type)
        change.planned_again = by_merge
        if by_merge:
            merge = at.merge_insert("key").when_matched_update_all()
            merge.write_mode("rewrite_columns").execute(source)
            return
        made: list[Any] = [
            (one.fragment_id, *one.update_columns(source, "key", with_offsets=True))
            for one in at.get_fragments()
        ]
        operation = LanceOperation.Update(
            updated_fragments=[fragment for _, fragment, _, _ in made],
            fields_modified=list(change.fields),
            update_mode="rewrite_columns",
            updated_fragment_offsets={at: offsets for at, _, _, offsets in made},
        )
        if made:
            LanceDataset.commit(at, operation, read_version=at.version)

    def after(change: Change, before: Contents, opened: Contents) -> Expected:
        name, rows = _name_of(before, change), before.values
        met = [key for key in rows if key in keys]
        rows |= {key: {**rows[key], name: typed(before.types[name], number)} for key in met}
        free = changed_meanwhile(before, opened).intersection(met)
        return Expected(before.types, rows, met, free)

    return Change(number, "update column", run, after=after)


def append_whole(number: int, rng: random.Random) -> Change:
    """Append rows that have values in all columns."""
    rows = {1000 * number + at: rng.randrange(10) for at in range(2)}

    def run(at: LanceDataset, change: Change) -> None:
        change.fields = [field.id for field in at.manifest.schema.fields]
        schema = at.schema
        kinds = {field.name: field.logical_type for field in at.manifest.schema.fields}
        columns: dict[str, Any] = {
            name: [typed(kind, number)] * len(rows) for name, kind in kinds.items()
        }
        given = table(rows, schema_of(at))
        columns |= {name: given[name] for name in given.column_names}
        at.insert(pa.table(columns, schema))

    return Change(number, "append", run, rows=rows)


COLUMN_CHANGES = [
    (2, add_column),
    (1, checkpointed),
    (1, drop_column),
    (1, rename_column),
    (1, cast_column),
    (2, replace_column),
    (2, update_column),
    (1, append_whole),
]
"""Makers of changes, each with how often it is drawn."""
