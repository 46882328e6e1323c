"""The operations of ``contenders.py`` as values of ours, without data behind them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyroaring import BitMap

from glaive.format.fields import LanceSchema
from glaive.format.fragment import DataFile, DeletionFile, Fragment
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation, WireOperation
from glaive.table.operations.create_index import CreateIndex
from glaive.table.operations.merge import DataReplacement, Merge, Project
from glaive.table.operations.overwrite import Append, Overwrite, Restore
from glaive.table.operations.rewrite import Rewrite, RewriteGroup
from glaive.table.operations.update import Delete, Update
from glaive.table.operations.update_config import ReserveFragments, UpdateBases, UpdateConfig
from glaive.table.protocol import TableOperation
from glaive.types import FormatVersion

ROWS = 10
SCHEMA = LanceSchema.from_arrow(
    pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())])
)


def data_file(name: str, *fields: int) -> DataFile:
    return DataFile(
        path=f"{name}.lance",
        fields=fields,
        column_indices=tuple(range(len(fields))),
        version=FormatVersion(2, 2),
        size=99,
    )


def fragment(number: int = 0, name: str = "new", rows: int = ROWS) -> Fragment:
    return Fragment(id=number, files=(data_file(name, 0, 1, 2),), physical_rows=rows)


OLD = tuple(fragment(number, f"old{number}") for number in range(3))


def deleted(number: int, count: int = 1) -> Fragment:
    file = DeletionFile(bitmap=False, read_version=1, number=7, rows=count)
    return replace(OLD[number], deletion_file=file)


def index(name: str, field: int, covers: set[int], number: int) -> CreateIndex:
    entry = table_pb2.IndexMetadata(name=name, fields=[field], dataset_version=1)
    entry.uuid.uuid = bytes([number]) * 16
    entry.fragment_bitmap = BitMap(covers).serialize()
    return CreateIndex(new=(entry,))


def rewritten(number: int, new_id: int) -> Rewrite:
    return Rewrite(groups=(RewriteGroup((OLD[number],), (fragment(new_id, f"to{new_id}"),)),))


def merged(name: str, *, keeps: bool) -> Merge:
    arrow = SCHEMA.to_arrow().append(pa.field(name, pa.int64()))
    return Merge(
        fragments=tuple(replace(one, files=(*one.files, data_file(name, 3))) for one in OLD),
        schema=LanceSchema.from_arrow(arrow),
        preserves_nullability=keeps,
    )


def project(*names: str, keeps: bool = True) -> Project:
    return Project(schema=SCHEMA.project(names), preserves_nullability=keeps)


def moved(number: int) -> Update:
    return Update(updated=(deleted(number, 2),), new=(fragment(rows=2),), fields_touched=(1,))


def columns(number: int, field: int) -> Update:
    old = OLD[number]
    left = tuple(-2 if one == field else one for one in (0, 1, 2))
    files = (replace(old.files[0], fields=left), data_file("c", field))
    return Update(updated=(replace(old, files=files),), fields_modified=(field,), columns=True)


def replaced(number: int, field: int) -> DataReplacement:
    return DataReplacement(((number, data_file("r", field)),))


def base_path(**facts: Any) -> UpdateBases:
    return UpdateBases((table_pb2.BasePath(is_dataset_root=True, **facts),))


def operations() -> dict[str, TableOperation]:
    """Operations by the names of the table."""
    return {
        "append": Append((fragment(),)),
        "delete 0": Delete(updated=(deleted(0),)),
        "delete 1": Delete(updated=(deleted(1),)),
        "remove 0": Delete(removed=(0,)),
        "overwrite": Overwrite(fragments=(fragment(),), schema=SCHEMA),
        "index a": index("a_idx", 0, {0}, 1),
        "index a again": index("a_idx", 0, {1}, 2),
        "index b": index("b_idx", 1, {0, 1}, 3),
        "rewrite 0": rewritten(0, 20),
        "rewrite 1": rewritten(1, 21),
        "merge": merged("d", keeps=True),
        "merge tight": merged("e", keeps=False),
        "project": project("a", "b"),
        "project tight": project("a", "b", "c", keeps=False),
        "project ac": project("a", "c"),
        "restore": Restore(1),
        "move 0": moved(0),
        "move 1": moved(1),
        "columns 0 b": columns(0, 1),
        "columns 0 c": columns(0, 2),
        "columns 1 b": columns(1, 1),
        "config x": UpdateConfig.of(config={"x": "1"}),
        "config y": UpdateConfig.of(config={"y": "1"}),
        "table x": UpdateConfig.of(table_metadata={"x": "1"}),
        "schema x": UpdateConfig.of(schema_metadata={"x": "1"}),
        "schema y": UpdateConfig.of(schema_metadata={"y": "1"}),
        "field a": UpdateConfig.of(field_metadata={0: {"k": "v"}}),
        "field b": UpdateConfig.of(field_metadata={1: {"k": "v"}}),
        "replace 0 b": replaced(0, 1),
        "replace 0 c": replaced(0, 2),
        "replace 1 b": replaced(1, 1),
        "reserve": ReserveFragments(3),
        "base 7": base_path(id=7, name="n", path="/elsewhere"),
        "base name": base_path(name="n", path="/another"),
        "base other": base_path(path="/further"),
    }


def as_read(operation: TableOperation) -> Operation:
    """The operation as another writer finds it."""
    return WireOperation(operation.wire_name, operation.to_wire())


def theirs_only() -> dict[str, Operation]:
    """Operations that only others commit."""
    kinds = table_pb2.Transaction
    return {
        "mem wal": WireOperation("update_mem_wal_state", kinds.UpdateMemWalState()),
        "overlay": WireOperation("data_overlay", kinds.DataOverlay()),
        "unknown": WireOperation(None),
    }
