"""The cache that datasets share: what it keeps, what it costs, and how to go without it."""

from __future__ import annotations

import shutil
import sys
import tracemalloc
import weakref
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.dataset.test_claimed_rows import rewrite

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.version import OpenedVersion
from glaive.errors import CorruptFileError, OptionError, UnsupportedFeatureError
from glaive.format.manifest import encode_manifest
from glaive.format.pb import table_pb2
from glaive.io.access import open_store
from glaive.io.cache import ByteCache
from glaive.table.load import open_latest
from glaive.testing import CountingStore

TABLE = pa.table({"id": range(5000), "name": [f"name {i % 90}" for i in range(5000)]})
WIDE = 10_000


def counted(place: Any, session: glaive.Session | None = None) -> tuple[LanceDataset, Any]:
    store = CountingStore(open_store(place))
    version = OpenedVersion.of(store, open_latest(store), session=session)
    opened = LanceDataset.holding(version)
    store.reset()
    return opened, store


def test_a_session_is_shared_by_datasets_and_versions(tmp_path: Path) -> None:
    session = glaive.Session()
    place = tmp_path / "t.lance"
    first = glaive.write_dataset(TABLE, place, session=session)
    assert first.session() is session
    assert first.checkout_version(1).session().is_same_as(session)
    assert glaive.dataset(place, session=session).session().is_same_as(session)
    assert not glaive.dataset(place).session().is_same_as(session)
    assert glaive.write_dataset(TABLE, first, mode="append").session().is_same_as(session)


def test_datasets_of_one_schema_share_projections_and_filters_but_no_sizes(tmp_path: Path) -> None:
    rows = pa.table({"id": range(50), "text": ["x" * 3000] * 50})
    ours, theirs = (glaive.write_dataset(rows, tmp_path / name).opened.views for name in ("a", "b"))
    mine, other = (views.scan(("text",)).projection for views in (ours, theirs))
    assert mine.fields is other.fields
    mine.row_sizes.measure_all(rows.column("text").chunks)
    assert (mine.row_sizes.seen > 3000, other.row_sizes.seen) == (True, 0)
    assert ours.filter("id > 5") is theirs.filter("id > 5")
    large = f"id IN ({', '.join(map(str, range(1000)))})"
    assert ours.filter(large) is ours.filter(large)
    assert ours.filter(large) is not theirs.filter(large)


def test_an_opened_fragment_keeps_the_ids_of_the_fields_that_are_read(tmp_path: Path) -> None:
    views = glaive.write_dataset(TABLE, tmp_path / "t").opened.views
    stored = views.snapshot.manifest.fragment(0).files[0].fields
    narrow, whole = (views.scan(columns).fragment(0) for columns in (("name",), None))
    assert narrow.fragment.files[0].fields == stored[1:]
    assert whole.fragment.files[0].fields == stored


def test_hits_misses_and_bytes_can_be_read(tmp_path: Path) -> None:
    session = glaive.Session()
    dataset = glaive.write_dataset(TABLE, tmp_path / "t.lance", session=session)
    assert (session.size_bytes(), session.hits, session.misses) == (0, 0, 0)
    dataset.take([7])
    assert session.misses > 0
    size = session.size_bytes()
    assert size > 0
    misses, hits = session.misses, session.hits
    dataset.take([8])
    assert (session.misses, session.size_bytes()) == (misses, size)
    assert session.hits > hits
    assert f"size_bytes={size}" in repr(session)
    session.clear()
    assert session.size_bytes() == session.index_cache_size_bytes() == 0
    assert dataset.take([9]).equals(TABLE.slice(9, 1))


