"""Rows of fragments, read from what was ever written; each content is read once.

What a fragment holds follows from its message, its data files and its deletion file, whatever
their random names are. Simulations write the same few rows again and again, and fragments that
many of them have in common need no second reading.
"""

from __future__ import annotations

from typing import Any

from tests.proof.simulated.bases import path_of
from tests.proof.simulated.contents import Row
from tests.proof.simulated.frames import KEY_COLUMNS, keys_of

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.version import OpenedVersion
from glaive.format.manifest import Feature, Manifest
from glaive.io.store import ObjectStore
from glaive.scan.snapshot import Session
from glaive.table.references import fragment_files

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
    files = [file for file in fragment_files(manifest, [position]) if not file.is_folder]
    paths = [path_of(manifest, store.uri, file) for file in files]
    parts = [store.get(path).to_pybytes() for path in paths]
    message = manifest.fragment_wire(position)
    for file in message.files:
        file.ClearField("path")
    if message.HasField("deletion_file"):
        message.deletion_file.ClearField("id")
        message.deletion_file.ClearField("read_version")
    stable = manifest.uses(Feature.STABLE_ROW_IDS)
    return bytes([stable]), message.SerializeToString(), *parts


def _read(
    store: ObjectStore, manifest: Manifest, positions: list[int], session: Session
) -> dict[int, FragmentRows]:
    opened = LanceDataset.holding(OpenedVersion.of(store, manifest, session=session))
    lineage = _LINEAGE if opened.has_stable_row_ids else ()
    numbers = {manifest.fragment(at).id: at for at in positions}
    wanted = list(numbers)
    names = [name for name in manifest.schema.names if name not in KEY_COLUMNS]
    keys = [name for name in KEY_COLUMNS if name in manifest.schema.names]
    some = None if len(wanted) == manifest.num_fragments else wanted
    system = ["_rowaddr", "_rowid", *lineage]
    found = opened.to_table(columns=[*keys, *system, *names], fragments=some)
    columns: list[list[Any]] = [found[name].to_pylist() for name in (*system, *names)]
    first = len(system)
    if not lineage:
        columns[first:first] = [[0] * found.num_rows] * 2
        first += 2
    rows: dict[int, FragmentRows] = {at: [] for at in positions}
    for key, address, *rest in zip(keys_of(found), *columns, strict=True):
        ids, values = rest[: first - 1], rest[first - 1 :]
        row = Row(dict(zip(names, values, strict=True)), *ids)
        rows[numbers[address >> 32]].append((key, row))
    return rows
