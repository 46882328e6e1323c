"""Which indices a version has, and dropping them: as pylance tells and leaves them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import IndexNotFoundError

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning"),
]

ROWS = 600
VECTORS = np.random.default_rng(7).random(ROWS * 8, dtype=np.float32)
DATA = pa.table(
    {
        "a": range(ROWS),
        "few": [at % 3 for at in range(ROWS)],
        "text": [f"hello world {at}" for at in range(ROWS)],
        "list": [[at % 4, 5] for at in range(ROWS)],
        "v": pa.FixedSizeListArray.from_arrays(pa.array(VECTORS), 8),
        "st": [{"x": at} for at in range(ROWS)],
    }
)
SCALAR = {
    "a": "BTREE",
    "few": "BITMAP",
    "text": "INVERTED",
    "list": "LABEL_LIST",
    "st.x": "ZONEMAP",
}
FIGURES = ("name", "index_type", "type_url", "fields", "field_names", "num_rows_indexed")
SEGMENT = (
    "uuid",
    "dataset_version_at_last_update",
    "index_version",
    "created_at",
    "base_id",
    "size_bytes",
    "covering_fields",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Many kinds, two segments of one of them, new rows, and a compaction that left a map."""
    place = str(tmp_path_factory.mktemp("indices") / "d")
    dataset = lance.write_dataset(DATA, place, max_rows_per_file=250)
    for column, kind in SCALAR.items():
        dataset.create_scalar_index(column, kind, name=f"{column}_{kind}")
    dataset.create_index("v", "IVF_FLAT", name="flat", num_partitions=2)
    dataset.create_index("v", "IVF_HNSW_SQ", name="graph", num_partitions=2)
    dataset.insert(DATA.slice(0, 50))
    dataset.delete("a < 20")
    dataset.optimize.optimize_indices(num_indices_to_merge=0, index_names=["a_BTREE"])
    dataset.optimize.compact_files(target_rows_per_fragment=2000, defer_index_remap=True)
    return place


def segments(described: Any) -> Iterator[list[Any]]:
    for index in described:
        for one in index.segments:
            yield [
                *(getattr(index, name) for name in (*FIGURES, "total_size_bytes")),
                *(getattr(one, name) for name in SEGMENT),
                set(one.fragment_ids),
            ]


def test_they_are_described_alike(made: str) -> None:
    mine, theirs = (lib.dataset(made).describe_indices() for lib in (glaive, lance))
    assert list(segments(mine)) == list(segments(theirs))
    assert len(mine) == len(SCALAR) + 3


def test_they_are_listed_alike(made: str) -> None:
    listed = []
    for library in (glaive, lance):
        with pytest.warns(DeprecationWarning, match="The 'list_indices' method is deprecated"):
            listed.append(library.dataset(made).list_indices())
    assert listed[0] == listed[1]


@pytest.mark.parametrize("name", ["a_BTREE", "few_BITMAP", "text_INVERTED"])
def test_figures_are_those_of_pylance(made: str, name: str) -> None:
    mine, theirs = (lib.dataset(made).stats.index_stats(name) for lib in (glaive, lance))
    own = {"indices", "segments"}  # these tell of the index files
    assert {k: v for k, v in mine.items() if k not in own} == {
        k: v for k, v in theirs.items() if k not in own
    }
    with pytest.warns(DeprecationWarning, match="stats.index_stats"):
        assert glaive.dataset(made).index_statistics(name) == mine
    assert len(mine["segments"]) == len(theirs["segments"])


def test_an_index_that_is_not_there_is_named(made: str) -> None:
    dataset = glaive.dataset(made)
    for use in (dataset.stats.index_stats, dataset.drop_index):
        with pytest.raises(IndexNotFoundError, match=r'Index "x" not found.*Indices: .*a_BTREE'):
            use("x")
    assert dataset.latest_version == dataset.version


