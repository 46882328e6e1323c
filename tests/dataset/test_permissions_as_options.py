"""Permissions to read elsewhere as storage options, which all who open a dataset have."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import fsspec
import lance_namespace as interface
import pyarrow as pa
import pytest
from click.testing import CliRunner
from fsspec.implementations.memory import MemoryFileSystem
from tests.namespace.calls import call
from tests.strangers import CONTENT, blob_in

import glaive
from glaive.cli.main import cli
from glaive.dataset.dataset import LanceDataset
from glaive.errors import AccessError, OptionError, StoreError
from glaive.io.access import open_store
from glaive.namespace import connect
from glaive.pipeline import load
from glaive.pipeline.run import dataset_facts
from glaive.table.root import access_of


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """The folder of the only blob of ``place``."""
    return tmp_path / "far"


@pytest.fixture
def place(tmp_path: Path, far: Path) -> str:
    where = str(tmp_path / "d.lance")
    blob_in(far, where)
    return where


@pytest.fixture
def clone(tmp_path: Path) -> tuple[str, str]:
    """A clone whose data files are in another kind of store, and where that is."""
    source = f"memory://{uuid4().hex}"
    where = str(tmp_path / "clone.lance")
    glaive.write_dataset({"id": [1, 2]}, f"{source}/t").shallow_clone(where)
    return where, source


def value(dataset: LanceDataset) -> bytes:
    ((_, found),) = dataset.read_blobs("b", indices=[0])
    return found


def test_a_storage_option_allows_what_the_argument_of_the_same_name_does(
    place: str, far: Path
) -> None:
    with pytest.raises(AccessError, match="Spark take it as a storage option"):
        value(glaive.dataset(place))
    given: list[Any] = [True, "true", "1", str(far), far.as_uri(), [str(far)], f'["{far}"]']
    for allowed in given:
        dataset = glaive.dataset(place, storage_options={"Allow_External_Blobs": allowed})
        assert value(pickle.loads(pickle.dumps(dataset))) == CONTENT
    for refused in (False, "false", f"{far}/b", [f"{far}/b"]):
        with pytest.raises(AccessError):
            value(glaive.dataset(place, storage_options={"allow_external_blobs": refused}))


def test_an_argument_has_priority_over_the_storage_option(place: str, far: Path) -> None:
    everywhere: Any = {"allow_external_blobs": True}
    with pytest.raises(AccessError):
        value(glaive.dataset(place, storage_options=everywhere, allow_external_blobs=False))
    nowhere: Any = {"allow_external_blobs": False}
    opened = glaive.dataset(place, storage_options=nowhere, allow_external_blobs=[str(far)])
    assert value(opened) == CONTENT
    # Permissions of one kind do not take away those of the other.
    bases: Any = {str(far): {}}
    assert (
        value(glaive.dataset(place, storage_options=everywhere, base_store_params=bases)) == CONTENT
    )


def test_rows_that_are_written_do_not_widen_what_the_option_allows(place: str) -> None:
    schema = glaive.dataset(place).schema
    told: Any = {"allow_external_blobs": False}
    rows = pa.table(
        [pa.array([2]), glaive.blob_array([Path(place, "../far/a.bin").resolve().as_uri()])],
        schema=pa.schema([pa.field("id", pa.int64()), glaive.blob_field("b")]),
    )
    options: Any = {"allow_external_blob_outside_bases": True, "mode": "overwrite"}
    with pytest.raises(AccessError):
        value(glaive.write_dataset(rows, place, storage_options=told, **options))
    assert value(glaive.write_dataset(rows, place, **options)) == CONTENT
    assert glaive.dataset(place).schema == schema


def test_base_paths_are_allowed_by_storage_options_too(clone: tuple[str, str]) -> None:
    where, source = clone
    with pytest.raises(AccessError, match=r"base_store_params=.*it as a storage option"):
        glaive.dataset(where).to_table()
    for given in ({source: {}}, json.dumps({source: {"checksums": "false"}})):
        options: Any = {"base_store_params": given}
        assert glaive.dataset(where, storage_options=options).to_table().num_rows == 2


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("allow_external_blobs", "ture", "expected true, false, a place such as"),
        ("allow_external_blobs", "[", "allow_external_blobs: not JSON"),
        ("allow_external_blobs", "[7]", "expected True, False, or a list of locations"),
        ("allow_external_blobs", [b"MARKED"], "allow_external_blobs: expected strings"),
        ("base_store_params", "[" * 100_000, "base_store_params: not JSON"),
        ("base_store_params", '{"s3://b": {"token": "MARKED"', "base_store_params: not JSON"),
        ("base_store_params", '{"s3://b": "MARKED"}', "expected a path or URI and a mapping"),
        ("base_store_params", {"s3://b": {"k": b"MARKED"}}, "base_store_params: expected strings"),
        ("aws_region", ["eu"], "expected a string for 'aws_region'"),
    ],
)
def test_an_option_that_allows_nothing_is_refused_without_showing_it(
    place: str, name: str, given: Any, message: str
) -> None:
    with pytest.raises(OptionError, match=message) as refused:
        glaive.dataset(place, storage_options={name: given})
    assert "MARKED" not in str(refused.value)


def test_no_store_and_no_file_system_is_given_the_permissions(tmp_path: Path) -> None:
    permissions = {"allow_external_blobs": "true", "base_store_params": '{"s3://b": {"k": "v"}}'}
    given = {**permissions, "own": "1"}
    for uri in (str(tmp_path), "s3://bucket/x", "memory://x"):
        assert open_store(uri, given).options == {"own": "1"}
    fsspec.register_implementation("told", _Told, clobber=True)
    open_store("fsspec+told://x", given)
    assert _Told.options == [{"own": "1"}]


class _Told(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system that says with what it was opened."""

    protocol = "told"
    cachable = False
    options: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, **options: Any) -> None:
        self.options.append(options)
        super().__init__()


