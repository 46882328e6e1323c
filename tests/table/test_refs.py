"""Files of tags and branches with something wrong in them, and branches in wrong places."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.errors import CommitContentionError, CorruptFileError, RefExistsError
from glaive.io.local import LocalStore
from glaive.io.store import ObjectMeta
from glaive.table.refs import is_branch_name, list_branches, list_tags, read_branch
from glaive.table.root import open_root

ROWS = pa.table({"a": range(3)})


@pytest.mark.parametrize(
    "member",
    [
        r'"metadata": {"a": "\ud800"}',
        r'"metadata": {"\uDFFF": "a"}',
        '"createdAt": "0001-01-01T00:00:00+23:59"',
        '"createdAt": "9999-12-31T23:59:59-23:59"',
        '"updatedAt": "9999-12-31T23:59:59.999999999-00:01"',
    ],
)
def test_a_tag_with_what_cannot_be_shown_or_written_again_is_damaged(
    member: str, tmp_path: Path
) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path)
    dataset.tags.create("v", 1)
    (tmp_path / "_refs" / "tags" / "v.json").write_text(
        f'{{"version": 1, "manifestSize": 1, {member}}}'
    )
    with pytest.raises(CorruptFileError, match=r"_refs/tags/v\.json"):
        dataset.tags.list()
    with pytest.raises(CorruptFileError, match=r"_refs/tags/v\.json"):
        dataset.tags.update("v", 1)


def with_a_link_to(text: str, folder: str, place: Path) -> glaive.LanceDataset:
    """A dataset with a link in the place of a tag or a branch, to a file with this text."""
    dataset = glaive.write_dataset(ROWS, place / "d")
    (place / "credentials").write_text(text)
    link = place / "d" / "_refs" / folder / "v.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(place / "credentials")
    return dataset


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize("folder", ["tags", "branches"])
@pytest.mark.parametrize("secret", ["[default]\naws_access_key_id = AKIA", '["AKIA"]', "AKIA"])
def test_what_a_link_in_the_place_of_a_tag_or_branch_leads_to_is_in_no_message(
    folder: str, secret: str, tmp_path: Path
) -> None:
    dataset = with_a_link_to(secret, folder, tmp_path)
    with pytest.raises(CorruptFileError, match=rf"{len(secret)} bytes of something else") as error:
        getattr(dataset, folder).list()
    assert "AKIA" not in str(error.value)
    # Errors of JSON have the whole text, which reports of errors may show.
    assert error.value.__cause__ is error.value.__context__ is None


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize("folder", ["tags", "branches"])
@pytest.mark.parametrize(
    "member",
    [
        '"version": "AKIA", "parentVersion": "AKIA"',
        '"version": ["AKIA"], "parentVersion": {"AKIA": 1}',
        '"branch": "AKIA!", "parentBranch": "AKIA!"',
        '"createdAt": "AKIA", "createAt": "AKIA"',
        '"manifestSize": "AKIA"',
        '"metadata": {"a": ["AKIA"]}, "identifier": "AKIA"',
    ],
)
def test_a_link_to_other_json_shows_none_of_its_values(
    folder: str, member: str, tmp_path: Path
) -> None:
    sound = '"version": 1, "parentVersion": 1, "createAt": 1, "manifestSize": 1'
    dataset = with_a_link_to(f"{{{sound}, {member}}}", folder, tmp_path)
    with pytest.raises(CorruptFileError, match=r"v\.json") as error:
        getattr(dataset, folder).list()
    assert "AKIA" not in str(error.value)


@pytest.mark.parametrize("name", ["a\nb", "a b"])
def test_a_tag_whose_file_has_a_name_that_no_tag_has_is_damaged(name: str, tmp_path: Path) -> None:
    """Whatever the name: also one that no object can have."""
    dataset = glaive.write_dataset(ROWS, tmp_path)
    dataset.tags.create("v", 1)
    (tmp_path / "_refs" / "tags" / "v.json").rename(tmp_path / "_refs" / "tags" / f"{name}.json")
    with pytest.raises(CorruptFileError, match=r"name of a file in _refs/tags"):
        dataset.tags.list()


def test_a_branch_with_half_of_a_pair_in_its_identifier_is_damaged(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path)
    dataset.create_branch("dev")
    path = tmp_path / "_refs" / "branches" / "dev.json"
    path.write_text(
        r'{"parentBranch": null, "parentVersion": 1, "createAt": 1, "manifestSize": 1,'
        r' "identifier": {"version_mapping": [[1, "\ud800"]]}}'
    )
    with pytest.raises(CorruptFileError, match=r"Unicode strings, found '\\ud800'"):
        dataset.branches.list()


def test_pairs_of_halves_and_times_of_all_zones_are_read(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path)
    dataset.tags.create("v", 1)
    (tmp_path / "_refs" / "tags" / "v.json").write_text(
        r'{"version": 1, "manifestSize": 1, "metadata": {"a": "\ud83d\ude00"},'
        r' "createdAt": "2026-01-01T01:00:00.5+01:00"}'
    )
    (tag,) = dataset.tags.list().values()
    assert tag["metadata"] == {"a": "\N{GRINNING FACE}"}
    assert tag["created_at"].isoformat() == "2026-01-01T00:00:00.500000+00:00"
    dataset.tags.update("v", 1)


def test_a_branch_tells_where_it_and_those_before_it_begin(tmp_path: Path) -> None:
    root = open_root(str(tmp_path))
    path = tmp_path / "_refs" / "branches" / "dev.json"
    path.parent.mkdir(parents=True)
    given = '{"parentBranch": null, "parentVersion": 3, "createAt": 5, "manifestSize": 7%s}'
    path.write_text(given % "")
    assert read_branch(root, "dev").identifier == ()

    steps = ((2, "0a" * 16), (3, "0b" * 16))
    pairs = ", ".join(f'[{version}, "{name}"]' for version, name in steps)
    path.write_text(given % f', "identifier": {{"version_mapping": [{pairs}]}}')
    assert read_branch(root, "dev").identifier == steps
    path.write_bytes(read_branch(root, "dev").to_json())
    (branch,) = list_branches(root).values()
    assert (branch.identifier, branch.parent_version, branch.create_at) == (steps, 3, 5)


@pytest.mark.parametrize(
    "name", ["main", "", "a..b", "a.lock", "a/./b", "/a", "a/", "a b", 5, None]
)
def test_a_branch_has_no_such_name(name: object) -> None:
    assert not is_branch_name(name)
    assert all(map(is_branch_name, ["dev", "a/b", "x.y", "A-1_2"]))


@pytest.mark.spec("rel-26")
@pytest.mark.parametrize("name", ["dev", "team/dev"])
def test_a_copied_branch_is_its_own_root_wherever_it_lies(tmp_path: Path, name: str) -> None:
    """The folders above it are a dataset only if there is a version, or the file of the branch."""
    branch = glaive.write_dataset(ROWS, tmp_path / "d").create_branch(name)
    branch.tags.create("mine")
    assert glaive.dataset(tmp_path / "d").tags.get_version("mine") == 1
    home = tmp_path / "home"
    shutil.copytree(tmp_path / "d" / "tree" / name, home / "tree" / name)
    copied = glaive.dataset(home / "tree" / name)
    assert copied.tags.list() == {}
    copied.tags.create("t")
    assert copied.create_branch("other").count_rows() == 3
    copied.delete("true")
    copied.cleanup_old_versions(older_than=timedelta(0))
    assert glaive.dataset(home / "tree" / name, version="t").count_rows() == 3
    assert [path.name for path in home.iterdir()] == ["tree"]
    assert [path.name for path in (home / "tree").iterdir()] == [name.partition("/")[0]]


@pytest.mark.parametrize("name", ["dev", "dev/x"])
def test_a_branch_that_was_copied_to_a_bucket_named_tree_is_its_own_root(name: str) -> None:
    glaive.write_dataset({"id": [1, 2]}, f"memory://origin/{name}").create_branch(name)
    source = open_root(f"memory://origin/{name}/tree/{name}")
    target = open_root(f"memory://tree/{name}")
    for meta in source.walk(""):
        target.put(meta.path, [source.get(meta.path)])
    copied = glaive.dataset(target.uri)
    assert copied.tags.list() == {}
    copied.tags.create("t")
    assert copied.create_branch("other").count_rows() == 2


def test_a_branch_has_its_root_though_a_listing_shows_no_version_of_it(tmp_path: Path) -> None:
    branch = glaive.write_dataset(ROWS, tmp_path / "d").create_branch("dev")
    (tmp_path / "d" / "_versions").rename(tmp_path / "not yet listed")
    branch.tags.create("t")
    assert (tmp_path / "d" / "_refs" / "tags" / "t.json").is_file()


@pytest.fixture(params=["plain", "home/tree/dev"])
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> glaive.LanceDataset:
    """A branch with two versions that was copied to where no dataset is."""
    branch = glaive.write_dataset(ROWS, tmp_path / "d").create_branch("dev")
    branch.insert(ROWS)
    return glaive.dataset(shutil.copytree(tmp_path / "d/tree/dev", tmp_path / request.param))


@pytest.mark.spec("rel-14")
@pytest.mark.parametrize("name", [None, "main", "dev"])
def test_a_clean_up_of_a_copied_branch_keeps_what_tags_and_branches_need_of_it(
    copied: glaive.LanceDataset, name: str | None
) -> None:
    """Whatever name it was given when they were made."""
    given = None if name is None else (name, copied.version)
    copied.tags.create("tagged", given)
    copied.create_branch("made", given)
    glaive.write_dataset(ROWS, copied.uri, mode="overwrite")
    newest = glaive.dataset(copied.uri)
    newest.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)
    assert newest.checkout_version("tagged").to_table().num_rows == 6
    made = newest.checkout_version(("made", None))
    assert made.to_table().num_rows == 6
    assert made.checkout_version("tagged").uri == copied.uri
    assert made.branches.list()["made"]["parent_branch"] is None


def test_a_branch_of_a_copied_branch_is_published_to_it(copied: glaive.LanceDataset) -> None:
    copied.create_branch("more").insert(ROWS)
    copied.branches.publish("more")
    copied.branches.delete("more")
    assert glaive.dataset(copied.uri).to_table().num_rows == 9


def test_a_copied_branch_has_the_name_that_it_had(copied: glaive.LanceDataset) -> None:
    """Also for Spark, whose tasks open versions by the names of their branches."""
    with pytest.raises(RefExistsError, match="itself was copied from a branch of this name"):
        copied.create_branch("dev")
    assert glaive.dataset(copied.uri, version=("dev", 2)).uri == copied.uri


class DeletedOnceListed(LocalStore):
    """A directory in which somebody deletes all refs called ``old`` right after each listing."""

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        listed = [*super().list(prefix)]
        (Path(self.root) / prefix / "old.json").unlink(missing_ok=True)
        return iter(listed)


def test_a_tag_or_branch_that_is_deleted_while_they_are_listed_is_left_out(tmp_path: Path) -> None:
    dataset = glaive.write_dataset({"id": [1]}, tmp_path / "t")
    for name in ("kept", "old"):
        dataset.tags.create(name)
        dataset.create_branch(name)
    store = DeletedOnceListed(tmp_path / "t")
    assert [*list_tags(store)] == ["kept"]
    assert [*list_branches(store)] == ["kept"]


@pytest.mark.spec("rel-14")
def test_what_deletes_waits_for_the_deletion_of_a_branch_which_may_be_refused(
    tmp_path: Path,
) -> None:
    dataset = glaive.write_dataset({"id": [1]}, tmp_path / "t")
    dataset.create_branch("old")
    with pytest.raises(CommitContentionError, match="'old' was deleted while it was read"):
        list_branches(DeletedOnceListed(tmp_path / "t"), complete=True)