def test_rows_that_moved_are_told_by_the_map(made: str) -> None:
    where = pa.array([60, (1 << 32) + 3, 0, None, 5 << 32, (9 << 32) + 1], pa.uint64())
    mine, theirs = (lib.dataset(made).remap_row_addrs(where) for lib in (glaive, lance))
    assert mine == theirs
    assert mine.null_count == 2


def test_without_a_map_nothing_is_told(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(DATA, tmp_path / "d")
    assert dataset.remap_row_addrs(pa.array([1], pa.uint64())) is None


@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2"])
def test_bytes_of_fields_are_those_of_pylance(tmp_path: Path, version: str) -> None:
    place = str(tmp_path / "d")
    data = DATA if version != "legacy" else DATA.select(["a", "text"])
    lance.write_dataset(data, place, data_storage_version=version, max_rows_per_file=250)
    lance.dataset(place).add_columns({"b": "a + 1"})
    glaive.dataset(place).drop_columns(["text"])
    mine, theirs = (
        [(one.id, one.bytes_on_disk) for one in lib.dataset(place).stats.data_stats().fields]
        for lib in (glaive, lance)
    )
    assert mine == theirs


class TestDropping:
    @pytest.fixture
    def places(self, tmp_path: Path) -> list[str]:
        found = []
        for name in ("a", "b"):
            place = str(tmp_path / name)
            dataset = lance.write_dataset(DATA, place, max_rows_per_file=250)
            dataset.create_scalar_index("a", "BTREE", name="one")
            dataset.create_scalar_index("few", "BITMAP", name="two")
            dataset.insert(DATA.slice(0, 50))
            dataset.optimize.optimize_indices(num_indices_to_merge=0, index_names=["one"])
            found.append(place)
        return found

    def test_both_leave_the_same(self, places: list[str]) -> None:
        for lib, place in zip((glaive, lance), places, strict=True):
            dataset = lib.dataset(place)
            before = dataset.version
            dataset.drop_index("one")
            assert dataset.version == before + 1
            for reader in (glaive, lance):
                told = reader.dataset(place)
                assert [one.name for one in told.describe_indices()] == ["two"]
                operation = told.read_transaction(before + 1).operation
                assert [one.name for one in operation.removed_indices] == ["one", "one"]
                assert operation.new_indices == []
                assert told.to_table(filter="a = 7").num_rows == 2
                assert told.to_table(filter="few = 1").num_rows == 217
                told.validate()

    def test_an_entry_goes_from_one_dataset_back_into_it(self, places: list[str]) -> None:
        for lib, other, place in zip((glaive, lance), (lance, glaive), places, strict=True):
            dataset = lib.dataset(place)
            made = [
                entry
                for version in (2, 5)
                for entry in dataset.read_transaction(version).operation.new_indices
            ]
            dataset.drop_index("one")
            operation = lib.LanceOperation.CreateIndex(made, [])
            again = lib.LanceDataset.commit(place, operation, read_version=dataset.version)
            told = other.dataset(place)
            (one, _) = told.describe_indices()
            assert [set(two.fragment_ids) for two in one.segments] == [{0, 1, 2}, {3}]
            assert told.to_table(filter="a = 7").num_rows == 2
            plan = lance.dataset(place).scanner(filter="a = 7").explain_plan()
            assert "ScalarIndexQuery" in plan
            assert again.has_index

    def test_one_that_was_dropped_meanwhile_is_not_there(self, places: list[str]) -> None:
        dataset = glaive.dataset(places[0])
        lance.dataset(places[0]).drop_index("one")
        dataset.checkout_latest()
        with pytest.raises(KeyError, match='Index "one" not found'):
            dataset.drop_index("one")


def test_kinds_that_pylance_builds_are_told_by_their_message(made: str) -> None:
    kinds = {one.name: one.index_type for one in glaive.dataset(made).describe_indices()}
    assert kinds["graph"] == "IVF_HNSW_SQ"
    assert kinds["flat"] == "IVF_FLAT"
    assert kinds["__lance_frag_reuse"] == "FragmentReuse"
