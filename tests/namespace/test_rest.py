"""Catalogues behind HTTP: both clients, both servers, and servers that answer nonsense."""

from __future__ import annotations

import json
import pickle
import socket
import threading
import traceback
import tracemalloc
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import lance_namespace as interface
import pyarrow as pa
import pytest
from tests.namespace.calls import ROWS, call, ipc, rows_of

import glaive
from glaive.errors import GlaiveError
from glaive.namespace import RestAdapter, RestNamespace, connect
from glaive.namespace import errors as failures
from glaive.namespace.rest import refusal_of_options

TABLE = ["n", "t"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestAdapter]:
    with RestAdapter("dir", {"root": str(tmp_path)}, port=0) as running:
        yield running


@contextmanager
def served(client: str, host: str, root: Path) -> Iterator[Any]:
    """A client of one library for a server of another."""
    properties = {"root": str(root)}
    if host == "glaive":
        running: Any = RestAdapter("dir", properties, port=0)
    else:
        running = pytest.importorskip("lance.namespace").RestAdapter("dir", properties, port=0)
    with running:
        uri = {"uri": f"http://127.0.0.1:{running.port}"}
        yield connect("rest", uri) if client == "glaive" else interface.connect("rest", uri)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("client", "host"),
    [
        ("glaive", "glaive"),
        pytest.param("glaive", "pylance", marks=pytest.mark.interop),
        pytest.param("pylance", "glaive", marks=pytest.mark.interop),
    ],
)
def test_clients_and_servers_of_both_understand_each_other(
    client: str, host: str, tmp_path: Path
) -> None:
    if client == "pylance":
        pytest.importorskip("lance.namespace")
    with served(client, host, tmp_path) as catalogue:
        call(catalogue, "create_namespace", ["n"], properties={"owner": "me"})
        assert call(catalogue, "describe_namespace", ["n"]).properties == {"owner": "me"}
        assert call(catalogue, "create_table", TABLE, ipc(), mode="create").version == 1
        with pytest.raises(interface.TableAlreadyExistsError):
            call(catalogue, "create_table", TABLE, ipc(), mode="create")
        assert call(catalogue, "list_tables", ["n"], limit=5).tables == ["t"]
        described = call(catalogue, "describe_table", TABLE, load_detailed_metadata=True)
        assert [field.name for field in described.var_schema.fields] == ["a", "s"]
        assert call(catalogue, "count_table_rows", TABLE, predicate="a > 1").count == 2
        call(catalogue, "insert_into_table", TABLE, ipc(), mode="append")
        call(
            catalogue,
            "merge_insert_into_table",
            TABLE,
            ipc(pa.table({"a": [9], "s": ["x"]})),
            on=["a"],
            when_matched_update_all=True,
            when_not_matched_insert_all=True,
        )
        assert call(catalogue, "update_table", TABLE, updates=[["s", "'y'"]]).updated_rows == 7
        call(catalogue, "delete_from_table", TABLE, predicate="a < 3")
        found = call(catalogue, "query_table", TABLE, k=9, vector={}, filter="a > 5")
        assert rows_of(found) == [{"a": 9, "s": "y"}]
        call(
            catalogue, "create_table_scalar_index", TABLE, column="a", index_type="BTREE", name="i"
        )
        indexes = call(catalogue, "list_table_indices", TABLE).indexes
        assert [(index.index_name, index.columns) for index in indexes] == [("i", ["a"])]
        assert (
            call(catalogue, "describe_table_index_stats", TABLE, index_name="i").num_indexed_rows
            == 3
        )
        call(catalogue, "drop_table_index", TABLE, index_name="i")
        call(catalogue, "create_table_tag", TABLE, tag="gold", version=1)
        assert call(catalogue, "get_table_tag_version", TABLE, tag="gold").version == 1
        assert call(catalogue, "list_table_tags", TABLE).tags["gold"].version == 1
        with pytest.raises(interface.TableTagNotFoundError):
            call(catalogue, "delete_table_tag", TABLE, tag="lead")
        columns = [{"name": "b", "expression": "a * 2"}]
        call(catalogue, "alter_table_add_columns", TABLE, new_columns=columns)
        call(catalogue, "alter_table_drop_columns", TABLE, columns=["s"])
        call(catalogue, "update_table_schema_metadata", TABLE, metadata={"k": "v"})
        assert (
            call(catalogue, "get_table_stats", TABLE).num_rows >= 3
        )  # pylance counts deleted ones
        last = call(catalogue, "list_table_versions", TABLE, limit=1, descending=True).versions[0]
        assert last.version > 6
        call(catalogue, "restore_table", TABLE, version=1)
        opened = glaive.dataset(namespace_client=catalogue, table_id=TABLE)
        assert opened.to_table() == ROWS
        with pytest.raises(interface.TableNotFoundError):
            call(catalogue, "table_exists", ["n", "nowhere"])
        call(catalogue, "drop_table", TABLE)
        call(catalogue, "drop_namespace", ["n"])
        assert call(catalogue, "list_namespaces", []).namespaces == []


