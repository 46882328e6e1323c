"""Which places a dataset may lead to, and with what options each is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tests.strangers import listening

from glaive.errors import AccessError, OptionError
from glaive.io.access import (
    DEFAULT_ACCESS,
    AccessPolicy,
    allow_copies,
    open_external,
    open_named,
    open_store,
)
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore

SECRET = {
    "aws_access_key_id": "id",
    "aws_secret_access_key": "hidden",
    "azure_storage_account_name": "acc",
    "azure_storage_token": "hidden",
}
S3 = {"aws_region": "r", "aws_access_key_id": "id", "aws_secret_access_key": "hidden"}


class Recorder(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system that says with what it was opened."""

    protocol = "recorder"
    cachable = False
    opened: ClassVar[list[Mapping[str, Any]]] = []

    def __init__(self, **options: Any) -> None:
        self.opened.append(options)
        super().__init__()


@pytest.fixture(autouse=True)
def opened() -> Iterator[list[Mapping[str, Any]]]:
    fsspec.register_implementation("recorder", Recorder, clobber=True)
    Recorder.opened.clear()
    yield Recorder.opened
    Recorder.opened.clear()


def policy(params: Mapping[str, Mapping[str, str]], external: object = None) -> AccessPolicy:
    parsed = AccessPolicy.of(params, external)
    assert parsed is not None
    return parsed


def options_of(store: ObjectStore) -> Mapping[str, str]:
    options: Mapping[str, str] = getattr(store, "options", {})
    return options


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("root", "base", "expected"),
    [
        ("s3://bucket/a", "s3://bucket/b", SECRET),
        ("s3://bucket/a", "s3a://bucket/b", SECRET),
        ("s3://bucket/a", "s3://other/a", {}),
        ("s3://bucket/a", "s3://other@bucket.evil/a", None),
        ("gs://bucket/a", "gs://other/a", {}),
        ("az://one/a", "az://two/a", SECRET),
        ("az://one/a", "abfss://one@acc.dfs.core.windows.net/a", SECRET),
        ("az://one/a", "abfss://one@bad.dfs.core.windows.net/a", {}),
        (
            "abfss://one@acc.dfs.core.windows.net/a",
            "abfss://two@ACC.dfs.core.windows.net/b",
            SECRET,
        ),
        ("abfss://one@acc.dfs.core.windows.net/a", "abfss://one@bad.dfs.core.windows.net/a", {}),
        (
            "abfss://one@acc.dfs.fabric.microsoft.com/a",
            "abfss://two@ACC.blob.fabric.microsoft.com/b",
            SECRET,
        ),
        (
            "abfss://one@acc.dfs.fabric.microsoft.com/a",
            "abfss://one@acc.dfs.core.windows.net/a",
            {},
        ),
        (
            "abfss://one@acc.dfs.core.windows.net/a",
            "abfss://one@acc.dfs.fabric.microsoft.com/a",
            {},
        ),
        ("az://one/a", "abfss://one@acc.dfs.fabric.microsoft.com/a", {}),
        ("http://host/a", "http://HOST:80/b", SECRET),
        ("http://host/a", "http://host:81/b", None),
        ("http://host/a", "https://host/b", None),
        ("http://host/a", "http://169.254.169.254/latest", None),
        ("http://host/a", "http://joe:pass@host/b", None),
        ("https://host/a", "http://host/a", None),
        ("/data/a", "/data/b", SECRET),
        ("/data/a", "file:///data/b", SECRET),
        ("/data/a", "local:///data/b", SECRET),
        ("fsspec+file:///data/a", "/data/b", SECRET),
        ("fsspec+file:///data/a", "local:///", None),
        ("/data/a", "simplecache::file:///data/a/b", None),
        ("s3://bucket/a", "local:///data/b", None),
        ("/data/a", "/", None),
        ("/data/a", "s3://bucket/a", None),
        ("/data/a", "webhdfs://host/a", None),
        ("/data/a", "recorder://host/a", None),
        ("s3://bucket/a", "/data/b", None),
        ("s3://bucket/a", "~/.ssh", None),
        ("s3://bucket/a", "memory://a/b", None),
        ("s3://bucket/a", "s3://bucket/../b", None),
        ("s3://bucket/a", "fsspec+s3://bucket/b", None),
        ("s3://bucket/a", "simplecache::s3://bucket/b", None),
        ("fsspec+recorder://host/a", "recorder://host/b", None),
        ("fsspec+recorder://host/a", "recorder://other/a", None),
        ("fsspec+recorder://host/a", "recorder://host/a/b", SECRET),
        ("fsspec+recorder://host/a/tree/dev", "recorder://host/a", SECRET),
        ("fsspec+recorder://host/a/b", "recorder://host/a", None),
    ],
)
def test_options_go_to_the_same_bucket_and_nowhere_else(
    root: str, base: str, expected: Mapping[str, str] | None, opened: list[Mapping[str, Any]]
) -> None:
    given = SECRET if "recorder" not in root else {"token": "hidden"}
    store = open_store(root, given)
    opened.clear()
    if expected is None:
        with pytest.raises(AccessError, match="base path 3") as refused:
            open_named(store, base, subject="base path 3")
        assert "hidden" not in str(refused.value)
        assert "pass@" not in str(refused.value)
        assert opened == []
        return
    base_store = open_named(store, base, subject="base path 3")
    assert options_of(base_store) == (given if expected == SECRET else {})
    assert set(map(str, opened)) <= {str(given)}


