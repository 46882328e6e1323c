"""Branches and clones made by either library, written to and read by the other."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import (
    DatasetExistsError,
    OptionError,
    RefExistsError,
    RefNotFoundError,
    VersionNotFoundError,
)
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

BOTH = pytest.mark.parametrize("maker", [glaive, lance], ids=["glaive", "pylance"])


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Four versions: two fragments, one with deleted rows, and an index."""
    uri = str(tmp_path / "d")
    dataset = lance.write_dataset(pa.table({"a": range(100)}), uri)
    dataset.create_scalar_index("a", "BTREE")
    dataset.delete("a < 10")
    lance.write_dataset(pa.table({"a": [100]}), uri, mode="append")
    return uri


def values(dataset: Any) -> list[int]:
    return sorted(dataset.to_table().column("a").to_pylist())


def facts(manifest: Manifest) -> dict[str, Any]:
    """What two manifests of the same branch or clone have in common."""
    wire = manifest.wire
    return {
        "version": wire.version,
        "branch": wire.branch,
        "bases": sorted((one.id, one.name, one.is_dataset_root) for one in wire.base_paths),
        "flags": (wire.reader_feature_flags, wire.writer_feature_flags),
        "files": [
            [(file.path, file.base_id, file.fields) for file in fragment.files]
            for fragment in manifest.fragments()
        ],
        "deleted": [
            one.deletion_file and one.deletion_file.base_id for one in manifest.fragments()
        ],
        "indices": [(one.name, one.base_id) for one in manifest.indices],
        "next": (wire.max_fragment_id, wire.next_row_id),
    }


class TestBranches:
    @pytest.mark.spec("branch-3")
    @BOTH
    @pytest.mark.parametrize("writer", [glaive, lance], ids=["by-glaive", "by-pylance"])
    def test_one_made_by_either_is_written_by_either(
        self, path: str, maker: ModuleType, writer: ModuleType
    ) -> None:
        maker.dataset(path).create_branch("dev/x", 3)
        branch = writer.dataset(path).checkout_version(("dev/x", None))
        branch.insert(pa.table({"a": [777]}))
        expected = [*range(10, 100), 777]
        assert values(glaive.dataset(path, version=("dev/x", None))) == expected
        assert values(lance.dataset(path).checkout_version(("dev/x", None))) == expected
        assert values(lance.dataset(path)) == [*range(10, 101)]
        assert glaive.dataset(path).branches.list() == lance.dataset(path).branches.list()

    @pytest.mark.spec("branch-1")
    @pytest.mark.spec("branch-2")
    def test_manifests_are_those_of_pylance(self, path: str, tmp_path: Path) -> None:
        other = str(tmp_path / "other")
        shutil.copytree(path, other)
        for one, library in ((path, glaive), (other, lance)):
            first = library.dataset(one).create_branch("b", 3)
            first.insert(pa.table({"a": [1]}))
            first.create_branch("b/c", ("b", 4))
        for name in ("b", "b/c"):
            mine = glaive.dataset(path, version=(name, None)).manifest
            theirs = glaive.dataset(other, version=(name, None)).manifest
            new = {
                file.path
                for manifest in (mine, theirs)
                for fragment in manifest.fragments()
                for file in fragment.files
                if fragment.id == 1
            }
            shown = [str(facts(one)) for one in (mine, theirs)]
            for file in new:
                shown = [text.replace(file, "new") for text in shown]
            assert shown[0] == shown[1]
        ours, others = (glaive.dataset(one).branches.list() for one in (path, other))
        for name in ("b", "b/c"):
            for key in ("parent_branch", "parent_version", "metadata"):
                assert ours[name][key] == others[name][key]
            assert [one[0] for one in ours[name]["branch_identifier"]] == [
                one[0] for one in others[name]["branch_identifier"]
            ]

    def test_the_index_of_the_parent_serves_the_branch(self, path: str) -> None:
        glaive.dataset(path).create_branch("b", 3)
        branch = lance.dataset(path).checkout_version(("b", None))
        assert "ScalarIndexQuery" in branch.scanner(filter="a = 50").explain_plan()
        assert branch.to_table(filter="a = 50").column("a").to_pylist() == [50]

    def test_a_branch_from_a_tag_and_from_this_version(self, path: str) -> None:
        dataset = glaive.dataset(path)
        dataset.tags.create("first", 1)
        assert dataset.create_branch("one", "first").count_rows() == 100
        assert dataset.create_branch("two").version == 4

    @pytest.mark.spec("branch-4")
    def test_names_that_are_taken_or_wrong_are_refused(self, path: str) -> None:
        dataset = glaive.dataset(path)
        dataset.create_branch("b")
        with pytest.raises(RefExistsError, match="branch b already exists"):
            dataset.create_branch("b")
        for name in ("main", "", "a//b", "/a", "a/", "a b", "a..b", "a.lock", "a\\b"):
            with pytest.raises(OptionError, match="not a valid branch name"):
                dataset.create_branch(name)
            with pytest.raises((OSError, ValueError)):
                lance.dataset(path).create_branch(name)
        with pytest.raises(VersionNotFoundError):
            dataset.create_branch("c", 99)
        with pytest.raises(RefNotFoundError):
            dataset.create_branch("c", ("none", None))
        assert list(lance.dataset(path).branches.list()) == ["b"]


