"""Commits made by hand: operations, transactions and fragments go between both libraries."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import ModuleType
from typing import Any

import glaive.fragment
import pyarrow as pa
import pytest
from glaive.fragment import DataFile, FragmentMetadata, write_fragments

import glaive
from glaive import LanceOperation, Transaction
from glaive.errors import (
    CommitConflictError,
    DatasetNotFoundError,
    OptionError,
    UnsupportedFeatureError,
)

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

DATA = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})
BOTH = [glaive, lance]


@pytest.fixture
def path(tmp_path: Path) -> str:
    uri = str(tmp_path / "d")
    glaive.write_dataset(DATA, uri)
    return uri


def counts(path: str) -> int:
    found = {library.dataset(path).count_rows() for library in BOTH}
    assert len(found) == 1
    return int(found.pop())


class TestOperationsMade:
    def test_what_is_no_fragment_is_refused_at_once(self) -> None:
        for library in BOTH:
            with pytest.raises(TypeError, match="FragmentMetadata"):
                library.LanceOperation.Append([1])
            with pytest.raises(TypeError, match="FragmentMetadata"):
                library.LanceOperation.Delete("a", [], "true")


class TestOverlays:
    """pylance 14 commits overlays, and then refuses to open what it made."""

    @pytest.fixture
    def overlaid(self, path: str) -> Any:
        """Version 2 gives two rows of a column other values."""
        dataset = lance.dataset(path)
        with lance.file.LanceFileWriter(f"{path}/data/over.lance") as writer:
            writer.write_batch(pa.table({"a": [20, 30]}))
        file = lance.fragment.DataFile.create(dataset, "over.lance")
        made = lance.LanceOperation
        overlay = made.DataOverlayFile(file, [1, 2])
        operation = made.DataOverlay([made.DataOverlayGroup(0, [overlay])])
        return lance.LanceDataset.commit(dataset, operation, read_version=1)

    def test_those_of_others_are_told(
        self, overlaid: Any, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = glaive.dataset(path, version=1).read_transaction(2)
        assert told is not None
        theirs = overlaid.get_transactions()[0].operation
        assert isinstance(told.operation, LanceOperation.DataOverlay)
        (mine,), (other,) = told.operation.groups, theirs.groups
        assert mine.fragment_id == other.fragment_id == 0
        assert list(mine.overlays[0].offsets) == list(other.overlays[0].offsets) == [1, 2]
        assert mine.overlays[0].data_file.path == "over.lance"
        monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
        lance.write_dataset(DATA, overlaid, mode="overwrite")
        found = glaive.dataset(path).get_transactions()
        names = [type(one.operation).__name__ for one in found if one is not None]
        assert names == ["Overwrite", "DataOverlay", "Overwrite"]

    def test_they_are_neither_read_nor_made(self, overlaid: Any, path: str) -> None:
        with pytest.raises(UnsupportedFeatureError, match="data_overlays"):
            glaive.dataset(path)
        before = glaive.dataset(path, version=1)
        told = before.read_transaction(2)
        assert told is not None
        with pytest.raises(UnsupportedFeatureError, match="does not support data overlays"):
            glaive.LanceDataset.commit(path, told, 1)
        with pytest.raises(UnsupportedFeatureError):
            before.delete("a = 1")
        assert overlaid.to_table()["a"].to_pylist() == [1, 20, 30]


class TestFragments:
    @pytest.mark.parametrize("stable", [False, True])
    @pytest.mark.parametrize("version", ["legacy", "2.0", "2.2"])
    def test_json_goes_both_ways(self, tmp_path: Path, stable: bool, version: str) -> None:
        uri = str(tmp_path / "d")
        dataset = lance.write_dataset(
            DATA, uri, enable_stable_row_ids=stable, data_storage_version=version
        )
        dataset.delete("a = 1")
        theirs = dataset.get_fragment(0).metadata
        mine = FragmentMetadata.of(glaive.dataset(uri).get_fragment(0).metadata)
        assert mine.to_json() == theirs.to_json()
        assert FragmentMetadata.from_json(json.dumps(theirs.to_json())) == mine
        again = lance.FragmentMetadata.from_json(json.dumps(mine.to_json()))
        assert again.to_json() == theirs.to_json()
        assert mine.num_rows == 2 == theirs.num_rows
        assert mine.num_deletions == 1 == theirs.num_deletions
        assert pickle.loads(pickle.dumps(mine)) == mine

    @pytest.mark.parametrize("content", ["", "[]", "{}", '{"id": 1, "files": 3}'])
    def test_what_is_no_fragment_is_refused(self, content: str) -> None:
        with pytest.raises(OptionError, match=r"expected the output of to_json\(\)"):
            FragmentMetadata.from_json(content)

    def test_a_file_is_made_as_in_pylance(self) -> None:
        mine = DataFile("x.lance", [0, 1], [0, 1], 2, 2, 100)
        theirs = lance.fragment.DataFile("x.lance", [0, 1], [0, 1], 2, 2, 100)
        for name in ("path", "file_major_version", "file_minor_version", "file_size_bytes"):
            assert getattr(mine, name) == getattr(theirs, name)

    def test_written_fragments_belong_to_no_version(self, path: str) -> None:
        fragments = write_fragments(DATA, path)
        assert isinstance(fragments, list)
        assert [one.id for one in fragments] == [0]
        assert counts(path) == 3
        made = glaive.LanceDataset.commit(
            path, LanceOperation.Append(fragments), read_version=1, commit_message="by hand"
        )
        assert made.version == 2
        assert counts(path) == 6
        properties = lance.dataset(path).read_transaction(2).transaction_properties
        assert properties == {"__lance_commit_message": "by hand"}

    def test_fragments_of_one_library_are_committed_by_the_other(self, path: str) -> None:
        mine = write_fragments(DATA, path)
        assert isinstance(mine, list)
        theirs = lance.fragment.write_fragments(DATA, path)
        converted = [lance.FragmentMetadata.from_json(json.dumps(one.to_json())) for one in mine]
        lance.LanceDataset.commit(path, lance.LanceOperation.Append(converted), read_version=1)
        back = [FragmentMetadata.from_json(json.dumps(one.to_json())) for one in theirs]
        glaive.LanceDataset.commit(path, LanceOperation.Append(back), read_version=1)
        assert counts(path) == 9
        assert lance.dataset(path).to_table() == glaive.dataset(path).to_table()

    def test_a_transaction_that_creates_a_dataset(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "new")
        made = write_fragments(DATA, uri, mode="create", return_transaction=True)
        assert isinstance(made, Transaction)
        assert not (tmp_path / "new" / "_versions").exists()
        assert glaive.LanceDataset.commit(uri, made).version == 1
        assert lance.dataset(uri).to_table() == DATA


class TestOperations:
    def test_all_that_pylance_did_is_told_alike(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "d")
        dataset = lance.write_dataset(DATA, uri)
        dataset.insert(DATA)
        dataset.create_scalar_index("a", "BTREE")
        dataset.delete("a = 1")
        dataset.update({"b": "'w'"}, where="a = 2")
        dataset.add_columns({"c": "a + 1"})
        dataset.drop_columns(["c"])
        dataset.update_config({"k": "v"})
        dataset.drop_index("a_idx")  # pylance cannot show a rewrite of indices
        dataset.optimize.compact_files()
        dataset.restore()
        mine = glaive.dataset(uri).get_transactions(100)
        theirs = lance.dataset(uri).get_transactions(100)
        assert len(mine) == len(theirs) == glaive.dataset(uri).version
        for one, other in zip(mine, theirs, strict=True):
            assert one is not None
            assert (one.uuid, one.read_version) == (other.uuid, other.read_version)
            name = type(other.operation).__name__
            if name in ("BaseOperation", "dict", "NoneType"):
                continue
            assert type(one.operation).__name__ == name
            for field in ("predicate", "deleted_fragment_ids", "fields_modified", "version"):
                assert getattr(one.operation, field, None) == getattr(other.operation, field, None)
            for field in ("fragments", "updated_fragments", "new_fragments"):
                lists = [getattr(x.operation, field, []) for x in (one, other)]
                assert [x.to_json() for x in lists[0]] == [x.to_json() for x in lists[1]]
        assert [one.uuid for one in glaive.dataset(uri).get_transactions(3) if one] == [
            one.uuid for one in theirs[:3]
        ]

    def test_what_was_read_can_be_committed_again(self, path: str) -> None:
        lance.dataset(path).insert(DATA)
        read = glaive.dataset(path).read_transaction(2)
        assert read is not None
        again = Transaction(2, read.operation)
        glaive.LanceDataset.commit(path, again)
        assert counts(path) == 9

    def test_a_transaction_is_committed_once(self, path: str) -> None:
        fragments = write_fragments(DATA, path)
        assert isinstance(fragments, list)
        transaction = Transaction(1, LanceOperation.Append(fragments))
        first = glaive.LanceDataset.commit(path, transaction)
        second = glaive.LanceDataset.commit(path, transaction)
        assert first.version == second.version == 2
        assert counts(path) == 6

    def test_delete_project_config_and_restore(self, path: str) -> None:
        dataset = glaive.dataset(path)
        commit = glaive.LanceDataset.commit
        schema = dataset.lance_schema.project(["a"])
        commit(dataset, LanceOperation.Project(schema, preserves_nullability=True), 1)
        assert lance.dataset(path).schema.names == ["a"]
        updates = LanceOperation.UpdateMap({"k": "v"})
        commit(path, LanceOperation.UpdateConfig(config_updates=updates), 2)
        assert lance.dataset(path).config() == {"k": "v"}
        commit(path, LanceOperation.Delete([], [0], "true"), 3)
        assert counts(path) == 0
        commit(path, LanceOperation.Restore(1))
        assert lance.dataset(path).to_table() == DATA

    def test_data_replacement(self, path: str) -> None:
        files = write_fragments(DATA.select(["a", "b"]), path)
        assert isinstance(files, list)
        group = LanceOperation.DataReplacementGroup(0, files[0].files[0])
        glaive.LanceDataset.commit(path, LanceOperation.DataReplacement([group]), 1)
        assert lance.dataset(path).to_table() == DATA == glaive.dataset(path).to_table()

    def test_an_index_that_is_dropped_by_hand(self, path: str) -> None:
        lance.dataset(path).create_scalar_index("a", "BTREE")
        read = glaive.dataset(path).read_transaction(2)
        assert read is not None
        assert isinstance(read.operation, LanceOperation.CreateIndex)
        (index,) = read.operation.new_indices
        assert (index.name, index.fields, index.fragment_ids) == ("a_idx", [0], {0})
        operation = LanceOperation.CreateIndex([], [index])
        glaive.LanceDataset.commit(path, operation, 2)
        assert lance.dataset(path).describe_indices() == []

    @pytest.mark.parametrize("library", BOTH, ids=["glaive", "pylance"])
    def test_stale_operations_conflict(self, path: str, library: ModuleType) -> None:
        library.write_dataset(DATA, path, mode="overwrite")
        fragments = write_fragments(DATA, path)
        assert isinstance(fragments, list)
        with pytest.raises(CommitConflictError, match="overwrite") as caught:
            glaive.LanceDataset.commit(path, LanceOperation.Append(fragments), 1)
        assert caught.value.version == 2
        assert not caught.value.retryable
        assert counts(path) == 3


class TestTogether:
    def test_appends_make_one_version(self, path: str) -> None:
        transactions = [write_fragments(DATA, path, return_transaction=True) for _ in range(3)]
        result = glaive.LanceDataset.commit_batch(glaive.dataset(path), transactions)
        assert result["dataset"].version == 2
        assert len(list(result["merged"].operation.fragments)) == 3
        assert counts(path) == 12
        assert len(lance.dataset(path).get_fragments()) == 4

    @pytest.mark.spec("rel-7")
    def test_the_same_appends_are_made_once(self, path: str) -> None:
        transactions = [write_fragments(DATA, path, return_transaction=True) for _ in range(2)]
        versions = [
            glaive.LanceDataset.commit_batch(path, transactions)["dataset"].version
            for _ in range(2)
        ]
        assert versions == [2, 2]
        assert counts(path) == 9

    def test_only_appends(self, path: str) -> None:
        deletion = Transaction(1, LanceOperation.Delete([], [0], "true"))
        with pytest.raises(UnsupportedFeatureError, match="only appends can"):
            glaive.LanceDataset.commit_batch(path, [deletion])
        with pytest.raises(OptionError, match="give at least one"):
            glaive.LanceDataset.commit_batch(path, [])
        assert counts(path) == 3


class TestDetached:
    def test_it_stays_outside_the_history(self, path: str) -> None:
        fragments = write_fragments(DATA, path)
        assert isinstance(fragments, list)
        operation = LanceOperation.Append(fragments)
        made = glaive.LanceDataset.commit(path, operation, 1, detached=True)
        assert made.version & (1 << 63)
        assert made.count_rows() == 6
        assert counts(path) == 3
        assert glaive.dataset(path).latest_version == 1
        for library in BOTH:
            assert library.dataset(path).checkout_version(made.version).count_rows() == 6
        glaive.dataset(path).cleanup_old_versions(delete_unverified=True)
        assert lance.dataset(path).checkout_version(made.version).to_table().num_rows == 6


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (LanceOperation.Append([]), OptionError),
        (3, OptionError),
        (Transaction(1, 3), OptionError),  # type: ignore[arg-type]  # on purpose
        (LanceOperation.Update(update_mode="sideways"), OptionError),
        (LanceOperation.Clone(True, None, 1, "x"), UnsupportedFeatureError),
    ],
    ids=["no-version", "number", "no-operation", "no-mode", "clone"],
)
def test_what_cannot_be_committed_is_refused(path: str, operation: Any, error: Any) -> None:
    with pytest.raises(error):
        glaive.LanceDataset.commit(path, operation)
    assert glaive.dataset(path).version == 1


def test_nothing_is_appended_to_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError):
        glaive.LanceDataset.commit(str(tmp_path / "none"), LanceOperation.Append([]), 1)
    assert not (tmp_path / "none").exists()


def test_options_that_do_not_exist_are_named(path: str) -> None:
    with pytest.raises(TypeError, match="'max_retires'"):
        glaive.LanceDataset.commit(path, LanceOperation.Restore(1), max_retires=3)  # type: ignore[call-arg]  # on purpose
    with pytest.raises(OptionError, match="max_retries"):
        glaive.LanceDataset.commit(path, LanceOperation.Restore(1), max_retries=-1)