@pytest.mark.parametrize(
    "base", ["s3://other/a", "http://elsewhere/a", "recorder://host/a", "/data/b", "/data/b/c"]
)
def test_a_place_that_the_caller_names_is_opened_with_the_options_for_it(base: str) -> None:
    store = open_store("gs://bucket/a", {"google_storage_token": "hidden"})
    named = policy({"s3://other": {"aws_region": "x"}, "http://elsewhere": {"timeout": "5s"},
                    "recorder://host/a": {"name": "n"}, "/data/b": {"fsync": "true"}})  # fmt: skip
    opened = open_named(store, base, named, subject="base path 1")
    assert len(options_of(opened)) == 1
    assert "hidden" not in str(options_of(opened))


def test_of_several_places_that_were_named_the_nearest_counts() -> None:
    store = open_store("s3://bucket/a", SECRET)
    named = policy({"s3://other": {"aws_region": "a"}, "s3://other/x": {"aws_region": "b"}})
    for base, region in (("s3://other/y", "a"), ("s3://other/x/y", "b"), ("s3://other/xy", "a")):
        opened = open_named(store, base, named, subject="base path 1")
        assert options_of(opened) == {"aws_region": region}


def test_callers_may_name_what_lies_in_their_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    root = open_store("memory://somewhere/a")
    opened = open_named(root, f"{tmp_path}/data", policy({"~/data": {}}), subject="base path 1")
    assert opened == LocalStore(tmp_path / "data")
    with pytest.raises(AccessError):
        open_named(root, "~/data", policy({"~/data": {}}), subject="base path 1")


def test_the_bucket_of_the_root_may_have_options_of_its_own() -> None:
    named = policy({"s3://bucket/public": {"aws_skip_signature": "true"}})
    store = open_store("s3://bucket/a", SECRET)
    opened = open_named(store, "s3://bucket/public/x", named, subject="base path 1")
    assert options_of(opened) == {"aws_skip_signature": "true"}


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("allowed", "uri", "expected"),
    [
        (False, "file:///data/x.bin", None),
        (True, "file:///data/x.bin", {}),
        (["/data"], "file:///data/x.bin", {}),
        (["/data/x.bin"], "file:///data/x.bin", {}),
        (["/data/x.bin"], "file:///data/y.bin", None),
        (["/data"], "file:///data/../etc/passwd", None),
        (["/data"], "file:///data/%2e%2e/etc/passwd", None),
        ([], "file:///data/x.bin", None),
        (True, "s3://bucket/x.bin", S3),
        (True, "s3://other/x.bin", {}),
        (True, "gs://bucket/x.bin", {}),
        (True, "http://host/x.bin", {}),
        (True, "http://joe:pass@host/x.bin", None),
        (["s3://other/a"], "s3://other/a/x.bin", {}),
        (["s3://other/a"], "s3://other/b/x.bin", None),
        (True, "recorder://host/x.bin", None),
        (True, "simplecache::http://host/x.bin", None),
        (["recorder://host"], "recorder://host/x.bin", {}),
        (["recorder://host"], "recorder://host/x.bin::http://evil/y", None),
    ],
)
def test_values_that_lie_elsewhere_are_fetched_where_the_caller_allows_it(
    allowed: object, uri: str, expected: Mapping[str, str] | None, opened: list[Mapping[str, Any]]
) -> None:
    root = open_store("s3://bucket/a", S3)
    given = AccessPolicy.of(None, allowed)
    assert given is not None
    if expected is None:
        with pytest.raises(AccessError, match="column 'b'"):
            open_external(root, uri, given, subject="column 'b'")
        assert opened == []
        return
    store, path = open_external(root, uri, given, subject="column 'b'")
    assert options_of(store) == expected
    assert path == "x.bin"


def test_a_uri_without_an_object_is_refused(tmp_path: object) -> None:
    allowed = AccessPolicy(external=True)
    for uri in ("s3://bucket", "http://host/", "file:///"):
        with pytest.raises(OptionError, match="names no object"):
            open_external(LocalStore(f"{tmp_path}"), uri, allowed, subject="column 'b'")


