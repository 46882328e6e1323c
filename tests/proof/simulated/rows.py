"""Rows of fragments, read from what was ever written; each content is read once.

What a fragment holds follows from its message, its data files and its deletion file, whatever
their random names are. Simulations write the same few rows again and again, and fragments that
many of them have in common need no second reading.
"""

from __future__ import annotations

from typing import Any

from tests.proof.simulated.clones import SOURCE
from tests.proof.simulated.contents import Row

from glaive.dataset.dataset import LanceDataset
from glaive.format.flags import Feature
from glaive.format.manifest import Manifest
from glaive.format.paths import data_file_path, deletion_file_path
from glaive.format.pb import table_pb2
from glaive.io.store import ObjectStore
from glaive.scan.session import Session

__all__ = ["FragmentRows", "rows_of_fragments"]

FragmentRows = list[tuple[int, Row]]
"""Keys and rows of one fragment."""

_Content = tuple[bytes, ...]

_MOST = 50_000
"""Contents that are kept; their rows are few, and take some 2 KB."""

_KNOWN: dict[_Content, FragmentRows] = {}

_LINEAGE = ("_row_created_at_version", "_row_last_updated_at_version")


def rows_of_fragments(
    store: ObjectStore, manifest: Manifest, schema: bytes, positions: list[int], session: Session
) -> dict[int, FragmentRows]:
    """Keys and rows of fragments by position; ``schema`` is the manifest's, in wire format."""
    contents = {at: (schema, *_content(store, manifest, at)) for at in positions}
    unread = [at for at, content in contents.items() if content not in _KNOWN]
    if len(_KNOWN) > _MOST:
        _KNOWN.clear()
        unread = positions
    if unread:
        for at, rows in _read(store, manifest, unread, session).items():
            _KNOWN[contents[at]] = rows
    return {at: _KNOWN[content] for at, content in contents.items()}


def _content(store: ObjectStore, manifest: Manifest, position: int) -> _Content:
    """All that the rows of a fragment depend on, without names."""
    message = manifest.fragment_wire(position)
    parts = []
    for file in message.files:
        path = data_file_path(file.path)
        parts.append(store.get(_within(path, file.HasField("base_id"))).to_pybytes())
        file.ClearField("path")
    if message.HasField("deletion_file"):
        deleted = message.deletion_file
        bitmap = deleted.file_type == table_pb2.DeletionFile.BITMAP
        path = deletion_file_path(message.id, deleted.read_version, deleted.id, bitmap=bitmap)
        parts.append(store.get(_within(path, deleted.HasField("base_id"))).to_pybytes())
        deleted.ClearField("id")
        deleted.ClearField("read_version")
    stable = manifest.uses(Feature.STABLE_ROW_IDS)
    return bytes([stable]), message.SerializeToString(), *parts


def _within(path: str, of_source: bool) -> str:
    """Path in the bucket of a file of the table, or of what it is a clone of."""
    return f"{SOURCE}/{path}" if of_source else path


def _read(
    store: ObjectStore, manifest: Manifest, positions: list[int], session: Session
) -> dict[int, FragmentRows]:
    opened = LanceDataset.of(store, manifest, session=session)
    lineage = _LINEAGE if opened.has_stable_row_ids else ()
    numbers = {manifest.fragment(at).id: at for at in positions}
    wanted = list(numbers)
    names = [name for name in manifest.schema.names if name != "key"]
    some = None if len(wanted) == manifest.num_fragments else wanted
    system = ["key", "_rowaddr", "_rowid", *lineage]
    found = opened.to_table(columns=[*system, *names], fragments=some)
    columns: list[list[Any]] = [column.to_pylist() for column in found.columns]
    first = len(system)
    if not lineage:
        columns[first:first] = [[0] * found.num_rows] * 2
        first += 2
    rows: dict[int, FragmentRows] = {at: [] for at in positions}
    for key, address, *rest in zip(*columns, strict=True):
        ids, values = rest[: first - 2], rest[first - 2 :]
        row = Row(dict(zip(names, values, strict=True)), *ids)
        rows[numbers[address >> 32]].append((key, row))
    return rows
