"""Whatever a manifest or a file beside it says: right rows, or an error of ours; no bombs.

Each trial sets one field of the metadata of a dataset to what it may not be, see
:mod:`tests.damaged_tables`, and does what users do with datasets. That happens in a process of its
own, with limited memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap, BitMap64
from tests.damaged_tables import trials, with_indices

import glaive
from glaive.format.pb import table_pb2
from glaive.io.local import LocalStore
from glaive.table.load import open_latest

ROOT = Path(__file__).parents[2]

MOST_MEMORY = 1 << 30
"""Bytes that a process may use in all; these datasets have some kilobytes."""

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
SEED, COUNT = (2, 2000) if NIGHTLY else (1, 12)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no limits of memory")


def rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    vectors = pa.array(np.arange(count * 4, dtype="f4"))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": [f"t{one % 7}" for one in ids],
            "parts": pa.array([{"x": one, "y": str(one)} for one in ids]),
            "list": pa.array([[one] * (one % 3) for one in ids], pa.list_(pa.int32())),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 4),
        }
    )


def made(place: Path, **options: Any) -> Path:
    """Five versions: fragments, deleted rows, a configuration, updated rows; a tag, a branch."""
    dataset = glaive.write_dataset(rows(0, 60), place, max_rows_per_file=20, **options)
    dataset.insert(rows(60, 20))
    dataset.delete("id % 5 = 1")
    dataset.update_config({"key": "value"})
    dataset.update({"text": "'new'"}, "id % 4 = 2")
    dataset.tags.create("first", 1)
    dataset.create_branch("side", 2)
    return place


def entry(name: str, kind: str, fragments: list[int], details: bytes = b"") -> Any:
    found = table_pb2.IndexMetadata(name=name, fields=[0], dataset_version=1, created_at=1)
    found.uuid.uuid = bytes(range(16))
    found.fragment_bitmap = BitMap(fragments).serialize()
    found.index_details.type_url = f"/lance.table.{kind}IndexDetails"
    found.index_details.value = details
    found.files.add(path="page_data.lance", size_bytes=10)
    return found


def indexed(place: Path) -> Path:
    """With two indices, whose files are not there, and a map of rows that moved."""
    moved = table_pb2.FragmentReuseIndexDetails()
    group = moved.inline.versions.add(dataset_version=2).groups.add()
    group.changed_row_addrs = BitMap64(range(0, 20, 2)).serialize()
    group.old_fragments.add(id=90, physical_rows=20, num_deleted_rows=10)
    group.new_fragments.add(id=2, physical_rows=10)
    indices = [
        entry("numbers", "BTree", [90, 1]),
        entry("words", "Inverted", [0]),
        entry("__lance_frag_reuse", "FragmentReuse", [2], moved.SerializeToString()),
    ]
    dataset = glaive.dataset(made(place))
    path = place / "_versions" / Path(dataset.manifest.where).name
    path.write_bytes(with_indices(path.read_bytes(), indices))
    return place


def with_many_deleted(place: Path) -> Path:
    """So many deleted rows that the deletion file is a bitmap."""
    table = pa.table({"id": pa.array(range(20_000), pa.int64()), "text": ["a"] * 20_000})
    glaive.write_dataset(table, place).delete("id % 3 = 1 AND id < 18000")
    dataset = glaive.dataset(place)
    dataset.tags.create("first", 1)
    return place


def with_blobs(place: Path) -> Path:
    field = glaive.blob_field("blob")
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string()), field])
    values = glaive.blob_array([bytes([one]) * one * 10 for one in range(12)])
    table = pa.table([range(12), ["a"] * 12, values], schema=schema)
    dataset = glaive.write_dataset(table, place, max_rows_per_file=6)
    dataset.delete("id = 3")
    dataset.tags.create("first", 1)
    return place


KINDS: dict[str, Any] = {
    "plain": made,
    "stable row ids": lambda place: made(place, enable_stable_row_ids=True),
    "format 2.0": lambda place: made(place, data_storage_version="2.0"),
    "format 0.1": lambda place: made(place, data_storage_version="0.1"),
    "indices": indexed,
    "bitmap of deletions": with_many_deleted,
    "blobs": with_blobs,
}


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = KINDS[request.param](tmp_path_factory.mktemp("damaged") / "t")
    return found


def carry_out(place: Path, work: Path, seed: int, count: int) -> dict[str, Any]:
    copytree(place, work)
    given = [sys.executable, "-m", "tests.proof.damaged_trials", str(place), str(work)]
    done = subprocess.run(
        [*given, str(seed), str(count)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.sampled(every=8)
@pytest.mark.spec("rel-42", "sec-1")
def test_damaged_metadata_ends_in_right_rows_or_an_error_of_ours(
    place: Path, tmp_path: Path
) -> None:
    told = carry_out(place, tmp_path / "t", seed=SEED, count=COUNT)
    assert not told["failed"]
    assert told["memory"] < MOST_MEMORY


def test_trials_are_of_all_that_a_manifest_says(place: Path) -> None:
    labels = [one.label for one in trials(place)]
    assert len(labels) > 500
    wire = open_latest(LocalStore(place)).wire
    present = {field.name for field, _ in wire.ListFields()} - {"schema_metadata"}
    tried = {
        label.split(".")[1].split("[")[0].split(" ")[0]
        for label in labels
        if label.startswith("manifest.")
    }
    assert present <= tried