def test_no_code_in_python_compares_keys_of_a_cache_whose_dictionary_others_use_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: set[type] = set()
    put = ByteCache.put

    def recorded(cache: ByteCache[Any, Any], key: Any, value: Any, size: int) -> None:
        ahead = [key]
        while ahead:
            part = ahead.pop()
            kinds.add(type(part))
            ahead += part if isinstance(part, tuple) else ()
        put(cache, key, value, size)

    monkeypatch.setattr(ByteCache, "put", recorded)
    numbers = pa.array(np.arange(2 * TABLE.num_rows, dtype=np.float32))
    vectors: Any = pa.FixedSizeListArray.from_arrays(numbers, 2)
    rows = TABLE.append_column("v", vectors)
    dataset = glaive.write_dataset(rows, tmp_path / "t.lance", max_rows_per_file=1000)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("name", "INVERTED")
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    dataset.delete("id % 7 = 3")
    assert dataset.count_rows("id = 9") == 1
    assert dataset.to_table(full_text_query="name", limit=3).num_rows == 3
    assert dataset.to_table(nearest={"column": "v", "q": [1, 2], "k": 4}).num_rows == 4
    assert kinds == {bool, bytes, float, int, str, tuple, type(None), weakref.ref}


def test_a_dataset_opened_again_asks_for_no_metadata(tmp_path: Path) -> None:
    session = glaive.Session()
    glaive.write_dataset(TABLE, tmp_path / "t.lance")
    first, store = counted(tmp_path / "t.lance", session)
    first.to_table(["name"])
    assert store.by_method["tail"] == 1
    again, store = counted(tmp_path / "t.lance", session)
    assert again.to_table(["name"]).equals(TABLE.select(["name"]))
    assert "tail" not in store.by_method


@pytest.mark.parametrize("place", ["mapped", "fetched"])
def test_a_budget_of_nothing_still_reads(tmp_path: Path, place: str) -> None:
    where: Any = tmp_path / "t.lance" if place == "mapped" else f"memory://{tmp_path.name}/none"
    glaive.write_dataset(TABLE, where, max_rows_per_file=700)
    dataset = glaive.dataset(where, metadata_cache_size_bytes=0)
    assert dataset.to_table().equals(TABLE)
    assert dataset.take([4000, 3]).equals(TABLE.take(pa.array([4000, 3])))
    assert dataset.session().size_bytes() == 0


def test_a_small_budget_is_kept(tmp_path: Path) -> None:
    large = glaive.write_dataset(TABLE, tmp_path / "t.lance", max_rows_per_file=100)
    small = glaive.dataset(tmp_path / "t.lance", metadata_cache_size_bytes=100_000)
    for dataset in (small, large):
        for row in range(0, 5000, 100):
            assert dataset.take([row]).equals(TABLE.slice(row, 1))
    assert 0 < small.session().size_bytes() <= 100_000 < large.session().size_bytes()


def test_a_scan_can_leave_the_session_as_it_is(tmp_path: Path) -> None:
    glaive.write_dataset(TABLE, tmp_path / "t.lance", max_rows_per_file=700)
    dataset = glaive.dataset(tmp_path / "t.lance")
    session = dataset.session()
    apart = dataset.scanner(use_cache=False)
    assert apart.to_table().equals(TABLE)
    assert (session.size_bytes(), session.hits, session.misses) == (0, 0, 0)
    with pytest.raises(OptionError, match="use_cache"):
        dataset.scanner(use_cache="no")


def test_budgets_and_backends_are_checked() -> None:
    with pytest.raises(OptionError, match="metadata_cache_size_bytes"):
        glaive.Session(metadata_cache_size_bytes=-1)
    with pytest.raises(UnsupportedFeatureError, match="backend"):
        glaive.Session(metadata_cache_backend="moka://")


@pytest.fixture(scope="module")
def wide() -> str:
    """A file of 10,000 columns that is fetched, not mapped."""
    place = "memory://session/wide"
    values = pa.array(np.arange(20))
    names = [f"column {i}" for i in range(WIDE)]
    glaive.write_dataset(pa.table([values] * WIDE, names), place)
    return place


def test_two_of_10000_columns_cost_requests_and_bytes_of_two(wide: str) -> None:
    opened, store = counted(wide)
    table = opened.to_table(["column 3", "column 9876"])
    assert table.num_columns == 2
    assert table.column(1).to_pylist() == list(range(20))
    # The end of the file, places of metadata, metadata, values; near ranges come together.
    assert store.requests <= 7
    assert store.bytes_read < 200_000


