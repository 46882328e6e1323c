"""Operations of all kinds on one small dataset, made by the other library.

The dataset has three fragments of ten rows, columns ``a``, ``b``, ``c``, and version 1. All
files that the operations name are written beforehand, so that any two operations can be
committed on a copy, one behind the other's back.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from glaive.format.pb import table_pb2
from glaive.format.transaction import Transaction
from glaive.io.local import LocalStore
from glaive.table.load import open_latest, read_transaction
from glaive.table.operations.update_config import ReserveFragments, UpdateBases

ROWS = 10
TABLE = pa.table(
    {
        "a": pa.array(range(3 * ROWS), pa.int64()),
        "b": pa.array(range(3 * ROWS), pa.int64()),
        "c": [f"row {i}" for i in range(3 * ROWS)],
    }
)


def make_dataset(lance: Any, place: Path, *, stable: bool = False) -> Any:
    """Version 1."""
    return lance.write_dataset(
        TABLE, str(place), max_rows_per_file=ROWS, enable_stable_row_ids=stable
    )


def make_operations(  # noqa: C901  # a list of small makers
    lance: Any, dataset: Any, place: Path
) -> dict[str, Any]:
    """Operations of the other library by name; ``0`` and ``1`` stand for the fragment."""
    kinds = lance.LanceOperation
    fragments = [one.metadata for one in dataset.get_fragments()]
    schema = dataset.lance_schema

    def written(rows: pa.Table) -> list[Any]:
        return list(lance.fragment.write_fragments(rows, str(place), mode="append"))

    def deleted(number: int, text: str) -> Any:
        return dataset.get_fragment(number).delete(text)

    def column_file(name: str, field: int, column: str) -> Any:
        from lance.file import LanceFileWriter

        path = f"{name}.lance"
        with LanceFileWriter(
            str(place / "data" / path), pa.schema([TABLE.schema.field(column)]), version="2.2"
        ) as writer:
            writer.write_batch(TABLE.slice(0, ROWS).select([column]).to_batches()[0])
        return lance.fragment.DataFile(
            path, [field], [0], 2, 2, (place / "data" / path).stat().st_size
        )

    def replaced(number: int, field: int) -> Any:
        file = column_file(f"replaced{number}{field}", field, "abc"[field])
        return kinds.DataReplacement([kinds.DataReplacementGroup(number, file)])

    def index(name: str, field: int, covers: set[int], number: int) -> Any:
        from lance.dataset import Index

        return kinds.CreateIndex(
            new_indices=[
                Index(
                    uuid=str(UUID(int=number)),
                    name=name,
                    fields=[field],
                    dataset_version=1,
                    fragment_ids=covers,
                    index_version=0,
                )
            ],
            removed_indices=[],
        )

    def moved(number: int, text: str) -> Any:
        (new,) = written(TABLE.slice(number * ROWS, 2))
        return kinds.Update(
            updated_fragments=[deleted(number, text)],
            new_fragments=[new],
            fields_for_preserving_frag_bitmap=[1],
            update_mode="rewrite_rows",
        )

    def changed(number: int, column: str) -> Any:
        rows = TABLE.slice(number * ROWS, ROWS).select(["a", column])
        values = [None] * 5 + rows.column(column).to_pylist()[5:]
        rows = rows.set_column(1, column, pa.array(values, rows.schema.field(1).type))
        metadata, fields = dataset.get_fragment(number).update_columns(rows, left_on="a")
        return kinds.Update(
            updated_fragments=[metadata], fields_modified=fields, update_mode="rewrite_columns"
        )

    def rewritten(number: int, new_id: int) -> Any:
        (new,) = written(TABLE.slice(number * ROWS, ROWS))
        new.id = new_id
        for name in ("row_id_meta", "created_at_version_meta", "last_updated_at_version_meta"):
            setattr(new, name, getattr(fragments[number], name))
        group = kinds.RewriteGroup(old_fragments=[fragments[number]], new_fragments=[new])
        return kinds.Rewrite(groups=[group], rewritten_indices=[])

    def merged(name: str, *, keeps: bool) -> Any:
        made, new = [], None
        for one in dataset.get_fragments():
            metadata, new = one.merge_columns({name: "a + 1"})
            made.append(metadata)
        return kinds.Merge(made, new, preserves_nullability=keeps)

    def pruned(*names: str, keeps: bool = True) -> Any:
        probe = shutil.copytree(place, place.with_name("probe"))
        other = lance.dataset(str(probe))
        other.drop_columns([one for one in "abc" if one not in names])
        found = other.lance_schema
        shutil.rmtree(probe)
        return kinds.Project(found, preserves_nullability=keeps)

    def settings(**given: Any) -> Any:
        made = {
            name: kinds.UpdateMap(updates=dict.fromkeys(keys, "1"))
            for name, keys in given.items()
            if name != "field_metadata"
        }
        fields = given.get("field_metadata")
        if fields:
            updates = {field: kinds.UpdateMap(updates={"k": "v"}) for field in fields}
            return kinds.UpdateConfig(field_metadata_updates=updates)
        return kinds.UpdateConfig(**{f"{name}_updates": updates for name, updates in made.items()})

    return {
        "append": kinds.Append(written(TABLE.slice(0, 3))),
        "delete 0": kinds.Delete([deleted(0, "a = 3")], [], "a = 3"),
        "delete 1": kinds.Delete([deleted(1, "a = 13")], [], "a = 13"),
        "remove 0": kinds.Delete([], [0], "a < 10"),
        "overwrite": kinds.Overwrite(schema, written(TABLE.slice(0, 4))),
        "index a": index("a_idx", 0, {0}, 1),
        "index a again": index("a_idx", 0, {1}, 2),
        "index b": index("b_idx", 1, {0, 1}, 3),
        "rewrite 0": rewritten(0, 20),
        "rewrite 1": rewritten(1, 21),
        "merge": merged("d", keeps=True),
        "merge tight": merged("e", keeps=False),
        "project": pruned("a", "b"),
        "project tight": pruned("a", "b", "c", keeps=False),
        "project ac": pruned("a", "c"),
        "restore": kinds.Restore(1),
        "move 0": moved(0, "a in (5, 6)"),
        "move 1": moved(1, "a in (15, 16)"),
        "columns 0 b": changed(0, "b"),
        "columns 0 c": changed(0, "c"),
        "columns 1 b": changed(1, "b"),
        "config x": settings(config=["x"]),
        "config y": settings(config=["y"]),
        "table x": settings(table_metadata=["x"]),
        "schema x": settings(schema_metadata=["x"]),
        "schema y": settings(schema_metadata=["y"]),
        "field a": settings(field_metadata=[0]),
        "field b": settings(field_metadata=[1]),
        "replace 0 b": replaced(0, 1),
        "replace 0 c": replaced(0, 2),
        "replace 1 b": replaced(1, 1),
    }


def ours_only() -> dict[str, Any]:
    """Operations the other library offers no values for."""
    base = table_pb2.BasePath(id=7, name="n", path="/elsewhere", is_dataset_root=True)
    named = table_pb2.BasePath(name="n", path="/another", is_dataset_root=True)
    other = table_pb2.BasePath(path="/further", is_dataset_root=True)
    return {
        "reserve": ReserveFragments(3),
        "base 7": UpdateBases((base,)),
        "base name": UpdateBases((named,)),
        "base other": UpdateBases((other,)),
    }


def as_transaction(lance: Any, operation: Any, place: Path, read_version: int = 1) -> Transaction:
    """The transaction the other library makes of an operation: committed on a copy, and read."""
    copy = shutil.copytree(place, place.with_name("as_transaction"))
    lance.LanceDataset.commit(str(copy), operation, read_version=read_version)
    store = LocalStore(copy)
    found = read_transaction(store, open_latest(store))
    shutil.rmtree(copy)
    assert found is not None
    return Transaction(
        read_version=read_version, operation=found.operation, properties=found.properties
    )
