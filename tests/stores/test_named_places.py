"""Buckets and servers that a dataset names: who is asked, and with whose credentials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.strangers import CONTENT, Stranger, listening

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import AccessError, StoreError
from glaive.io.access import open_store

from .server import Server

ROWS = pa.table({"a": range(100)})


@pytest.fixture
def two() -> Iterator[tuple[Stranger, Stranger]]:
    with listening() as home, listening() as elsewhere:
        yield home, elsewhere


def leading_to(server: Server, root: str, base: str, options: Mapping[str, str]) -> None:
    """A dataset at ``root`` with a fragment that lies in a dataset at ``base``."""
    source = glaive.write_dataset(ROWS, base, storage_options=server.options)
    glaive.write_dataset(ROWS, root, storage_options=options)
    given = glaive.DatasetBasePath(base, is_dataset_root=True, id=7)
    glaive.dataset(root, storage_options=options).add_bases([given])
    fragment = source.get_fragments()[0].metadata
    fragment = replace(
        fragment, files=[replace(data_file, base_id=7) for data_file in fragment.files]
    )
    LanceDataset.commit(
        root, glaive.LanceOperation.Append([fragment]), read_version=2, storage_options=options
    )
    server.reset()


def test_a_base_in_the_same_bucket_is_opened_with_the_options_of_the_root(server: Server) -> None:
    bucket = server.bucket()
    root, base = f"s3://{bucket}/root", f"s3a://{bucket}/base"
    leading_to(server, root, base, server.options)
    assert glaive.dataset(root, storage_options=server.options).count_rows("a = 5") == 2


@pytest.mark.spec("sec-4")
def test_a_base_in_another_bucket_gets_no_options_but_its_own(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, base = f"s3://{server.bucket()}/root", f"s3://{server.bucket()}/base"
    leading_to(server, root, base, server.options)
    dataset = glaive.dataset(
        root, storage_options=server.options, base_store_params={base: server.options}
    )
    assert dataset.count_rows("a = 5") == 2
    # Without, it is opened as the environment says: here with other credentials.
    for key, value in (server.options | {"aws_access_key_id": "fromenvironment"}).items():
        monkeypatch.setenv(f"AWS_{key.removeprefix('aws_').upper()}", value)
    before = len(server.calls)
    assert glaive.dataset(root, storage_options=server.options).count_rows("a = 5") == 2
    assert any(base.removeprefix("s3:/") in call.path for call in server.calls[before:])


@pytest.mark.spec("rel-26")
def test_files_that_a_session_keeps_are_for_those_who_reach_them_in_the_same_way(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, base = f"s3://{server.bucket()}/root", f"s3://{server.bucket()}/base"
    leading_to(server, root, base, server.options)
    options = server.options | {"client_max_retries": "0", "download_retry_count": "0"}
    session = glaive.Session()
    assert glaive.dataset(base, storage_options=options, session=session).to_table() == ROWS
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    server.reset()
    stranger = glaive.dataset(root, storage_options=options, session=session)
    with pytest.raises(StoreError, match="/base/data/"):
        stranger.to_table()
    assert not any(base.removeprefix("s3:/") in call.path for call in server.calls)


def test_an_index_and_deleted_rows_that_a_session_keeps_are_those_of_one_server(
    server: Server,
) -> None:
    uri = f"s3://{server.bucket()}/t"
    dataset = glaive.write_dataset(ROWS, uri, storage_options=server.options)
    dataset.create_scalar_index("a", "BTREE")
    dataset.delete("a = 3")
    session = glaive.Session()

    def requests_of(**more: str) -> list[str]:
        options = server.options | more
        opened = glaive.dataset(uri, storage_options=options, session=session)
        server.reset()
        assert opened.to_table(filter="a = 5").num_rows == 1
        return [call.path for call in server.calls]

    first = requests_of()
    assert any("/_indices/" in path for path in first)
    assert any("/_deletions/" in path for path in first)
    assert len(requests_of()) < len(first)
    assert sorted(requests_of(aws_access_key_id="another")) == sorted(first)


def test_a_bucket_that_a_directory_names_is_opened_when_the_caller_names_it(
    server: Server, tmp_path: Path
) -> None:
    root, base = str(tmp_path / "d"), f"s3://{server.bucket()}/base"
    leading_to(server, root, base, server.options)
    with pytest.raises(AccessError, match=r"base path 7 of .* is 's3://"):
        glaive.dataset(root, storage_options=server.options).to_table()
    assert server.calls == []
    dataset = glaive.dataset(root, base_store_params={base: server.options})
    assert dataset.count_rows("a = 5") == 2


def test_a_clone_in_another_bucket_reads_with_the_options_of_its_source(server: Server) -> None:
    base, root = f"s3://{server.bucket()}/base", f"s3://{server.bucket()}/clone"
    source = glaive.write_dataset(ROWS, base, storage_options=server.options)
    clone = source.shallow_clone(root)
    assert clone.to_table() == ROWS
    again = glaive.dataset(
        root, storage_options=server.options, base_store_params={base: server.options}
    )
    assert again.to_table() == ROWS


@pytest.mark.spec("sec-8")
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize(
    ("uri", "options", "secrets"),
    [
        ("{url}/x", {"token": "hidden", "aws_session_token": "hidden"}, ["hidden"]),
        ("http://joe:hidden@{host}/x", {}, ["hidden", "am9lO"]),
        ("gs://bucket/x", {"google_storage_token": "hidden", "google_base_url": "{url}"},
         ["hidden"]),
        ("az://c/x", {"azure_storage_account_name": "a", "azure_storage_token": "hidden",
                      "azure_endpoint": "{url}"}, ["hidden"]),
        ("s3://bucket/x", {"aws_access_key_id": "hiddenid", "aws_secret_access_key": "hidden",
                           "aws_endpoint": "{url}", "aws_region": "r"}, ["hidden", "Signature"]),
    ],
)  # fmt: skip
def test_a_server_that_sends_on_to_another_takes_no_credentials_along(
    host: str,
    uri: str,
    options: Mapping[str, str],
    secrets: list[str],
    two: tuple[Stranger, Stranger],
) -> None:
    own, other = two
    own.moved_to = other.url.replace("127.0.0.1", host)
    known = {"url": own.url, "host": own.url.removeprefix("http://")}
    given = {key: value.format(**known) for key, value in options.items()}
    store = open_store(uri.format(**known), given | {"allow_http": "true"})
    assert store.get("object").to_pybytes() == CONTENT
    (asked,) = other.asked
    assert "GET" in asked
    for secret in secrets:
        assert secret not in asked


@pytest.mark.spec("sec-8")
def test_a_session_token_and_a_key_of_encryption_go_along_as_the_page_on_security_says(
    two: tuple[Stranger, Stranger],
) -> None:
    own, other = two
    own.moved_to = other.url
    options = {
        "aws_endpoint": own.url,
        "aws_region": "r",
        "aws_access_key_id": "id",
        "aws_secret_access_key": "hidden",
        "aws_session_token": "session",
        "aws_server_side_encryption": "sse-c",
        "aws_sse_customer_key_base64": "a2V5" * 8,
        "allow_http": "true",
    }
    assert open_store("s3://bucket/x", options).get("object").to_pybytes() == CONTENT
    (asked,) = other.asked
    page = (Path(__file__).parents[2] / "SECURITY.md").read_text("utf-8")
    for value, option in (("session", "aws_session_token"), ("a2V5", "aws_sse_customer_key")):
        assert value in asked
        assert f"`{option}" in page
    assert "Signature" not in asked


@pytest.mark.spec("rel-26")
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"aws_access_key_id": "id", "aws_secret_access_key": "s"}, None),
        ({"access_key_id": "id", "secret_access_key": "s", "token": "own"}, "own"),
        ({"aws_access_key_id": "environment", "aws_secret_access_key": "s"}, None),
        ({"aws_access_key_id": "environment", "aws_secret_access_key": "hidden"}, "secret-session"),
        ({}, "secret-session"),
    ],
)
def test_the_session_token_of_the_environment_goes_with_its_own_keys_only(
    two: tuple[Stranger, Stranger],
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    sent: str | None,
) -> None:
    for name, value in (
        ("ACCESS_KEY_ID", "environment"),
        ("SECRET_ACCESS_KEY", "hidden"),
        ("SESSION_TOKEN", "secret-session"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    server, _ = two
    options = {"aws_endpoint": server.url, "aws_region": "r", "allow_http": "true", **given}
    assert open_store("s3://bucket/x", options).get("object").to_pybytes() == CONTENT
    (asked,) = server.asked
    tokens = [line.rpartition(" ")[2] for line in asked.splitlines() if "security-token:" in line]
    assert tokens == ([] if sent is None else [sent])


def test_what_a_web_server_cannot_do_is_an_error_of_the_store(
    two: tuple[Stranger, Stranger],
) -> None:
    server, _ = two
    store = open_store(f"{server.url}/x", {"allow_http": "true"})
    with pytest.raises(StoreError, match="kind of store cannot do that"):
        store.put("tag", [b"x"], mode="create")


def test_what_cannot_be_read_is_named_without_credentials(tmp_path: Path) -> None:
    uri = "http://joe:hidden@127.0.0.1:9/d"
    options = {"client_max_retries": "0", "connect_timeout": "1s"}
    with pytest.raises(StoreError) as failed:
        glaive.dataset(uri, storage_options=options)
    assert "127.0.0.1:9" in str(failed.value)
    rows = pa.table([glaive.blob_array([f"{uri}/x"])], names=["b"])
    with pytest.raises(AccessError, match="contains a user or password") as refused:
        glaive.write_dataset(rows, tmp_path / "d", external_blob_mode="ingest")
    for error in (failed.value, refused.value):
        assert "hidden" not in str(error)