class TestClones:
    @pytest.mark.spec("clone-files-1")
    @BOTH
    def test_a_shallow_clone_refers_to_the_files(
        self, path: str, tmp_path: Path, maker: ModuleType
    ) -> None:
        target = str(tmp_path / "clone")
        clone = maker.dataset(path).shallow_clone(target, 3)
        assert clone.version == 3
        assert not (tmp_path / "clone" / "data").exists()
        for library in (glaive, lance):
            assert values(library.dataset(target)) == [*range(10, 100)]
        for library in (glaive, lance):
            library.dataset(target).insert(pa.table({"a": [200]}))
        assert values(glaive.dataset(target)) == [*range(10, 100), 200, 200]
        assert values(lance.dataset(target)) == [*range(10, 100), 200, 200]
        assert values(lance.dataset(path)) == [*range(10, 101)]

    @pytest.mark.spec("clone-files-2")
    @BOTH
    def test_a_deep_clone_stands_alone(self, path: str, tmp_path: Path, maker: ModuleType) -> None:
        target = str(tmp_path / "clone")
        maker.dataset(path).deep_clone(target, 4)
        shutil.rmtree(path)
        for library in (glaive, lance):
            assert values(library.dataset(target)) == [*range(10, 101)]
        plan = lance.dataset(target).scanner(filter="a = 50").explain_plan()
        assert "ScalarIndexQuery" in plan

    def test_manifests_are_those_of_pylance(self, path: str, tmp_path: Path) -> None:
        for kind in ("shallow_clone", "deep_clone"):
            made = []
            for library in (glaive, lance):
                target = str(tmp_path / f"{kind}-{library.__name__}")
                getattr(library.dataset(path), kind)(target, 3)
                made.append(facts(glaive.dataset(target).manifest))
            assert made[0] == made[1]

    @pytest.mark.spec("clone-1")
    def test_the_first_commit_says_where_the_dataset_comes_from(
        self, path: str, tmp_path: Path
    ) -> None:
        glaive.dataset(path).create_branch("b", 3)
        for library in (glaive, lance):
            name, clone = library.__name__, str(tmp_path / library.__name__)
            library.dataset(path).create_branch(name, 3)
            library.dataset(path).create_branch(f"{name}/c", ("b", 3))
            library.dataset(path).shallow_clone(clone, 3)
            for made, source, branch in (
                (glaive.dataset(path, version=(name, None)), "", name),
                (glaive.dataset(path, version=(f"{name}/c", None)), "b", f"{name}/c"),
                (glaive.dataset(clone), "", ""),
            ):
                manifest = made.manifest
                told = table_pb2.Transaction.FromString(manifest.transaction or b"").clone
                assert (told.is_shallow, told.ref_version, told.ref_name) == (True, 3, source)
                assert told.branch_name == branch
                place = f"{path}/tree/b" if source else path
                assert told.ref_path.rstrip("/").endswith(place)
                assert manifest.version == 3
                bases = {one.id: one.path.rstrip("/") for one in manifest.wire.base_paths}
                for fragment in manifest.fragments():
                    assert all(bases[file.base_id or 0].endswith(path) for file in fragment.files)

    def test_blobs_beside_the_files_are_cloned_with_them(self, tmp_path: Path) -> None:
        large = b"x" * 200_000
        uri, deep, shallow = (str(tmp_path / name) for name in ("d", "deep", "shallow"))
        schema = pa.schema([lance.blob_field("b")])
        data = pa.table([lance.blob_array([large, b"small", None])], schema=schema)
        lance.write_dataset(data, uri, data_storage_version="2.2")
        glaive.dataset(uri).deep_clone(deep)
        glaive.dataset(uri).shallow_clone(shallow)
        for library in (glaive, lance):
            for place in (deep, shallow):
                blobs = library.dataset(place).take_blobs("b", indices=[0, 1])
                assert [len(one.read()) for one in blobs] == [200_000, 5]
        shutil.rmtree(uri)
        assert glaive.dataset(deep).take_blobs("b", indices=[0])[0].read() == large

    def test_a_clone_of_a_branch_and_of_a_clone(self, path: str, tmp_path: Path) -> None:
        branch = glaive.dataset(path).create_branch("b", 3)
        branch.insert(pa.table({"a": [5]}))
        first = branch.shallow_clone(str(tmp_path / "one"))
        first.insert(pa.table({"a": [6]}))
        first.shallow_clone(str(tmp_path / "two"))
        first.deep_clone(str(tmp_path / "three"))
        expected = [5, 6, *range(10, 100)]
        for name in ("two", "three"):
            for library in (glaive, lance):
                assert values(library.dataset(str(tmp_path / name))) == expected

    def test_there_is_no_clone_over_a_dataset(self, path: str, tmp_path: Path) -> None:
        target = str(tmp_path / "taken")
        glaive.write_dataset(pa.table({"b": [1]}), target)
        for clone in (glaive.dataset(path).shallow_clone, glaive.dataset(path).deep_clone):
            with pytest.raises(DatasetExistsError, match="Choose another location"):
                clone(target)
        assert lance.dataset(target).to_table().to_pydict() == {"b": [1]}
        assert len(list((tmp_path / "taken" / "data").iterdir())) == 1


@BOTH
def test_an_old_version_is_restored(path: str, maker: ModuleType) -> None:
    old = maker.dataset(path, version=1)
    old.restore()
    for library in (glaive, lance):
        assert library.dataset(path).version == 5
        assert values(library.dataset(path)) == [*range(100)]
    for library in (glaive, lance):
        library.dataset(path).insert(pa.table({"a": [1000]}))
    assert lance.dataset(path).count_rows() == 102
    assert [one.fragment_id for one in lance.dataset(path).get_fragments()] == [0, 2, 3]
