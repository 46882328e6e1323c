"""Tags and branches made by one library, seen by the other."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import (
    CommitError,
    CorruptFileError,
    OptionError,
    RefExistsError,
    RefNotFoundError,
    VersionNotFoundError,
)

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

BOTH = pytest.mark.parametrize("maker", [glaive, lance], ids=["glaive", "pylance"])


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Three versions with one, two and three rows."""
    uri = str(tmp_path / "d")
    for at in range(3):
        glaive.write_dataset(pa.table({"a": [at]}), uri, mode="append")
    return uri


def without_times(tags: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {k: v for k, v in tag.items() if "_at" not in k} for name, tag in tags.items()}


class TestTags:
    @BOTH
    def test_both_see_the_tags_of_either(self, path: str, maker: ModuleType) -> None:
        dataset = maker.dataset(path)
        dataset.tags.create("first", 1)
        dataset.tags.create("newest")
        dataset.tags.create("again", "first")
        dataset.tags.create("main-2", ("main", 2))
        dataset.tags.replace_metadata("first", {"by": "us"})
        dataset.tags.update("again", 3)
        mine, theirs = glaive.dataset(path).tags, lance.dataset(path).tags
        assert mine.list() == theirs.list()
        assert {name: tag["version"] for name, tag in mine.list().items()} == {
            "first": 1,
            "newest": 3,
            "again": 3,
            "main-2": 2,
        }
        for order in (None, "asc", "desc"):
            assert mine.list_ordered(order) == theirs.list_ordered(order)

    def test_a_tag_opens_its_version(self, path: str) -> None:
        lance.dataset(path).tags.create("two", 2)
        assert glaive.dataset(path, version="two").count_rows() == 2
        assert glaive.dataset(path).checkout_version("two").version == 2
        assert glaive.dataset(path).tags.get_version("two") == 2

    @pytest.mark.spec("tag-3")
    def test_moving_a_tag_keeps_when_it_was_made_and_what_it_says(self, path: str) -> None:
        tags = glaive.dataset(path).tags
        tags.create("t", 1)
        tags.replace_metadata("t", {"k": "v"})
        before = tags.list()["t"]
        tags.update("t", 2)
        after = lance.dataset(path).tags.list()["t"]
        assert after["created_at"] == before["created_at"]
        assert after["updated_at"] > before["updated_at"]
        assert after["version"] == 2

    def test_a_deleted_tag_is_gone_for_both(self, path: str) -> None:
        lance.dataset(path).tags.create("t", 1)
        glaive.dataset(path).tags.delete("t")
        assert lance.dataset(path).tags.list() == {} == glaive.dataset(path).tags.list()

    def test_a_name_is_taken_once(self, path: str) -> None:
        lance.dataset(path).tags.create("t", 1)
        with pytest.raises(RefExistsError, match="tag t already exists"):
            glaive.dataset(path).tags.create("t", 2)
        assert glaive.dataset(path).tags.get_version("t") == 1

    def test_a_tag_that_is_not_there_names_the_closest(self, path: str) -> None:
        tags = glaive.dataset(path).tags
        tags.create("release", 1)
        for ask in (
            tags.get_version,
            tags.delete,
            tags.update,
            glaive.dataset(path).checkout_version,
        ):
            with pytest.raises(RefNotFoundError, match="did you mean 'release'"):
                ask("relaese")

    def test_a_version_that_is_not_there_gets_no_tag(self, path: str) -> None:
        with pytest.raises(VersionNotFoundError, match="version 99 of"):
            glaive.dataset(path).tags.create("t", 99)
        assert glaive.dataset(path).tags.list() == {}

    @pytest.mark.spec("tag-2")
    @pytest.mark.parametrize("name", ["", "a b", "a/b", ".a", "a.", "a..b", "a.lock", "../x", 3])
    def test_names_that_pylance_refuses_are_refused(self, path: str, name: Any) -> None:
        with pytest.raises((ValueError, OSError, TypeError)):
            lance.dataset(path).tags.create(name, 1)
        with pytest.raises(OptionError, match="not a valid tag name"):
            glaive.dataset(path).tags.create(name, 1)

    @pytest.mark.parametrize(
        "content",
        [b"\n", b"[1]", b'{"version": 1}', b'{"version": "1", "manifestSize": 3}', b"\xff"],
    )
    def test_a_damaged_file_is_named(self, path: str, content: bytes) -> None:
        file = Path(path) / "_refs" / "tags" / "t.json"
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
        with pytest.raises(CorruptFileError, match=r"t\.json"):
            glaive.dataset(path).tags.list()

    @pytest.mark.spec("tag-1")
    def test_the_least_that_pylance_accepts_is_enough(self, path: str) -> None:
        file = Path(path) / "_refs" / "tags" / "t.json"
        file.parent.mkdir(parents=True)
        file.write_text('{"version": 2, "manifestSize": 100}')
        found = glaive.dataset(path).tags.list()
        assert found["t"]["version"] == lance.dataset(path).tags.list()["t"]["version"] == 2

    @pytest.mark.parametrize("reference", [1.5, (1, 2), ("main", 1, 2), True])
    def test_what_is_no_reference_is_refused(self, path: str, reference: Any) -> None:
        with pytest.raises(OptionError, match="version: expected"):
            glaive.dataset(path).checkout_version(reference)


