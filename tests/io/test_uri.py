"""Where a URI leads."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive import DatasetBasePath
from glaive.errors import OptionError, StoreError
from glaive.io.access import open_object, open_store
from glaive.io.local import LocalStore
from glaive.io.wrapped import WrappedStore


def test_paths_and_file_uris_are_the_same_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = LocalStore(tmp_path / "a b")
    assert open_store(tmp_path / "a b") == expected
    assert open_store(str(tmp_path / "a b")) == expected
    assert open_store("a b") == expected
    assert open_store(f"file://{tmp_path}/a%20b") == expected
    assert open_store(f"file:{tmp_path}/a%20b") == expected
    assert open_store(f"file://localhost{tmp_path}/a%20b") == expected


@pytest.mark.spec("sec-20")
@pytest.mark.parametrize("scheme", ["local", "fsspec+file", "fsspec+local", "FSSPEC+File"])
def test_what_fsspec_calls_files_of_this_machine_are_no_files_of_fsspec(
    tmp_path: Path, scheme: str
) -> None:
    """As they are written: to fsspec no character of a name stands for another one."""
    folder = tmp_path / "a b%20c?d#e::f"
    store = open_store(f"{scheme}://{folder}")
    assert store == LocalStore(folder)
    assert store.uri == str(folder)
    assert open_store(f"{scheme}:{folder}") == store
    assert open_object(f"{scheme}://{folder}/g%2Fh#i") == (store, "g%2Fh#i")
    dataset = glaive.write_dataset(pa.table({"id": [1]}), f"{scheme}://{folder}")
    assert (dataset.uri, glaive.dataset(folder).count_rows()) == (f"{scheme}://{folder}", 1)


def test_an_object_has_the_name_that_its_uri_says(tmp_path: Path) -> None:
    expected = LocalStore(tmp_path), "a b"
    for start in ("file:", "file://", "file-object-store://", "FILE://localhost"):
        assert open_object(f"{start}{tmp_path}/a%20b") == expected
    assert open_object("file:///a") == open_object("local:///a") == (LocalStore("/"), "a")
    with pytest.raises(OptionError, match="names a directory"):
        open_object("file://")


@pytest.mark.spec("sec-20")
@pytest.mark.parametrize(
    "chain",
    ["simplecache::file://{}", "filecache::local://{}", "blockcache::file://{}", "dir::file://{}",
     "dir://t::file://{}", "async_wrapper::file://{}", "simplecache::dir::file://{}",
     f"{'dir::' * 20}file://{{}}", "ofthismachine://{}", "simplecache::ofthismachine://{}"],
)  # fmt: skip
def test_fsspec_opens_no_files_of_this_machine(tmp_path: Path, chain: str) -> None:
    """Only one store keeps to a directory among links, pipes and devices."""
    fsspec = pytest.importorskip("fsspec")
    local = fsspec.get_filesystem_class("file")
    name = "ofthismachine"
    fsspec.register_implementation(name, type("Local", (local,), {"protocol": name}), clobber=True)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x").write_bytes(b"1")
    with pytest.raises(OptionError, match=r"leads to files of this machine.* Give their path"):
        open_store(f"fsspec+{chain.format(tmp_path)}")


@pytest.mark.spec("sec-20")
def test_references_lead_to_no_files_of_this_machine(tmp_path: Path) -> None:
    """Who made the file of references would choose which."""
    fsspec = pytest.importorskip("fsspec")
    (tmp_path / "secret").write_bytes(b"secret")
    fsspec.filesystem("memory").pipe_file("/referred", b"referred")
    references = {"path": f"{tmp_path}/secret", "uri": f"file://{tmp_path}/secret"}
    options = {"fo": f"{tmp_path}/references", "remote_protocol": "memory"}
    entries = {f"t/{name}": [target] for name, target in references.items()}
    entries["t/other"] = ["memory://referred"]
    (tmp_path / "references").write_text(json.dumps({"version": 1, "refs": entries}))
    for local in ("file", "local", "generic"):
        with pytest.raises(OptionError, match="leads to files of this machine"):
            open_store("fsspec+reference://t", options | {"remote_protocol": local})
    store = open_store("fsspec+reference://t", options)
    assert store.get("other").to_pybytes() == b"referred"
    for name in references:
        with pytest.raises(StoreError):
            store.get(name)


@pytest.mark.spec("sec-20")
@pytest.mark.parametrize("target", ["generic://any", "hdfs://127.0.0.1:1/any", "data:,any"])
def test_references_do_not_choose_what_is_opened_for_them(tmp_path: Path, target: str) -> None:
    """A generic file system takes names for what they are: paths of this machine, too."""
    pytest.importorskip("fsspec")
    (tmp_path / "secret").write_bytes(b"secret")
    entries = {"t/any": [target], "t/path": [f"{tmp_path}/secret"]}
    (tmp_path / "references").write_text(json.dumps(entries))
    for uri in ("reference://t", "dir://t::reference://", "simplecache::reference://t"):
        for chain, options in ((uri, {"fo": "references"}), (f"{uri}::{tmp_path}/references", {})):
            with pytest.raises(OptionError, match=r"leads where a file of references says\. Name"):
                open_store(f"fsspec+{chain}", options)


def test_an_archive_on_this_machine_has_names_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("t/x", b"1")
    for place in (
        "zip://t::{}/t.zip",
        "zip://t::file://{}/t.zip",
        "simplecache::zip://t::{}/t.zip",
    ):
        assert open_store(f"fsspec+{place.format(tmp_path)}").get("x").to_pybytes() == b"1"


@pytest.mark.parametrize(
    ("uri", "in_order"),
    [
        ("s3://bucket/t", True),
        ("s3://bucket--use1-az4--x-s3/t", False),
        ("s3://point--use1-az4--xa-s3/t", False),
        ("gs://bucket--x-s3/t", True),
        ("memory://bucket/t", True),
    ],
)
def test_only_directory_buckets_of_s3_list_in_no_order(uri: str, *, in_order: bool) -> None:
    store = open_store(uri)
    assert store.lists_in_order == in_order
    assert WrappedStore(store).lists_in_order == in_order


def test_a_tilde_is_the_home_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/t") == LocalStore(f"{tmp_path}/t")


def test_a_store_remembers_an_absolute_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("t")
    os.chdir("/")
    assert store.uri == str(tmp_path / "t")


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3a://bucket/a", "s3://bucket/a"),
        ("memory://m/a", "memory://m/a"),
        ("http://host:8080/a", "http://host:8080/a"),
    ],
)
def test_object_stores_are_rooted_at_the_prefix(uri: str, shown: str) -> None:
    store = open_store(uri)
    assert store.uri == shown
    assert store.full("x/y") == f"{shown}/x/y"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("", "the URI is empty"),
        ("dbfs:/t", "expected two slashes .* below /dbfs/t"),
        ("s3:/bucket/t", r"expected two slashes after the scheme, s3://bucket/t\."),
        ("nowhere://node/t", r"scheme 'nowhere'\. Use .* s3"),
        ("s3://", "no bucket or name"),
        ("file://host/t", "cannot name another machine"),
        ("file://[host/t", "is not a file URI: Invalid IPv6 URL"),
        ("a\0b", "null character"),
        ("file:///a%00b", "null character"),
        ("local:///a\0b", "null character"),
        (
            "local://a/b",
            r"expected an absolute path after local://, .* is written without local://",
        ),
        ("local://joe:hidden@a/b", r"^'local://joe:\*\*\*@a/b': expected .* without local://$"),
        ("fsspec+file://localhost/a", "expected an absolute path after fsspec"),
        ("local://", "expected an absolute path"),
        ("a\ud800", "the character at 1 is half of a surrogate pair"),
    ],
)
def test_a_place_that_cannot_be_is_refused(uri: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        open_store(uri)


def test_an_unknown_storage_option_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert open_store("s3://b/t", {"aws_regoin": "x"}).uri == "s3://b/t"
    assert "'aws_regoin' has no effect; did you mean 'aws_region'" in caplog.text


def test_options_of_other_kinds_of_store_are_left_out_silently(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {"google_service_account_key": "none", "azure_storage_account_name": "a"}
    open_store("s3://b/t", options)
    open_store("memory://b/t", options)
    assert caplog.text == ""


def test_client_options_are_told_from_store_options() -> None:
    options = {"timeout": "1s", "client_max_retries": "1", "aws_region": "nowhere"}
    assert open_store("s3://b/t", options).uri == "s3://b/t"


def test_an_unreachable_store_is_a_store_error() -> None:
    store = open_store("http://127.0.0.1:1/t", {"client_max_retries": "0"})
    with pytest.raises(StoreError, match=r"http://127.0.0.1:1/t/x: .*[Cc]heck storage_options"):
        store.get("x")


@pytest.mark.parametrize("uri", ["memory://", "memory:///"])
def test_memory_without_a_name_is_a_place_of_its_own_each_time(uri: str) -> None:
    first, second = open_store(uri), open_store(uri)
    first.put("a", [b"1"])
    assert first.uri != second.uri
    assert [entry.path for entry in second.walk("")] == []
    assert bytes(open_store(first.uri).get("a")) == b"1"


def test_a_dataset_in_memory_without_a_name_can_be_opened_again() -> None:
    first = glaive.write_dataset(pa.table({"a": [1]}), "memory://")
    second = glaive.write_dataset(pa.table({"a": [2]}), "memory://")
    assert glaive.dataset(first.uri).to_table()["a"].to_pylist() == [1]
    assert glaive.dataset(second.uri).to_table()["a"].to_pylist() == [2]


@pytest.mark.skipif(os.name == "nt", reason="Windows removes no working directory")
@pytest.mark.spec("rel-42")
def test_a_relative_place_without_a_working_directory_is_an_option_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, removed = tmp_path / "d", tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(tmp_path)
    glaive.write_dataset(
        {"a": [1]}, place, initial_bases=[DatasetBasePath("b", "b")], target_bases=["b"]
    )
    dataset = glaive.dataset(place)
    monkeypatch.chdir(removed)
    removed.rmdir()
    for use in (lambda: glaive.dataset("d"), dataset.to_table):
        with pytest.raises(OptionError, match="is relative, and the working directory cannot be"):
            use()
    monkeypatch.chdir(tmp_path)
    assert dataset.to_table()["a"].to_pylist() == [1]
