"""A dataset that names places of others: nothing is asked there, and nobody is told secrets."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import fsspec
import pyarrow as pa
import pytest
from tests.distant import Distant
from tests.strangers import Stranger, below_base, contents_of, listening

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.layout import dataset_layout
from glaive.errors import AccessError, CorruptFileError, OptionError

ROWS = pa.table({"a": range(10), "b": [f"row {i}" for i in range(10)]})
SECRETS = {"aws_secret_access_key": "hidden", "token": "hidden", "password": "hidden"}


class Elsewhere(Distant):
    """A file system that fsspec knows; it notes with what it was opened, and what it was asked."""

    protocol = "elsewhere"
    cachable = False
    opened: ClassVar[list[Mapping[str, Any]]] = []

    def __init__(self, **options: Any) -> None:
        self.opened.append(options)
        super().__init__()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(re.sub(r"^\w+://(.*@)?", "", path)))


@pytest.fixture(autouse=True)
def opened() -> Iterator[list[Mapping[str, Any]]]:
    fsspec.register_implementation("elsewhere", Elsewhere, clobber=True)
    Elsewhere.opened.clear()
    yield Elsewhere.opened
    Elsewhere.opened.clear()


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    with listening() as found:
        yield found


@pytest.fixture
def root(tmp_path: Path) -> dict[str, str]:
    """A place of each kind for a dataset."""
    return {"memory": f"memory://{uuid4().hex}/d", "directory": str(tmp_path / "d")}


WITHOUT_FILES: dict[str, Callable[[LanceDataset], object]] = {
    "count": lambda dataset: dataset.count_rows(),
    "schema": lambda dataset: (dataset.schema, dataset.lance_schema, repr(dataset)),
    "describe": lambda dataset: (dataset.versions(), dataset.get_version(), dataset.base_paths()),
    "figures": lambda dataset: dataset.stats.dataset_stats(),
    "fragments": lambda dataset: [one.metadata for one in dataset.get_fragments()],
    "indices": lambda dataset: dataset.describe_indices(),
    "files": lambda dataset: (dataset.all_files().read_all(), dataset.tracked_files().read_all()),
    "layout": lambda dataset: dataset_layout(dataset, max_files=0).to_dict(),
    "plan": lambda dataset: dataset.scanner(filter="a > 3").explain_plan(),
    "clean-up": lambda dataset: dataset.explain_cleanup_old_versions(retain_versions=1),
    "transactions": lambda dataset: dataset.get_transactions(),
    "metadata": lambda dataset: dataset.update_config({"key": "value"}),
    "tags": lambda dataset: dataset.tags.create("here", dataset.version),
    "branches": lambda dataset: dataset.create_branch("dev"),
    "append": lambda dataset: dataset.insert(ROWS),
    "restore": lambda dataset: dataset.checkout_version(1).restore(),
    "pickle": lambda dataset: dataset.store.uri.startswith("memory") or pickle.dumps(dataset),
}
WITH_FILES: dict[str, Callable[[LanceDataset], object]] = {
    "scan": lambda dataset: dataset.to_table(),
    "filter": lambda dataset: dataset.count_rows("a > 3"),
    "take": lambda dataset: dataset.take([15]),
    "head": lambda dataset: dataset.slice(12, 14),
    "validate": lambda dataset: dataset.validate(),
    "layout": dataset_layout,
    "figures": lambda dataset: dataset.stats.data_stats(),
    "compact": lambda dataset: dataset.optimize.compact_files(),
    "update": lambda dataset: dataset.update({"a": "a + 1"}),
    "delete": lambda dataset: dataset.delete("a = 3"),
    "merge": lambda dataset: dataset.merge_insert("a").when_matched_delete().execute(ROWS),
    "add columns": lambda dataset: dataset.add_columns({"c": "a + 1"}),
    "alter columns": lambda dataset: dataset.alter_columns({"path": "a", "data_type": pa.int32()}),
    "deep clone": lambda dataset: dataset.deep_clone(f"memory://{uuid4().hex}/c"),
    "write there": lambda dataset: glaive.write_dataset(
        ROWS, dataset, mode="append", target_all_bases=True
    ),
}


def strange_places(stranger: Stranger, tmp_path: Path) -> dict[str, str]:
    """Base paths that no caller named."""
    return {
        "web server": f"{stranger.url}/d",
        "fsspec": f"elsewhere://joe@{tmp_path}/other",
        "hdfs": f"webhdfs://{stranger.url.removeprefix('http://')}/d",
        "chained": f"simplecache::{stranger.url}/d",
        "directory": str(tmp_path / "other"),
        "directory as fsspec calls it": f"fsspec+file://{tmp_path}/other",
        "home": "~/.ssh",
        "bucket": "s3://bucket/d",
        "with a password": f"http://joe:hidden@{stranger.url.removeprefix('http://')}/d",
        "whole disk": "file:///",
    }


STRANGE = {
    "memory": ["web server", "fsspec", "hdfs", "chained", "directory",
               "directory as fsspec calls it", "home", "bucket"],
    "directory": ["web server", "fsspec", "hdfs", "chained", "bucket", "with a password",
                  "whole disk"],
}  # fmt: skip


@pytest.mark.sampled(every=4)
@pytest.mark.spec("rel-26", "rel-45", "sec-2")
@pytest.mark.parametrize(
    ("kind", "place"), [(kind, place) for kind, places in STRANGE.items() for place in places]
)
def test_a_base_path_that_nobody_allowed_is_left_alone(
    kind: str,
    place: str,
    root: dict[str, str],
    stranger: Stranger,
    tmp_path: Path,
    opened: list[Mapping[str, Any]],
) -> None:
    base = strange_places(stranger, tmp_path)[place]
    below_base(root[kind], base, ROWS)
    for name, use in WITHOUT_FILES.items():
        dataset = glaive.dataset(root[kind], version=3, storage_options=SECRETS)
        assert use(dataset) is not None or name in ("tags", "append", "restore")
    for name, use in WITH_FILES.items():
        dataset = glaive.dataset(root[kind], version=3, storage_options=SECRETS)
        with pytest.raises((AccessError, OptionError), match="base path 7 of ") as refused:
            use(dataset)
        assert "hidden" not in str(refused.value), name
    assert stranger.asked == []
    assert opened == []


def test_a_base_path_that_the_caller_names_is_read_with_the_options_for_it(
    root: dict[str, str], tmp_path: Path, opened: list[Mapping[str, Any]]
) -> None:
    glaive.write_dataset(ROWS, tmp_path / "other")
    (file,) = (tmp_path / "other" / "data").iterdir()
    base = f"elsewhere://joe@{tmp_path}/other"
    below_base(root["memory"], base, ROWS, name=file.name)
    allowed = {base: {"token": "its own"}}
    dataset = glaive.dataset(root["memory"], storage_options=SECRETS, base_store_params=allowed)
    assert dataset.to_table()["a"].to_pylist() == [*range(10)] * 2
    assert dataset.take([15])["b"].to_pylist() == ["row 5"]
    dataset.validate()
    assert {str(one) for one in opened} == {"{'token': 'its own'}"}
    for more in (dataset.checkout_version(3), dataset.create_branch("dev")):
        assert more.count_rows("a >= 5") == 10
    with pytest.raises(AccessError):
        glaive.dataset(root["memory"], version=3, storage_options=SECRETS).to_table()


def test_a_directory_that_the_caller_names_is_read_from_a_bucket(
    root: dict[str, str], tmp_path: Path
) -> None:
    glaive.write_dataset(ROWS, tmp_path / "other")
    (file,) = (tmp_path / "other" / "data").iterdir()
    below_base(root["memory"], (tmp_path / "other").as_uri(), ROWS, name=file.name)
    for name in (tmp_path / "other", tmp_path, (tmp_path / "other").as_uri()):
        params: dict[str, dict[str, str]] = {str(name): {}}
        opened = glaive.dataset(root["memory"], base_store_params=params)
        assert opened.count_rows("a < 5") == 10
    with pytest.raises(AccessError):
        glaive.dataset(root["memory"], base_store_params={str(tmp_path / "oth"): {}}).to_table()


def test_the_names_of_base_paths_travel_with_the_dataset(tmp_path: Path) -> None:
    name = uuid4().hex
    glaive.write_dataset(ROWS, f"memory://{name}/other")
    glaive.write_dataset(ROWS, tmp_path / "d")
    written = glaive.write_dataset(
        ROWS, tmp_path / "d", mode="append", base_store_params={f"memory://{name}": {}}
    )
    base = glaive.DatasetBasePath(f"memory://{name}/other", "far", is_dataset_root=True)
    written.add_bases([base])
    params = {f"memory://{name}": {"timeout": "5s"}}
    more = glaive.write_dataset(
        ROWS, tmp_path / "d", mode="append", target_bases=["far"], base_store_params=params
    )
    again = pickle.loads(pickle.dumps(more))
    fragment = pickle.loads(pickle.dumps(more.get_fragments()[2]))
    assert (more.count_rows("a = 3"), again.count_rows("a = 3")) == (3, 3)
    assert fragment.to_table()["a"].to_pylist() == [*range(10)]
    with pytest.raises(AccessError):
        glaive.dataset(tmp_path / "d").to_table()


def test_who_makes_base_paths_allows_them(tmp_path: Path) -> None:
    far = f"memory://{uuid4().hex}/far"
    base = glaive.DatasetBasePath(far, "far", is_dataset_root=True)
    made = glaive.write_dataset(ROWS, tmp_path / "d", initial_bases=[base], target_bases=["far"])
    assert made.to_table() == ROWS
    with pytest.raises(AccessError):
        glaive.dataset(tmp_path / "d").to_table()
    later = glaive.write_dataset(ROWS, tmp_path / "e").add_bases([base])
    later.insert(ROWS, target_bases=["far"])
    assert later.count_rows("a = 1") == 2


def test_a_clone_leads_to_what_it_was_made_of(tmp_path: Path) -> None:
    source = glaive.write_dataset(ROWS, f"memory://{uuid4().hex}/d", storage_options=SECRETS)
    clone = source.shallow_clone(str(tmp_path / "clone"))
    assert clone.to_table() == ROWS
    with pytest.raises(AccessError):
        glaive.dataset(tmp_path / "clone").to_table()
    assert glaive.dataset(tmp_path / "clone", base_store_params={source.uri: {}}).to_table() == ROWS
    assert b"hidden" not in contents_of(tmp_path / "clone")


def test_passwords_in_a_uri_reach_its_host_and_no_message_or_file(
    tmp_path: Path, opened: list[Mapping[str, Any]]
) -> None:
    place = f"fsspec+elsewhere://joe:hi@dden@{tmp_path}/d"
    dataset = glaive.write_dataset(ROWS, place)
    branch = dataset.create_branch("dev")
    assert branch.to_table() == ROWS
    branch.insert(ROWS)
    assert glaive.dataset(place, version=("dev", None)).count_rows() == 20
    clone = dataset.shallow_clone(str(tmp_path / "clone"))
    assert clone.to_table() == ROWS
    for text in (repr(dataset), repr(branch), branch.uri, repr(dataset.store), dataset.store.uri):
        assert "dden" not in text
    with pytest.raises(glaive.GlaiveError) as failed:
        dataset.checkout_version(99)
    assert "dden" not in str(failed.value)
    assert b"dden" not in contents_of(tmp_path / "d")
    assert b"dden" not in contents_of(tmp_path / "clone")
    assert pickle.loads(pickle.dumps(branch)).count_rows() == 20
    assert opened


def test_a_password_is_not_kept_for_places_that_take_none(tmp_path: Path, caplog: Any) -> None:
    name = uuid4().hex
    dataset = glaive.write_dataset(ROWS, f"memory://joe:hidden@{name}/d")
    assert glaive.dataset(f"memory://{name}/d").to_table() == ROWS
    dataset.shallow_clone(str(tmp_path / "clone"))
    assert "hidden" not in dataset.store.uri + repr(dataset) + caplog.text
    assert b"hidden" not in contents_of(tmp_path / "clone")


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize(
    "text",
    [
        "cannot read https://joe:hidden@host/x: no",
        "cannot read https://joe:hid@den@host/x: no",
        "cannot read https://hiddentoken@host/x: no",
        "'sftp://joe:hidden@host/x', 'sftp://joe:hidden@host/y'",
    ],
)
def test_messages_have_no_passwords(text: str) -> None:
    shown = str(glaive.GlaiveError(text))
    assert "hidden" not in shown
    assert "den@" not in shown
    assert "host/x" in shown


def test_a_blob_sent_elsewhere_takes_along_no_options_of_other_places(tmp_path: Path) -> None:
    table = pa.table([glaive.blob_array([b"value"])], schema=pa.schema([glaive.blob_field("b")]))
    glaive.write_dataset(table, tmp_path / "d")
    params = {"s3://bucket": {"aws_secret_access_key": "hidden"}}
    dataset = glaive.dataset(tmp_path / "d", base_store_params=params)
    (file,) = dataset.take_blobs("b", indices=[0])
    sent = pickle.dumps(file)
    assert b"hidden" not in sent
    assert pickle.loads(sent).read() == b"value"
    assert b"hidden" in pickle.dumps(dataset)  # workers open what it leads to


def test_tasks_and_fragments_in_text_have_no_options(tmp_path: Path) -> None:
    from glaive.optimize import Compaction

    for mode in ("create", "append"):
        glaive.write_dataset(ROWS, tmp_path / "d", mode=mode)
    dataset = glaive.dataset(
        tmp_path / "d", storage_options=SECRETS, base_store_params={"s3://b": SECRETS}
    )
    plan = Compaction.plan(dataset, {})
    (task,) = plan.tasks
    done = task.execute(dataset)
    for sent in (task, done, plan, dataset.get_fragments()[0].metadata):
        assert b"hidden" not in pickle.dumps(sent)
    assert "hidden" not in plan.json() + task.json() + done.json()


@pytest.mark.spec("rel-26", "rel-45")
@pytest.mark.parametrize(
    "name", ["../../../etc/passwd", "/etc/passwd", "a/../../b.lance", "a\\b.lance", "a\nb.lance",
             "a\0b.lance", "./a.lance", "a//b.lance"],
)  # fmt: skip
@pytest.mark.parametrize("is_root", [True, False])
def test_a_name_of_a_data_file_does_not_lead_out_of_its_base(
    name: str, is_root: bool, tmp_path: Path
) -> None:
    below_base(tmp_path / "d", str(tmp_path / "other"), ROWS, name=name, is_root=is_root)
    for use in ("scan", "take", "validate", "compact", "deep clone"):
        with pytest.raises(CorruptFileError, match="path of a data file: expected a path below"):
            WITH_FILES[use](glaive.dataset(tmp_path / "d"))


@pytest.mark.spec("rel-26", "rel-46", "sec-3")
@pytest.mark.parametrize("is_root", [True, False])
def test_below_a_base_path_only_files_named_as_data_files_are_opened(
    is_root: bool, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    below_base(tmp_path / "d", str(home), ROWS, name="id_rsa.lance", is_root=is_root)
    (home / "data").mkdir(parents=True)
    (data,) = (tmp_path / "d" / "data").iterdir()
    place = home / "data" if is_root else home
    (place / "id_rsa.lance").write_bytes(data.read_bytes())
    assert glaive.dataset(tmp_path / "d").count_rows("a = 3") == 2
    below_base(tmp_path / "e", str(home), ROWS, name="id_rsa", is_root=is_root)
    (place / "id_rsa").write_bytes(data.read_bytes())
    for use in ("scan", "take", "validate", "compact"):
        with pytest.raises(CorruptFileError, match=r"expected a name that ends in \.lance, found"):
            WITH_FILES[use](glaive.dataset(tmp_path / "e"))