@pytest.mark.nightly(reason="makes files of 10,000 columns")
def test_two_of_10000_columns_cost_memory_of_two(wide: str) -> None:
    opened, _ = counted(wide)
    names = ["column 3", "column 9876"]
    scanner = opened.scanner(names)
    tracemalloc.start()
    try:
        scanner.to_table()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    two = opened.session().size_bytes()
    assert held < 900_000  # 80 bytes for each field id and column number of the file's entry
    assert two < 120_000
    opened.to_table()
    assert opened.session().size_bytes() > 100 * (two - 64 * 1024)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.spec("rel-31")
def test_a_dataset_that_moves_on_lets_go_of_files_that_were_deleted(tmp_path: Path) -> None:
    place = tmp_path / "t.lance"
    dataset = glaive.write_dataset(TABLE, place, enable_stable_row_ids=True)
    most = 0
    for version in range(24):
        dataset.insert(TABLE.slice(0, 500), mode="overwrite" if version % 4 == 0 else "append")
        dataset.delete(f"id = {version}")
        if version % 4 == 0:
            dataset.create_scalar_index("id", "BTREE")
        assert dataset.count_rows("id < 10 AND name != 'x'") > 0
        assert dataset.to_table(filter="id = 499").num_rows == version % 4 + 1
        dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
        most = max(most, mapped_and_deleted(place))
    assert most < 25  # of some 70 data and index files that were deleted
    session = dataset.session()
    assert len(session.cache) + len(session.index_cache) < 40
    for _ in range(40):
        dataset.checkout_latest()
    assert mapped_and_deleted(place) == 0


def mapped_and_deleted(place: Path) -> int:
    """Maps of deleted files of a dataset; they hold space on the disk."""
    lines = Path("/proc/self/maps").read_text("utf-8").splitlines()
    return sum(str(place) in line and line.endswith("(deleted)") for line in lines)


def test_moving_on_keeps_what_other_versions_need(tmp_path: Path) -> None:
    session = glaive.Session()
    dataset = glaive.write_dataset(TABLE, tmp_path / "t.lance", session=session)
    old = dataset.checkout_version(1)
    old.take([3])
    for version in range(40):
        dataset.update_config({"key": str(version)})
    misses = session.misses
    assert old.take([4])["id"].to_pylist() == [4]
    assert session.misses == misses


def test_a_copy_that_took_the_place_of_a_dataset_is_searched_as_it_is(tmp_path: Path) -> None:
    """Both have a version 3, with the same index; other rows were deleted."""
    session, place, copy = glaive.Session(), tmp_path / "t.lance", tmp_path / "copy.lance"
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(range(24), pa.float32()), 2)
    made = glaive.write_dataset(pa.table({"id": range(12), "vector": vectors}), place)
    made.create_index("vector", "IVF_FLAT", num_partitions=2)
    shutil.copytree(place, copy)

    def found_after(predicate: str) -> list[int]:
        glaive.dataset(place).delete(predicate)
        nearest = {"column": "vector", "q": [0.0, 0.0], "k": 100, "nprobes": 2}
        opened = glaive.dataset(place, session=session)
        assert opened.version == 3
        return sorted(opened.to_table(columns=["id"], nearest=nearest)["id"].to_pylist())

    assert found_after("id < 6") == [6, 7, 8, 9, 10, 11]
    shutil.rmtree(place)
    shutil.move(copy, place)
    assert found_after("id > 6") == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.spec("rel-42")
def test_versions_that_call_other_places_by_one_id_have_the_rows_of_their_own(
    tmp_path: Path,
) -> None:
    """Deletions and indices of the first one that was read stood for those of the others."""
    place = tmp_path / "t.lance"
    for folder, start, deleted in (
        ("t.lance", 0, "id = 5"),
        ("one", 0, "id = 3"),
        ("two", 9, "id = 20"),
    ):
        made = glaive.write_dataset(pa.table({"id": range(start, start + 20)}), tmp_path / folder)
        made.create_scalar_index("id", "BTREE")
        glaive.dataset(tmp_path / folder).delete(deleted)
    for folder in ("one", "two"):
        for part in ("_deletions/*", "_indices/*"):
            (own,), (other,) = place.glob(part), (tmp_path / folder).glob(part)
            other.rename(other.with_name(own.name))
        _lead_elsewhere(place, tmp_path / folder)
        glaive.dataset(place).update_config({"now": folder})

    def found(version: int, session: glaive.Session | None = None) -> list[list[Any]]:
        opened = glaive.dataset(place, version=version, session=session)
        tables = opened.to_table(), opened.to_table(filter="id in (7, 8, 9, 10)")
        return [table["id"].to_pylist() for table in tables]

    session, versions = glaive.Session(), (3, 4)
    apart = [found(version) for version in versions]
    assert [set(range(20)) - set(rows) for rows, _ in apart] == [{3}, {11}]
    assert apart[0][1] != apart[1][1]  # an index is believed
    assert [found(version, session) for version in versions] == apart