class TestBranchesOfPylance:
    def test_are_listed_opened_and_read(self, path: str) -> None:
        other = lance.dataset(path).create_branch("dev/x", 2)
        other.insert(pa.table({"a": [77]}))
        dataset = glaive.dataset(path)
        assert dataset.branches.list() == lance.dataset(path).branches.list()
        branch = dataset.checkout_version(("dev/x", None))
        assert branch.to_table().column("a").to_pylist() == [0, 1, 77]
        assert dataset.checkout_version(("dev/x", 2)).count_rows() == 2
        assert branch.checkout_version(("main", 3)).count_rows() == 3
        assert branch.checkout_version((None, None)).version == 3
        assert glaive.dataset(path, version=("dev/x", 3)).count_rows() == 3

    def test_tags_of_a_branch_lie_at_the_root(self, path: str) -> None:
        lance.dataset(path).create_branch("dev", 2)
        glaive.dataset(path, version=("dev", None)).tags.create("t")
        assert lance.dataset(path).tags.list()["t"]["branch"] == "dev"
        assert glaive.dataset(path, version="t").version == 2

    @pytest.mark.spec("branch-6")
    def test_a_branch_in_use_is_not_deleted(self, path: str) -> None:
        dataset = lance.dataset(path)
        dataset.create_branch("p", 2).create_branch("p/q")
        dataset.tags.create("t", ("p/q", None))
        branches = glaive.dataset(path).branches
        with pytest.raises(CommitError, match="p/q start from branch 'p'"):
            branches.delete("p")
        with pytest.raises(CommitError, match="the tags t refer to versions of branch 'p/q'"):
            branches.delete("p/q")
        dataset.tags.delete("t")
        branches.delete("p/q")
        assert list(lance.dataset(path).branches.list()) == ["p"]
        assert lance.dataset(path).checkout_version(("p", None)).count_rows() == 2

    def test_deleting_a_branch_spares_one_below_it(self, path: str) -> None:
        dataset = lance.dataset(path)
        dataset.create_branch("p", 2)
        dataset.create_branch("p/q", 1)
        glaive.dataset(path).branches.delete("p")
        assert list(lance.dataset(path).branches.list()) == ["p/q"]
        assert lance.dataset(path).checkout_version(("p/q", None)).count_rows() == 1
        with pytest.raises(RefNotFoundError, match="branch p does not exist"):
            glaive.dataset(path).checkout_version(("p", None))