def test_a_catalogue_gives_no_permissions(tmp_path: Path) -> None:
    properties = {
        "root": str(tmp_path),
        "vend_input_storage_options": "true",
        "storage.allow_external_blobs": "true",
        "storage.k": "v",
    }
    catalogue = connect("dir", properties)
    glaive.write_dataset({"a": [1]}, namespace_client=catalogue, table_id=["t"])
    assert call(catalogue, "describe_table", ["t"]).storage_options == {"k": "v"}
    answer = {"location": str(tmp_path / "t.lance"), "storage_options": {}}
    client: Any = _Client(answer)
    assert access_of(glaive.dataset(namespace_client=client, table_id=["t"]).store).external is None
    no_class = '{"impl": "no.Such", "properties": {}, "table": []}'
    given = {
        "allow_external_blobs": "true",
        "Base_Store_Params": "true",
        "Manifest_Store": no_class,
    }
    for name, text in given.items():
        answer["storage_options"] = {name: text}
        with pytest.raises(StoreError, match=f"'{name}', which only who opens the table may give"):
            glaive.dataset(namespace_client=client, table_id=["t"])


class _Client:
    """A catalogue of somebody else."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer

    def describe_table(self, _: interface.DescribeTableRequest) -> dict[str, Any]:
        return self.answer


@pytest.mark.parametrize(
    "command",
    [
        ["take", "CLONE", "1"],
        ["head", "CLONE"],
        ["scan", "CLONE"],
        ["verify", "CLONE"],
        ["inspect", "CLONE"],
        ["adviser", "CLONE"],
        ["convert", "CLONE", "OUT.parquet"],
        ["index", "CLONE", "--column", "id"],
        ["ingest", "ROWS.csv", "CLONE", "--mode", "merge", "--merge-keys", "id"],
    ],
    ids=lambda command: command[0],
)
def test_commands_read_elsewhere_where_a_storage_option_says_so(
    clone: tuple[str, str], tmp_path: Path, command: list[str]
) -> None:
    where, source = clone
    (tmp_path / "rows.csv").write_text("id\n2\n3\n")
    places = {"CLONE": where, "OUT.parquet": f"{tmp_path}/o.parquet"}
    places["ROWS.csv"] = str(tmp_path / "rows.csv")
    arguments = [places.get(one, one) for one in command]
    refused = CliRunner().invoke(cli, arguments)
    assert refused.exit_code == 1
    assert "base_store_params=" in refused.output
    allowed = f"base_store_params={json.dumps({source: {}})}"
    done = CliRunner().invoke(cli, [*arguments, "--storage-option", allowed])
    assert done.exit_code == 0, done.output


def test_the_file_of_a_pipeline_has_them_with_its_settings_of_stores(tmp_path: Path) -> None:
    text = """
[datasets]
d = "d.lance"
[storage]
allow_external_blobs = ["s3://media", "/srv/media"]
fsync = true
[steps.tidy]
kind = "vacuum"
target = "d"
"""
    file = tmp_path / "p.toml"
    file.write_text(text)
    storage = load(file).storage
    assert storage == {"allow_external_blobs": '["s3://media", "/srv/media"]', "fsync": "true"}
    glaive.write_dataset({"a": [1]}, tmp_path / "d.lance")
    facts = dataset_facts(str(tmp_path / "d.lance"), storage)
    assert facts is not None
    assert facts["rows"] == 1
    file.write_text(text.replace("allow_external_blobs", "aws_region"))
    with pytest.raises(OptionError, match="storage_options: expected a string for 'aws_region'"):
        load(file)