def test_a_client_can_be_pickled(server: RestAdapter) -> None:
    client = pickle.loads(pickle.dumps(RestNamespace(uri=server.uri)))
    glaive.write_dataset(ROWS, namespace_client=client, table_id=["t"])
    dataset = glaive.dataset(namespace_client=client, table_id=["t"])
    assert pickle.loads(pickle.dumps(dataset)).count_rows() == 3


def test_headers_are_sent_and_may_change() -> None:
    class Provider:
        def provide_context(self, info: dict[str, str]) -> dict[str, str]:
            return {"headers.x-operation": f"{info['operation']} {info['object_id']}"}

    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as (uri, requests):
        client = RestNamespace(Provider(), uri=uri, **{"headers.authorization": "Bearer x"})
        call(client, "describe_namespace", ["a", "b"])
    (request,) = requests
    assert b"authorization: Bearer x" in request
    assert b"x-operation: describe_namespace a$b" in request
    with pytest.raises(GlaiveError, match="line breaks"):
        call(RestNamespace(uri=uri, **{"headers.a": "x\r\nb: c"}), "describe_namespace", ["a"])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("a", 5, "string, found int"), ("a", "x\u2603", "no header has"), ("é", "x", "no header has")],
)
def test_headers_that_cannot_be_sent_are_named(name: str, value: Any, message: str) -> None:
    class Provider:
        def provide_context(self, info: dict[str, str]) -> dict[str, Any]:
            return {f"headers.{name}": value}

    client = RestNamespace(Provider(), uri="http://127.0.0.1:9")
    with pytest.raises(failures.InvalidInputError, match=f"header '{name}': .*{message}"):
        call(client, "describe_namespace", ["a", "b"])


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives one answer, whatever is asked."""
    listener = socket.create_server(("127.0.0.1", 0))
    requests: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed: the test is over
                return
            with connection:
                requests.append(connection.recv(1 << 16))
                with suppress(OSError):
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1 << 16):
                        pass  # the rest of the request

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def http(body: bytes, status: str = "200 OK", header: bytes = b"") -> bytes:
    size = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n".encode()
    return size + header + b"\r\n" + body


@pytest.mark.sampled(every=2)
@pytest.mark.spec("sec-9")
@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (http(b"<html>"), failures.InternalError, "expected JSON"),
        (http(b"[1]"), failures.InternalError, "expected a JSON object"),
        (http(b'{"location": 5}'), failures.InternalError, "expected a DescribeTableResponse"),
        (http(b"[" * 100_000), failures.InternalError, "expected JSON"),
        (
            http(b"", "302 Found", b"Location: http://elsewhere/\r\n"),
            failures.InternalError,
            "redirects",
        ),
        (http(b"x", "401 Unauthorized"), failures.UnauthenticatedError, "401"),
        (http(b'{"code": 999, "error": "x"}', "500 E"), failures.InternalError, "x"),
        (http(b'{"code": 4, "error": "no"}', "404 E"), failures.TableNotFoundError, "no"),
        (CHUNKED + b"-5\r\nabc\r\n", failures.ServiceUnavailableError, "no answer"),
        (CHUNKED + b"-1\r\n" + bytes(65 << 20), failures.InternalError, "longer than 67108864"),
        (http(b'{"version": [' + b"0," * (1 << 21) + b"0,0]}"), failures.InternalError, "2097152"),
        (http(b"{}")[:-1], failures.ServiceUnavailableError, "no answer"),
        (b"nonsense\r\n\r\n", failures.ServiceUnavailableError, "no answer"),
        (b"", failures.ServiceUnavailableError, "no answer"),
    ],
)
def test_answers_of_a_server_are_checked(
    answer: bytes, error: type[GlaiveError], message: str
) -> None:
    with answering(answer) as (uri, _), pytest.raises(error, match=message):
        call(RestNamespace(uri=uri), "describe_table", ["t"])


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize(
    "answer",
    [
        http(b'{"headers": {"Authorization": "Bearer MARKED"}}', "403 Forbidden"),
        http(b'{"code": 15, "error": "no: authorization:Bearer MARKED"}', "403 Forbidden"),
        http(b"authorization: Basic MARKED, x-api-key=MARKED", "500 E"),
        http(b'{"storage_options": {"aws_secret_access_key": "MARKED", "a": 1}}'),
        http(b'[{"aws_session_token": "MARKED"}]'),
        http(b'{"version": "", "storage_options": {"sas_token": "sv=2&sig=MARKED"}}'),
        http(
            b'{"version": "", "storage_options": {"google_service_account_key": '
            b'"{\\"private_key\\": \\"-----BEGIN PRIVATE KEY-----\\\\nMARKED\\"}"}}'
        ),
        b'HTTP/1.1 100 Continue\r\n\r\n{"aws_session_token": "MARKED"}\r\n\r\n',
    ],
)
def test_no_error_has_the_credentials_in_an_answer(answer: bytes) -> None:
    with answering(answer) as (uri, _), pytest.raises(GlaiveError) as found:
        call(RestNamespace(uri=uri), "describe_table", ["t"])
    assert "describe_table" in str(found.value)
    assert "MARKED" not in "".join(traceback.format_exception(found.value))


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize(
    "answer",
    [
        http(b'{"code": 16, "error": "Incorrect key provided: MARKED"}', "401 E"),
        http(b'{"code": 16, "error": "no", "detail": "Bearer MARKED has expired"}', "401 E"),
        http(b"invalid token 'MARKED'", "401 E"),
        http(b'"MARKED"'),
        http(b"<p>No such key: MARKED"),
        http(b'{"version": "MARKED"}'),
        http(b'{"location": "file:///MARKED"}'),
        b"MARKED 200 OK\r\n\r\n",
    ],
)
@pytest.mark.parametrize("header", ["headers.Authorization", "headers.x-own"])
def test_no_error_has_what_a_server_repeats_of_the_headers(header: str, answer: bytes) -> None:
    for value in ("MARKED", "Bearer MARKED"):
        with answering(answer) as (uri, requests):
            elsewhere = uri.replace("127.0.0.1", "127.1")  # by a name that is not of loopback
            client = RestNamespace(uri=elsewhere, **{header: value})
            with pytest.raises(GlaiveError) as found:
                call(client, "describe_table", ["t"])
        assert len(requests) == 1
        assert "describe_table" in str(found.value)
        assert "MARKED" not in str(found.value)


@pytest.mark.spec("rel-27")
def test_no_error_has_a_header_with_signs_that_are_shown_in_another_way() -> None:
    answer = http(b"invalid token 'MARKED\\'s\"' <MARKED\\&#x27;s&quot;>", "401 E")
    with answering(answer) as (uri, _), pytest.raises(GlaiveError) as found:
        call(RestNamespace(uri=uri, **{"headers.x-own": "MARKED\\'s\""}), "describe_table", ["t"])
    assert "invalid token" in str(found.value)
    assert "MARKED" not in str(found.value)


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("Authorization", f"Basic {b64encode(b'me:MARKED').decode()}"),
        ("Authorization", 'Digest username="me", response="MARKED"'),
        ("cookie", "a=b; session=MARKED; c=d"),
    ],
)
def test_no_error_has_a_part_of_a_header_that_a_server_repeats(header: str, text: str) -> None:
    with answering(http(b"no such user: MARKED", "401 E")) as (uri, _):
        client = RestNamespace(uri=uri, **{f"headers.{header}": text})
        with pytest.raises(GlaiveError, match=r"no such user: \*\*\*"):
            call(client, "describe_table", ["t"])


@pytest.mark.spec("rel-27")
def test_no_error_has_a_storage_option_of_the_request_that_a_server_repeats() -> None:
    options = {"aws_secret_access_key": "MARKED", "aws_region": "eu-west-1"}
    with answering(http(b"MARKED is no key in eu-west-1", "400 E")) as (uri, _):
        request = interface.CreateTableRequest(id=["t"], storage_options=options)
        with pytest.raises(GlaiveError, match=r"\*\*\* is no key in eu-west-1"):
            RestNamespace(uri=uri).create_table(request, b"")


@pytest.mark.parametrize(
    "answer",
    [
        http(b'{"code": 4, "error": "a\\u001b[2J\\ud800\\u202e", "detail": "b"}', "404 E"),
        b"HTTP/1.1 200\x1b[2J" + b"x" * 9999 + b"\r\n\r\n",
        b"HTTP/1.1 -5 x\r\n\r\n",
        b"\x1b[2J\xff" * 999,
        http(b"[" + b"\x1b[2J," * (1 << 18) + b"]", "404 E"),
    ],
    ids=["an error", "a version", "a status", "no HTTP", "a long error"],
)
def test_errors_show_little_of_an_answer_and_nothing_that_a_terminal_obeys(answer: bytes) -> None:
    with answering(answer) as (uri, _), pytest.raises(GlaiveError) as found:
        call(RestNamespace(uri=uri), "describe_table", ["t"])
    assert str(found.value).isprintable()
    assert len(str(found.value)) < 1000
    assert len("".join(traceback.format_exception(found.value))) < 20_000


@pytest.mark.parametrize("method", ["describe_table", "list_tables", "drop_table_index"])
def test_an_id_that_is_no_unicode_is_an_error_of_glaive(method: str) -> None:
    client = RestNamespace(uri="http://127.0.0.1:9")
    fields = {"index_name": "\udfff"} if method == "drop_table_index" else {}
    with pytest.raises(failures.InvalidInputError, match="half of a surrogate pair"):
        call(client, method, ["t"] if fields else ["\ud800"], **fields)


KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_session_token": "c"}


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-26")
@pytest.mark.parametrize(
    ("location", "options", "message"),
    [
        ("file:///etc", {}, "a place on this machine"),
        ("/etc", {}, "a place on this machine"),
        ("memory://of/this/process", {}, "a place on this machine"),
        ("local:///etc", {}, "a place on this machine"),
        ("fsspec+file:///etc", {}, "a place on this machine"),
        ("sftp://host/etc", {}, "which fsspec would open"),
        ("http://127.0.0.1:8080/t", {}, "a server on this machine or its link"),
        ("https://localhost/t", {}, "a server on this machine"),
        ("http://x@2130706433/t", {}, "a server on this machine"),
        ("http://169.254.169.254/t", {}, "a server on this machine or its link"),
        (
            "gs://b/t",
            {"service_account_key": '{"gcs_base_url": "http://evil"}'},
            "'google_base_url' without google_bearer_token",
        ),
        ("s3://b/t", {"manifest_store": "sqlite:///etc/x"}, "'manifest_store', which makes use"),
        ("s3://b/t", {"AWS_WEB_IDENTITY_TOKEN_FILE": "/etc/x"}, "token_file', which makes use"),
        ("s3://b/t", {"endpoint_url_sts": "https://evil"}, "'aws_endpoint_url_sts', which"),
        ("az://b/t", {"federated_token_file": "/etc/x"}, "'azure_federated_token_file', which"),
        ("gs://b/t", {"google_service_account": "/etc/x"}, "'google_service_account', which"),
        ("s3://b/t", {"delete_through_links": "true"}, "'delete_through_links', which"),
        ("s3://b/t", {"proxy_url": "http://evil"}, "'proxy_url', which makes use"),
        ("s3://b/t", {"endpoint": "https://evil"}, "credentials of this machine would be sent"),
        ("s3://b/t", {"endpoint": "https://evil", "token": "c"}, "credentials of this machine"),
        ("gs://b/t", {"base_url": "https://evil", "skip_signature": "false"}, "'google_base_url'"),
        ("az://b/t", {"azure_endpoint": "https://evil", "account_key": "k"}, "'azure_endpoint'"),
        ("s3://b/t", {"region": "x@evil/#"}, "'aws_region' with characters that end the name of"),
        ("s3://b/t", {"AWS_DEFAULT_REGION": "evil:80/?"}, "'aws_default_region' with characters"),
        ("s3://b/t", {"aws_region": "x@evil/#", "region": "eu"}, "'aws_region' with characters"),
        ("az://b/t", {"account_name": "evil/"}, "'azure_storage_account_name' with characters"),
        (
            "az://b/t",
            {"endpoint": "x", "azure_skip_signature": "false", "skip_signature": "true"},
            "'azure_endpoint' without",
        ),
    ],
)
def test_a_server_elsewhere_makes_no_use_of_this_machine(
    location: str, options: dict[str, str], message: str
) -> None:
    answer = {"location": location, "storage_options": options}
    with answering(http(json.dumps(answer).encode())) as (uri, _):
        port = uri.rpartition(":")[2]
        host = f"http://127.1:{port}"  # the same machine, by a name that is not that of loopback
        with pytest.raises(failures.PermissionDeniedError, match=message):
            call(RestNamespace(uri=host), "describe_table", ["t"])
        allowed = RestNamespace(uri=host, allow_local_locations="true")
        assert call(allowed, "describe_table", ["t"]).location == location


@pytest.mark.spec("rel-26")
@pytest.mark.parametrize(
    ("location", "options", "instead", "variables"),
    [
        (
            "s3://b/t",
            {"endpoint": "https://minio", **KEYS},
            {"sse_customer_key_base64": "k"},
            ["AWS_SSE_CUSTOMER_KEY_BASE64"],
        ),
        (
            "az://c/t",
            {"azure_endpoint": "https://blobs", "bearer_token": "t"},
            {"azure_skip_signature": "true"},
            [
                f"AZURE_FABRIC_{name}"
                for name in (
                    "CLUSTER_IDENTIFIER", "SESSION_TOKEN", "TOKEN_SERVICE_URL", "WORKLOAD_HOST"
                )
            ],
        ),
    ],
    ids=["s3", "az"],
)  # fmt: skip
def test_keys_of_the_environment_do_not_go_to_an_address_of_a_catalogue(
    monkeypatch: pytest.MonkeyPatch,
    location: str,
    options: dict[str, str],
    instead: dict[str, str],
    variables: list[str],
) -> None:
    assert refusal_of_options(options, location) is None
    for variable in variables:
        monkeypatch.setenv(variable, "secret")
    assert f"this machine's {variables[0]} would be" in str(refusal_of_options(options, location))
    assert refusal_of_options({**options, **instead}, location) is None


@pytest.mark.parametrize(
    ("location", "options"),
    [
        ("s3://b/t", {"region": "eu", **KEYS, "expires_at_millis": "9"}),
        ("s3://b/t", {"endpoint": "https://minio", "allow_http": "true", **KEYS}),
        ("s3://b/t", {"endpoint": "https://minio", "aws_skip_signature": "true"}),
        ("gs://b/t", {"google_storage_token": "a", "base_url": "https://other"}),
        ("az://b/t", {"account_name": "a", "sas_token": "b", "unheard_of": "c"}),
        ("https://host/t", {"timeout": "5s"}),
        ("https://host/t", {"timeout": "60000ms", "connect_timeout": "1m 30s"}),
        ("https://host/t", {"timeout": "2 minutes", "client_max_retries": "10"}),
        ("http://10.0.0.7:8080/t", {}),
        ("s3://b/t", {"endpoint": "http://minio.local:9000", "allow_http": "true", **KEYS}),
    ],
)
def test_a_server_elsewhere_gives_credentials(location: str, options: dict[str, str]) -> None:
    answer = {"location": location, "storage_options": options}
    with answering(http(json.dumps(answer).encode())) as (uri, _):
        client = RestNamespace(uri=f"http://127.1:{uri.rpartition(':')[2]}")
        assert call(client, "describe_table", ["t"]).storage_options == options


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "needs an address"),
        ({"uri": "ftp://x"}, "needs an address"),
        ({"uri": "http://x:99999"}, "needs an address"),
        ({"uri": "http://[x"}, "needs an address"),
        ({"uri": f"http://{'x' * 64}.y"}, "needs an address"),
        ({"uri": "http://x y"}, "needs an address"),
        ({"uri": "http://x", "timeout": "soon"}, "timeout: expected a number"),
        ({"uri": "http://x", "tiemout": "5"}, "unknown property 'tiemout'"),
        ({"uri": "http://x", "dynamic_context_provider.impl": "no.Such"}, "module.Class"),
    ],
)
def test_wrong_properties_are_named(properties: dict[str, str], message: str) -> None:
    with pytest.raises(failures.InvalidInputError, match=message):
        connect("rest", properties)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("verb", "path", "body", "status", "code"),
    [
        ("GET", "/nowhere", b"", 406, 0),
        ("POST", "/v1/table/t/describe", b"{bad", 400, 13),
        ("POST", "/v1/table/t/describe", b"[]", 400, 13),
        ("POST", "/v1/table/t/describe", b'{"version": "x"}', 400, 13),
        ("POST", "/v1/table/..%2F..%2Fetc/describe", b"{}", 404, 4),
        ("POST", "/v1/table/..%2Fx/declare", b"{}", 400, 13),
        ("GET", "/v1/namespace/$/table/list?limit=many", b"", 400, 13),
        ("POST", "/v1/table/t/create", b"no arrow", 400, 13),
        ("POST", "/v1/table/t/rename", b'{"new_table_name": "u"}', 406, 0),
    ],
)
def test_requests_to_the_server_are_checked(
    server: RestAdapter, verb: str, path: str, body: bytes, status: int, code: int
) -> None:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request(verb, path, body)
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["code"]) == (status, code)
    connection.close()


@pytest.mark.spec("rel-36")
def test_a_request_is_logged_in_characters_that_no_terminal_obeys(
    server: RestAdapter, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG", logger="glaive.namespace")
    sized = b"Content-Length: " + b"9" * 5000
    for request in (
        b"GET /v1/\x1b[2J\x9b HTTP/1.1\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\n" + sized,
        b"GET http://[\x9b HTTP/1.1",
    ):
        with socket.create_connection((server.host, server.port), timeout=10) as connection:
            connection.sendall(request.rstrip() + b"\r\n\r\n")
            assert connection.recv(99).startswith((b"HTTP/1.1 406", b"HTTP/1.1 400"))
    logged = [record.getMessage() for record in caplog.records]
    assert any("/v1/\\x1b[2J\\x9b" in line for line in logged)
    assert all(line.isprintable() for line in logged)
    assert capfd.readouterr().err == ""


@pytest.mark.spec("rel-27")
def test_no_log_of_a_server_has_the_storage_options_of_a_request(
    server: RestAdapter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    request = interface.CreateTableRequest(id=["t"], storage_options={"token": "MARKED"})
    RestNamespace(uri=server.uri).create_table(request, ipc())
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        connection.sendall(b"POST /v1/x?storage_options= MARKED HTTP/1.1\r\n\r\n")
        assert connection.recv(99)
    logged = [record.getMessage() for record in caplog.records]
    assert any("POST /v1/table/t/create?" in line and "200" in line for line in logged)
    assert not any("MARKED" in line for line in logged)


@pytest.mark.spec("rel-24")
def test_memory_is_taken_for_what_a_request_sends_and_not_for_what_it_says(
    server: RestAdapter,
) -> None:
    head = b"POST /v1/table/a/insert HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n"
    tracemalloc.start()
    try:
        with socket.create_connection((server.host, server.port), timeout=10) as connection:
            connection.sendall(head + bytes(1000))
            connection.shutdown(socket.SHUT_WR)
            answer = connection.makefile("rb").read()
        assert b"expected 1073741824 bytes, found 1000" in answer
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://a.example"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Host": "a.example:2333"},
        {"Host": "127.0.0.1.a.example"},
        {"Host": "[a.example"},
    ],
    ids=["another origin", "a page of this one", "a name", "a name like it", "no name"],
)
@pytest.mark.spec("rel-26", "sec-15")
def test_pages_in_a_browser_are_refused(server: RestAdapter, headers: dict[str, str]) -> None:
    connection = HTTPConnection(server.host, server.port, timeout=10)
    connection.request("GET", "/v1/namespace/$/list", headers=headers)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["code"]) == (403, 15)
    connection.close()


@pytest.mark.parametrize("host", ["localhost:2333", "127.0.0.1", "[::1]:2333", "localhost."])
def test_the_server_answers_to_its_own_names(server: RestAdapter, host: str) -> None:
    connection = HTTPConnection(server.host, server.port, timeout=10)
    connection.request("GET", "/v1/namespace/$/list", headers={"Host": host})
    assert connection.getresponse().status == 200
    connection.close()


def test_the_server_answers_to_the_name_that_it_was_given(tmp_path: Path) -> None:
    with RestAdapter("dir", {"root": str(tmp_path)}, host="127.1", port=0) as server:
        connection = HTTPConnection(server.host, server.port, timeout=10)
        connection.request("GET", "/v1/namespace/$/list")  # of the host that it connects to
        assert connection.getresponse().status == 200
        connection.close()


def test_a_port_that_is_taken_is_named(server: RestAdapter, tmp_path: Path) -> None:
    with pytest.raises(
        failures.InvalidInputError, match=f"cannot listen on 127.0.0.1:{server.port}"
    ):
        RestAdapter("dir", {"root": str(tmp_path)}, port=server.port).start()
