"""What changed between versions, whether all is well, and base paths: as pylance tells it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import (
    CorruptFileError,
    DataFileMissingError,
    GlaiveError,
    OptionError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

DATA = pa.table({"a": range(10), "t": [f"t{at}" for at in range(10)]})


def history(path: str, stable: bool) -> None:
    """Six versions: rows are made, appended, updated, deleted, merged."""
    lance.write_dataset(DATA, path, max_rows_per_file=4, enable_stable_row_ids=stable)
    lance.write_dataset(DATA.slice(0, 2), path, mode="append")
    glaive.dataset(path).update({"t": "'new'"}, "a = 5")
    lance.dataset(path).delete("a = 7")
    glaive.dataset(path).delete("a = 0")
    lance.dataset(path).merge_insert(
        "a"
    ).when_matched_update_all().when_not_matched_insert_all().execute(
        pa.table({"a": [3, 50], "t": ["merged", "made"]})
    )


def rows_of(reader: pa.RecordBatchReader) -> Any:
    table = reader.read_all()
    rows = sorted(table.to_pylist(), key=lambda row: row["_rowid"])
    return [(one.name, one.type) for one in table.schema], rows


RANGES: list[dict[str, int]] = [
    {"compared_against": 1},
    {"compared_against": 6},
    {"begin_version": 1, "end_version": 3},
    {"begin_version": 0, "end_version": 2},
    {"begin_version": 3, "end_version": 6},
    {"begin_version": 4, "end_version": 4},
]


class TestDelta:
    @pytest.mark.sampled(every=4)
    @pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
    @pytest.mark.parametrize("given", RANGES, ids=str)
    def test_rows_and_transactions(
        self, tmp_path: Path, given: dict[str, int], stable: bool
    ) -> None:
        path = str(tmp_path / "d")
        history(path, stable)
        mine = glaive.dataset(path).delta(**given)
        theirs = lance.dataset(path).delta(**given)
        assert rows_of(mine.get_inserted_rows()) == rows_of(theirs.get_inserted_rows())
        assert rows_of(mine.get_updated_rows()) == rows_of(theirs.get_updated_rows())
        told = [
            [(type(one.operation).__name__, one.read_version, one.uuid) for one in found]
            for found in (mine.list_transactions(), theirs.list_transactions())
        ]
        assert told[0] == told[1]
        if stable:
            assert rows_of(mine.get_deleted_row_ids()) == rows_of(theirs.get_deleted_row_ids())

    def test_without_stable_ids_deleted_rows_are_not_known(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        history(path, stable=False)
        with pytest.raises(UnsupportedFeatureError, match="enable_stable_row_ids"):
            glaive.dataset(path).delta(compared_against=1).get_deleted_row_ids()

    @pytest.mark.parametrize(
        "given",
        [{}, {"begin_version": 1}, {"end_version": 1}, {"begin_version": -1, "end_version": 2}],
        ids=str,
    )
    def test_the_range_must_be_whole(self, tmp_path: Path, given: Any) -> None:
        dataset = glaive.write_dataset(DATA, tmp_path / "d")
        with pytest.raises(OptionError):
            dataset.delta(**given)

    def test_versions_that_are_not_there(self, tmp_path: Path) -> None:
        dataset = glaive.write_dataset(DATA, tmp_path / "d", enable_stable_row_ids=True)
        delta = dataset.delta(begin_version=1, end_version=9)
        with pytest.raises(VersionNotFoundError):
            delta.list_transactions()
        with pytest.raises(VersionNotFoundError):
            delta.get_deleted_row_ids()
        with pytest.raises(OptionError, match="comes after"):
            dataset.delta(begin_version=3, end_version=1).get_deleted_row_ids()


def damaged(path: str, change: Callable[[Any], Any]) -> glaive.LanceDataset:
    """The dataset with its second fragment replaced in a commit by hand."""
    dataset = glaive.dataset(path)
    fragments = [one.metadata for one in dataset.get_fragments()]
    fragments[1] = change(fragments[1])
    operation = glaive.LanceOperation.Merge(fragments, dataset.lance_schema)
    return glaive.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def with_file(fragment: Any, **changes: Any) -> Any:
    (file,) = fragment.files
    return replace(fragment, files=(replace(file, **changes),))


class TestValidate:
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        path = str(tmp_path / "d")
        options = {"max_rows_per_file": 4, "enable_stable_row_ids": True}
        glaive.write_dataset(DATA, path, **options).delete("a = 1")
        return path

    @pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2"])
    def test_what_both_make_is_well(self, tmp_path: Path, version: str) -> None:
        for library in (glaive, lance):
            path = str(tmp_path / library.__name__)
            library.write_dataset(DATA, path, data_storage_version=version, max_rows_per_file=4)
            dataset = library.dataset(path)
            dataset.delete("a = 2")
            dataset.add_columns({"b": "a"})
            lance.dataset(path).create_scalar_index("a", "BTREE")
            glaive.dataset(path).validate()

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda one: replace(one, physical_rows=5), "rows of fragment 1"),
            (lambda one: with_file(one, column_indices=(0, 7)), "columns of fragment 1"),
            (lambda one: replace(one, files=one.files * 2), "field 0 of fragment 1"),
        ],
        ids=["rows", "columns", "twice"],
    )
    def test_what_is_wrong_is_named(self, path: str, change: Any, says: str) -> None:
        dataset = damaged(path, change)
        with pytest.raises(CorruptFileError, match=says):
            dataset.validate()
        with pytest.raises(CorruptFileError, match=says):
            dataset.get_fragment(1).validate()
        dataset.get_fragment(0).validate()

    def test_row_ids_are_there_once(self, path: str) -> None:
        first = glaive.dataset(path).get_fragment(0).metadata
        dataset = damaged(path, lambda one: replace(one, row_id_meta=first.row_id_meta))
        with pytest.raises(CorruptFileError, match=r"row ids.*\d twice"):
            dataset.validate()

    def test_a_missing_file_is_named(self, path: str) -> None:
        dataset = glaive.dataset(path)
        name = dataset.get_fragment(2).data_files()[0].path
        Path(path, "data", name).unlink()
        with pytest.raises(DataFileMissingError, match=name):
            dataset.validate()

    def test_a_missing_deletion_file_is_named(self, path: str) -> None:
        (file,) = Path(path, "_deletions").iterdir()
        file.unlink()
        with pytest.raises(DataFileMissingError, match=file.name):
            glaive.dataset(path).validate()

    def test_a_missing_index_file_is_named(self, path: str) -> None:
        lance.dataset(path).create_scalar_index("a", "BTREE")
        file = next(one for one in Path(path, "_indices").rglob("*.lance"))
        file.unlink()
        with pytest.raises(DataFileMissingError, match=file.name):
            glaive.dataset(path).validate()


class TestBases:
    def test_both_register_the_same(self, tmp_path: Path) -> None:
        found = []
        for library in (glaive, lance):
            path = str(tmp_path / library.__name__)
            dataset = library.write_dataset(DATA, path)
            assert dataset.base_paths() == {}
            more = [
                library.DatasetBasePath(str(tmp_path / "b"), name="one"),
                library.DatasetBasePath(str(tmp_path / "c"), is_dataset_root=True, id=7),
            ]
            assert dataset.add_bases(more, {"why": "because"}) is dataset
            bases = dataset.base_paths().values()
            facts = {(one.id, one.name, one.path, one.is_dataset_root) for one in bases}
            told = glaive.dataset(path).read_transaction(2)
            why = (told.transaction_properties or {})["why"]
            found.append((facts, dataset.version, why))
            other = {one.id for one in lance.dataset(path).base_paths().values()}
            assert other == set(dataset.base_paths())
        assert found[0] == found[1]

    @pytest.mark.parametrize(
        "base", [("/x", "one"), ("/b", "two"), "no base"], ids=["name", "path", "nothing"]
    )
    def test_what_is_there_already_is_refused(self, tmp_path: Path, base: Any) -> None:
        dataset = glaive.write_dataset(DATA, tmp_path / "d")
        dataset.add_bases([glaive.DatasetBasePath("/b", name="one")])
        wrong = glaive.DatasetBasePath(*base) if isinstance(base, tuple) else base
        with pytest.raises((OptionError, GlaiveError)):
            dataset.add_bases([wrong])
        assert dataset.version == 2


class TestTargets:
    """Data files that are written to base paths."""

    def bases(self, folder: Path, library: Any) -> list[Any]:
        return [
            library.DatasetBasePath(str(folder / "b1"), name="one"),
            library.DatasetBasePath(str(folder / "b2"), name="two", is_dataset_root=True),
        ]

    def written(self, library: Any, folder: Path) -> Any:
        """Write with targets of all kinds; where the files are then."""
        folder.mkdir()
        path = str(folder / "d")
        options: Any = {"max_rows_per_file": 3}
        bases = self.bases(folder, library)
        library.write_dataset(DATA, path, initial_bases=bases, target_bases=["one"], **options)
        more: list[dict[str, Any]] = [
            {"target_bases": ["one", "two"]},
            {"target_bases": [str(folder / "b2")]},
            {"target_all_bases": True},
            {"target_bases": []},
        ]
        for one in more:
            library.write_dataset(DATA, path, mode="append", **one, **options)
        files = [one.files[0] for one in glaive.dataset(path).manifest.fragments()]
        folders = {
            str(one.parent.relative_to(folder)): len(list(one.parent.glob("*.lance")))
            for one in folder.rglob("*.lance")
        }
        rows = [one.dataset(path).to_table().to_pydict() for one in (glaive, lance)]
        assert rows[0] == rows[1]
        return [one.base_id for one in files], folders, rows[0]

    def test_both_put_files_to_the_same_places(self, tmp_path: Path) -> None:
        mine = self.written(glaive, tmp_path / "glaive")
        assert mine == self.written(lance, tmp_path / "lance")
        assert set(mine[0]) == {None, 1, 2}

    def test_fragments_made_by_hand(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        made = glaive.fragment.write_fragments(
            DATA,
            path,
            mode="create",
            initial_bases=self.bases(tmp_path, glaive),
            target_bases=["two"],
            return_transaction=True,
        )
        glaive.LanceDataset.commit(path, made)
        assert lance.dataset(path).to_table() == DATA
        assert list((tmp_path / "b2" / "data").iterdir())

    @pytest.mark.parametrize(
        "wrong",
        [{"target_bases": ["zz"]}, {"target_bases": ["one"], "target_all_bases": True}],
        ids=["unknown", "both"],
    )
    def test_what_cannot_be_is_refused(self, tmp_path: Path, wrong: Any) -> None:
        path = str(tmp_path / "d")
        glaive.write_dataset(DATA, path, initial_bases=self.bases(tmp_path, glaive))
        with pytest.raises(OptionError, match="target_bases"):
            glaive.write_dataset(DATA, path, mode="append", **wrong)

    def test_what_fails_leaves_no_file(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")

        def rows() -> Any:
            yield from DATA.to_batches()
            raise KeyError("on purpose")

        bases = self.bases(tmp_path, glaive)
        with pytest.raises(KeyError):
            glaive.write_dataset(
                rows(), path, initial_bases=bases, target_all_bases=True, max_rows_per_file=2
            )
        assert not list(tmp_path.rglob("*.lance"))