def _lead_elsewhere(place: Path, base: Path) -> None:
    """Have the newest version look for deletions and indices below a base path."""

    def change(wire: Any, fragments: list[Any]) -> None:
        del wire.base_paths[:]
        wire.base_paths.add(id=1, path=str(base), is_dataset_root=True)
        fragments[0].deletion_file.base_id = 1

    rewrite(place, change)
    manifest = glaive.dataset(place).manifest
    section = table_pb2.IndexSection.FromString(manifest.index_section or b"")
    section.indices[0].base_id = 1
    pieces = encode_manifest(
        manifest.complete_wire,
        transaction=manifest.transaction or b"",
        index_section=section.SerializeToString(),
    )
    Path(manifest.where).write_bytes(b"".join(map(bytes, map(memoryview, pieces))))


@pytest.mark.spec("rel-42")
def test_deletions_are_compared_with_the_rows_of_each_fragment_that_has_their_file(
    tmp_path: Path,
) -> None:
    """They were kept for a fragment with more rows, and those that this one lacks not noticed."""
    place, session = tmp_path / "t.lance", glaive.Session()
    few = glaive.write_dataset(pa.table({"id": range(10)}), tmp_path / "few")
    glaive.write_dataset(pa.table({"id": range(20)}), place).delete("id = 3 or id = 15")
    glaive.dataset(place).update_config({"a": "b"})
    (file,) = few.get_fragments()[0].data_files()
    shutil.copy(tmp_path / "few" / "data" / file.path, place / "data" / file.path)

    def fewer(_: Any, fragments: list[Any]) -> None:
        fragments[0].physical_rows = 10
        fragments[0].files[0].path = file.path
        fragments[0].files[0].file_size_bytes = file.file_size_bytes

    rewrite(place, fewer)
    assert glaive.dataset(place, version=2, session=session).to_table().num_rows == 18
    with pytest.raises(CorruptFileError, match="offsets below 10"):
        glaive.dataset(place, session=session).to_table()


def test_the_next_version_knows_the_rows_that_changes_deleted(tmp_path: Path) -> None:
    made = glaive.write_dataset({"id": range(100)}, tmp_path / "t")
    made.delete("id = 3 OR id = 40")
    made.delete("id = 5")
    made.update({"id": "id + 1000"}, where="id = 7")
    left = [*sorted({*range(100)} - {3, 5, 7, 40}), 1007]
    assert made.to_table()["id"].to_pylist() == left
    assert glaive.dataset(made.uri).to_table()["id"].to_pylist() == left
    shutil.rmtree(tmp_path / "t" / "_deletions")  # nothing reads the files again
    made.delete("id = 9")
    left.remove(9)
    assert made.to_table()["id"].to_pylist() == left
    assert glaive.dataset(made.uri).to_table()["id"].to_pylist() == left


def test_later_versions_read_a_file_by_the_columns_that_an_earlier_one_opened(
    tmp_path: Path,
) -> None:
    dataset = glaive.write_dataset(TABLE, tmp_path / "t")
    before = dataset.opened.views.take(None).fragment(0).stored
    dataset.insert(TABLE)
    assert dataset.version == 2
    after = dataset.opened.views.take(None).fragment(0).stored
    assert all(old is new for old, new in zip(before, after, strict=True))
    dataset.alter_columns({"path": "name", "name": "text"})
    renamed = dataset.opened.views.take(None).fragment(0).stored
    assert [column.field.name for column in renamed] == ["id", "text"]
    assert dataset.take([7])["text"].to_pylist() == ["name 7"]
