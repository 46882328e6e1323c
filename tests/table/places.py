"""Stores to commit to, and fragments that need no data behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from glaive.format.fields import LanceSchema
from glaive.format.fragment import DataFile, Fragment
from glaive.format.manifest import Manifest, encode_manifest
from glaive.format.paths import VERSIONS, manifest_path, new_data_file_name
from glaive.format.transaction import Transaction
from glaive.io.access import open_store
from glaive.io.local import LocalStore
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.io.wrapped import WrappedStore
from glaive.table.commit import commit_transaction
from glaive.table.load import open_latest
from glaive.table.operations.overwrite import Append, Overwrite
from glaive.table.protocol import CommitOptions
from glaive.types import FormatVersion

SCHEMA = LanceSchema.from_arrow(pa.schema([("id", pa.int64()), ("name", pa.string())]))
V2_2 = FormatVersion(2, 2)
KINDS = ["local", "memory"]


class StaleListing(WrappedStore):
    """A store as it is, except that versions are listed as they were when this was made."""

    def __init__(self, store: ObjectStore, *, newest: int) -> None:
        """Wrap a store; of its versions, those up to ``newest`` are in the listing."""
        super().__init__(store)
        known = {manifest_path(number) for number in range(1, newest + 1)}
        self._listed = [found for found in store.list(VERSIONS) if found.path in known]

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        return iter(self._listed) if prefix == VERSIONS else super().list(prefix)

    def names(self, prefix: str) -> Sequence[str] | None:
        return None if prefix == VERSIONS else super().names(prefix)

    def folder_state(self, prefix: str) -> tuple[int, int, int] | None:
        return None if prefix == VERSIONS else super().folder_state(prefix)


def make_store(kind: str, tmp_path: Path) -> ObjectStore:
    """An empty store of a kind."""
    if kind == "local":
        return LocalStore(tmp_path / "table")
    return open_store(f"memory://{uuid4().hex}/table")


def fragment(rows: int = 10, version: FormatVersion = V2_2) -> Fragment:
    """A fragment whose file nobody opens."""
    file = DataFile(
        path=new_data_file_name(), fields=(0, 1), column_indices=(0, 1), version=version, size=99
    )
    return Fragment(files=(file,), physical_rows=rows)


def create(store: ObjectStore, rows: int = 10, options: CommitOptions | None = None) -> Manifest:
    """Make version 1."""
    operation = Overwrite(fragments=(fragment(rows),), schema=SCHEMA)
    return commit_transaction(
        store, Transaction(read_version=0, operation=operation), options=options
    )


def append(base: Manifest, rows: int = 10) -> Transaction:
    """A transaction that adds one fragment to a version."""
    return Transaction(read_version=base.version, operation=Append((fragment(rows),)))


def overwrite(base: Manifest, rows: int = 10) -> Transaction:
    """A transaction that replaces a version."""
    operation = Overwrite(fragments=(fragment(rows),), schema=SCHEMA)
    return Transaction(read_version=base.version, operation=operation)


def change_newest(
    store: ObjectStore, *, turned: bool = False, nullable: bool = False, **values: int
) -> None:
    """Set fields of the newest manifest in its place, as another writer might have.

    ``turned`` puts its fragments in the opposite order; ``nullable`` lets all columns have nulls.
    """
    base = open_latest(store)
    wire = type(base.wire)()
    wire.CopyFrom(base.wire)
    for name, value in values.items():
        setattr(wire, name, value)
    if turned:
        del wire.fragments[:]
        wire.fragments.extend(reversed(base.wire.fragments))
    for field in wire.fields:
        field.nullable |= nullable
    pieces = encode_manifest(wire, transaction=base.transaction or b"", index_section=None)
    store.put(manifest_path(base.version, base.scheme), pieces)


def names(store: ObjectStore, folder: str) -> Iterator[str]:
    """Names of the files in a folder."""
    return (meta.path.rpartition("/")[2] for meta in store.list(folder))