def test_values_to_be_copied_come_from_anywhere_but_fsspec(opened: list[Mapping[str, Any]]) -> None:
    root = open_store("s3://bucket/a", SECRET)
    for uri in ("file:///data/x.bin", "s3://other/x.bin", "http://host/x.bin"):
        store, _ = open_external(root, uri, allow_copies(DEFAULT_ACCESS), subject="a URI")
        assert options_of(store) == {}
    with pytest.raises(AccessError, match=r"base_store_params=\{'fsspec\+recorder://host/x.bin'"):
        open_external(root, "recorder://host/x.bin", allow_copies(DEFAULT_ACCESS), subject="a URI")
    assert opened == []
    named = allow_copies(policy({"recorder://host": {"token": "its own"}}))
    open_external(root, "recorder://host/x.bin", named, subject="a URI")
    assert opened == [{"token": "its own"}]


@pytest.mark.parametrize(
    ("params", "external", "message"),
    [
        (["s3://b"], None, "base_store_params: expected storage options by base path"),
        ({"s3://b": "secret"}, None, "base_store_params: expected a path or URI and a mapping"),
        ({"": {}}, None, "base_store_params: expected a path or URI and a mapping"),
        ({"s3://b": {"a": b"secret"}}, None, "storage_options: expected a string for 'a'"),
        ({"s3://b/../c": {}}, None, "contains"),
        ({"s3:///c": {}}, None, "base_store_params: .*expected a bucket or host"),
        (None, "s3://b", "allow_external_blobs: expected True, False, or a list"),
        (None, 1, "allow_external_blobs: expected True, False, or a list"),
        (None, [5], "allow_external_blobs: expected True, False, or a list"),
        (None, ["s3://b/.."], "allow_external_blobs: .*contains"),
    ],
)
def test_options_that_name_no_places_are_refused(params: Any, external: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message) as refused:
        AccessPolicy.of(params, external)
    assert message.startswith("storage_options") or "secret" not in str(refused.value)


def test_a_caller_who_names_a_base_just_now_allows_it() -> None:
    name = uuid4().hex
    root = open_store(f"memory://{name}/a", {"timeout": "5s"})
    named = DEFAULT_ACCESS.naming(root, ["s3://bucket/x", f"memory://{name}/b"])
    assert len(named.given) == 2
    assert options_of(open_named(root, "s3://bucket/x/y", named, subject="base path 1")) == {}
    assert options_of(open_named(root, f"memory://{name}/b", named, subject="")) == {
        "timeout": "5s"
    }


@pytest.mark.spec("rel-26")
def test_options_for_fabric_go_to_no_storage_account_of_the_same_name() -> None:
    store = open_store("az://one/a", SECRET | {"azure_use_fabric_endpoint": "true"})
    fabric = open_named(store, "abfss://two@acc.dfs.fabric.microsoft.com/b", subject="base path 3")
    storage = open_named(store, "abfss://two@acc.dfs.core.windows.net/b", subject="base path 3")
    assert (options_of(fabric), options_of(storage)) == (options_of(store), {})


@pytest.mark.spec("rel-26")
@pytest.mark.parametrize("bucket", ["..", "."])
def test_no_bucket_leads_out_of_the_address_of_the_store(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signed requests would go to what else answers on that server."""
    with listening() as stranger:
        for name, text in (("ENDPOINT", f"{stranger.url}/tenant"), ("ALLOW_HTTP", "true")):
            monkeypatch.setenv(f"AWS_{name}", text)
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
            monkeypatch.setenv(f"AWS_{name}", "of the environment")
        root = open_store("s3://own/d")
        open_named(root, "s3://other/x", subject="base path 1").get("x")
        assert stranger.asked.pop().startswith("GET /tenant/other/x/x ")
        with pytest.raises(OptionError, match=r"base path 1: .* expected a bucket or host"):
            open_named(root, f"s3://{bucket}/other/x", subject="base path 1")
        assert stranger.asked == []


@pytest.mark.spec("rel-26")
@pytest.mark.parametrize(
    "place", ["//evil/share/d", "file:////evil/share/d", "//?/UNC/evil/share/d", "//./pipe/d"]
)
def test_on_windows_no_base_path_is_on_another_machine(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr("os.sep", "\\")
    for home in ("/data/d", "//good/share/d"):
        with pytest.raises(AccessError, match=r"on another server .*base_store_params=\{'//"):
            open_named(LocalStore(home), place, subject="base path 1")
        named = policy({place: {}})
        assert open_named(LocalStore(home), place, named, subject="base path 1").is_local
    opened = open_named(LocalStore("//evil/share/e"), "/data/d", subject="base path 1")
    assert opened.uri == "/data/d"


def test_on_windows_a_dataset_on_a_share_has_base_paths_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sep", "\\")
    opened = open_named(LocalStore("//good/share/d"), "//GOOD/share/e", subject="base path 1")
    assert opened.uri == "//GOOD/share/e"


def test_elsewhere_a_second_slash_at_the_start_leads_to_no_other_machine() -> None:
    assert open_named(LocalStore("/data/d"), "//data/e", subject="base path 1").is_local
