"""Old manifests that tell no rows, or live rows instead of all, are read and changed rightly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.historical import copied

import glaive
from glaive.errors import CorruptFileError, DataFileMissingError, UnsupportedFeatureError
from glaive.format.manifest import Manifest, encode_manifest
from glaive.format.pb import table_pb2
from glaive.io.local import LocalStore
from glaive.table.load import describe_versions
from glaive.testing import CountingStore

VALUES = [*range(10), *range(20, 100), 200, 201]
"""A hundred rows, of which ten are deleted, and two more."""


def rewritten(
    manifest: Manifest, change: Callable[[Any], object], *, names_itself: bool = False
) -> None:
    """Change a manifest and the messages of its fragments in its file."""
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(manifest.wire)
    for position in range(manifest.num_fragments):
        fragment = manifest.fragment_wire(position)
        change(fragment)
        wire.fragments[position] = fragment.SerializeToString()
    if not names_itself:
        wire.ClearField("writer_version")
    assert manifest.transaction is not None
    pieces = encode_manifest(wire, transaction=manifest.transaction, index_section=None)
    Path(manifest.where).write_bytes(b"".join(map(bytes, map(memoryview, pieces))))


def live_for_all(fragment: Any) -> None:
    """State rows as releases around 0.8 did."""
    fragment.physical_rows -= fragment.deletion_file.num_deleted_rows


def unknown_deletions(fragment: Any) -> None:
    """State live rows for all, and leave the number of deleted ones to their file."""
    live_for_all(fragment)
    if fragment.HasField("deletion_file"):
        fragment.deletion_file.num_deleted_rows = 0


@pytest.fixture(params=["0.1", "2.0", "2.1"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[live_for_all, unknown_deletions], ids=lambda change: change.__name__)
def place(tmp_path: Path, version: str, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "t"
    glaive.write_dataset({"x": list(range(100))}, path, data_storage_version=version)
    glaive.dataset(path).delete("x >= 10 AND x < 20")
    glaive.dataset(path).insert({"x": [200, 201]})
    rewritten(glaive.dataset(path).manifest, request.param)
    return path


def test_rows_are_counted_scanned_and_taken(place: Path) -> None:
    dataset = glaive.dataset(place)
    assert dataset.count_rows() == 92
    assert dataset.to_table()["x"].to_pylist() == VALUES
    assert dataset.to_table(filter="x > 150")["x"].to_pylist() == [200, 201]
    assert dataset.take([0, 10, 89, 91])["x"].to_pylist() == [0, 20, 99, 201]
    assert [one.physical_rows for one in dataset.get_fragments()] == [100, 2]
    dataset.validate()


def test_counts_are_stated_rightly_by_whoever_writes_next(place: Path) -> None:
    dataset = glaive.dataset(place)
    dataset.delete("x >= 20 AND x < 90")
    expected = [*range(10), *range(90, 100), 200, 201]
    for opened in (dataset, glaive.dataset(place)):
        assert opened.count_rows() == 22
        assert opened.to_table()["x"].to_pylist() == expected
    assert glaive.dataset(place).manifest.stated.physical_rows.tolist() == [100, 2]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("change", ["append", "update", "merge", "restore", "clone"])
def test_every_change_begins_with_the_rows_there_are(
    place: Path, tmp_path: Path, change: str
) -> None:
    dataset, at, expected = glaive.dataset(place), place, VALUES
    if change == "append":
        dataset.insert({"x": [300]})
        expected = [*VALUES, 300]
    elif change == "update":
        dataset.update({"x": "x + 1"}, where="x = 201")
        expected = [*VALUES[:-1], 202]
    elif change == "merge":
        dataset.merge_insert("x").when_not_matched_insert_all().execute(pa.table({"x": [15, 200]}))
        expected = sorted([*VALUES, 15])
    elif change == "restore":
        glaive.dataset(place, version=dataset.version).restore()
    else:
        at = tmp_path / "clone"
        dataset.shallow_clone(at)
    found = glaive.dataset(at)
    assert found.count_rows() == len(expected)
    assert sorted(found.to_table()["x"].to_pylist()) == expected


def test_deleted_rows_are_compacted_away(place: Path) -> None:
    metrics = glaive.dataset(place).optimize.compact_files(materialize_deletions_threshold=0.0)
    assert metrics.fragments_removed == 2
    assert glaive.dataset(place).to_table()["x"].to_pylist() == VALUES
    assert [one.physical_rows for one in glaive.dataset(place).get_fragments()] == [92]


@pytest.mark.interop
def test_pylance_finds_the_same_rows(place: Path) -> None:
    lance = pytest.importorskip("lance", reason="install the 'interop' group")
    assert lance.dataset(place).count_rows() == 92
    assert lance.dataset(place).to_table()["x"].to_pylist() == VALUES
    glaive.dataset(place).delete("x = 5")
    assert lance.dataset(place).count_rows() == 91
    assert lance.dataset(place).to_table()["x"].to_pylist() == [x for x in VALUES if x != 5]


@pytest.mark.spec("frag-7")
def test_more_deleted_rows_than_live_ones_are_no_damage(tmp_path: Path) -> None:
    glaive.write_dataset({"x": list(range(100))}, tmp_path / "t")
    glaive.dataset(tmp_path / "t").delete("x >= 10")
    rewritten(glaive.dataset(tmp_path / "t").manifest, live_for_all)
    dataset = glaive.dataset(tmp_path / "t")
    assert [one["version"] for one in dataset.versions()] == [1, 2]
    assert dataset.count_rows() == 10
    assert dataset.to_table()["x"].to_pylist() == [*range(10)]


@pytest.mark.spec("frag-7")
def test_a_writer_that_names_itself_is_held_to_its_counts(tmp_path: Path) -> None:
    glaive.write_dataset({"x": list(range(100))}, tmp_path / "t")
    glaive.dataset(tmp_path / "t").delete("x < 10")
    rewritten(glaive.dataset(tmp_path / "t").manifest, live_for_all, names_itself=True)
    with pytest.raises(CorruptFileError, match="100"):
        glaive.dataset(tmp_path / "t").to_table()


def test_more_deleted_rows_than_the_file_has_are_damage(tmp_path: Path) -> None:
    glaive.write_dataset({"x": list(range(100))}, tmp_path / "t")
    glaive.dataset(tmp_path / "t").delete("x < 10")

    def claim(fragment: Any) -> None:
        fragment.deletion_file.num_deleted_rows = 101
        fragment.physical_rows = 0

    rewritten(glaive.dataset(tmp_path / "t").manifest, claim)
    with pytest.raises(CorruptFileError, match=r"deleted rows of fragment 0.*at most 100"):
        glaive.dataset(tmp_path / "t").count_rows()


def test_versions_are_listed_by_their_manifests_alone(tmp_path: Path) -> None:
    store = CountingStore(LocalStore(copied("v0.7.5/with_deletions", tmp_path / "t")))
    assert [one.version for one in describe_versions(store)] == [1, 2]
    read = [request.path for request in store.log if request.method != "list"]
    assert read == ["_versions/1.manifest", "_versions/2.manifest"]


def test_versions_are_listed_when_data_files_are_gone(tmp_path: Path) -> None:
    place = copied("v0.7.5/with_deletions", tmp_path / "t")
    for file in (place / "data").iterdir():
        file.unlink()
    dataset = glaive.dataset(place)
    assert [one["version"] for one in dataset.versions()] == [1, 2]
    assert dataset.schema == pa.schema([pa.field("x", pa.int64())])
    assert dataset.checkout_version(1).version == 1
    for ask in (dataset.count_rows, dataset.to_table, dataset.get_fragments):
        with pytest.raises(DataFileMissingError, match="Restore it"):
            ask()


def no_ids(fragment: Any) -> None:
    fragment.id = 0


@pytest.fixture
def sharing(tmp_path: Path) -> glaive.LanceDataset:
    """A dataset of two fragments with one id."""
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([float(at) for at in range(10)]), 1)
    rows = pa.table({"id": range(10), "v": vectors.cast(pa.list_(pa.float32(), 1))})
    rewritten(glaive.write_dataset(rows, tmp_path / "t", max_rows_per_file=5).manifest, no_ids)
    return glaive.dataset(tmp_path / "t")


@pytest.mark.spec("rel-42")
def test_rows_of_fragments_with_one_id_are_sorted_and_searched(
    sharing: glaive.LanceDataset,
) -> None:
    last = glaive.ColumnOrdering("id", ascending=False)
    assert sharing.to_table(order_by=[last], limit=3)["id"].to_pylist() == [9, 8, 7]
    nearest = {"column": "v", "q": [8.2], "k": 3}
    assert sharing.to_table(nearest=nearest)["id"].to_pylist() == [8, 9, 7]


@pytest.mark.parametrize(
    "read",
    [
        lambda dataset: [one.to_table() for one in dataset.get_fragments()],
        lambda dataset: dataset.get_fragments()[1].count_rows(),
        lambda dataset: dataset.to_table(fragments=dataset.get_fragments()[1:]),
        lambda dataset: dataset.changes(1).to_table(),
    ],
    ids=["rows", "count", "scan", "changes"],
)
@pytest.mark.spec("rel-42")
def test_no_fragment_is_read_for_another_one_with_its_id(
    sharing: glaive.LanceDataset, read: Callable[[glaive.LanceDataset], object]
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"two fragments with the id 0.*Overwrite"):
        read(sharing)


@pytest.mark.spec("rel-9")
@pytest.mark.parametrize(
    "change",
    [
        lambda dataset: dataset.delete("id = 7"),
        lambda dataset: dataset.delete("id < 5"),
        lambda dataset: dataset.update({"id": "100"}, where="id = 7"),
        lambda dataset: dataset.create_scalar_index("id", "BTREE"),
    ],
    ids=["delete", "delete all of a fragment", "update", "index"],
)
def test_rows_of_fragments_with_one_id_are_not_taken_for_each_other(
    tmp_path: Path, change: Callable[[glaive.LanceDataset], object]
) -> None:
    rows = pa.table({"id": range(10)})
    rewritten(glaive.write_dataset(rows, tmp_path / "t", max_rows_per_file=5).manifest, no_ids)
    with pytest.raises(UnsupportedFeatureError, match=r"two fragments with the id 0.*Overwrite"):
        change(glaive.dataset(tmp_path / "t"))
    found = glaive.dataset(tmp_path / "t").to_table()
    assert found == rows
    glaive.write_dataset(found, tmp_path / "t", mode="overwrite", max_rows_per_file=5)
    change(glaive.dataset(tmp_path / "t"))
    assert glaive.dataset(tmp_path / "t").count_rows("id >= 5 and id != 7") == 4 + (
        glaive.dataset(tmp_path / "t").count_rows("id = 100")
    )
