"""Credentials are used, and appear in nothing that is written, printed, logged or sent on."""

from __future__ import annotations

import json
import logging
import pickle
import threading
import traceback
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem
from glaive.optimize import Compaction
from tests.distant import Distant

import glaive
from glaive.errors import GlaiveError, StoreError
from glaive.io.access import open_store
from glaive.namespace import DirectoryNamespace, RestAdapter
from glaive.namespace.manifest_table import DirectorySettings
from glaive.table.manifest_registers import CatalogueManifestStore
from glaive.table.root import base_of
from glaive.table.versions import read_hint
from glaive.types import ByteRange

from .server import Failing, Server

pytestmark = pytest.mark.spec("rel-27")

MARKERS = {
    "aws_access_key_id": "MARKED-id-3f1",
    "aws_secret_access_key": "MARKED-secret-9c2",
    "aws_session_token": "MARKED-token-77a",
}
NEVER_SENT = {
    "azure_storage_account_key": "TUFSS0VELWFjY291bnQ=",
    "azure_client_secret": "MARKED-azure-5d0",
    "azure_storage_sas_key": "sig=MARKED-sas-1b9",
    "google_bearer_token": "MARKED-bearer-2e8",
    "google_service_account_key": "MARKED-google-6c4",
    "aws_secret_acess_key": "MARKED-misspelt-0a6",
}
"""Options of other stores, and one that is misspelt."""

SECRETS = [*MARKERS.values(), *NEVER_SENT.values()]
ROWS = pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]})


class Printed(logging.Handler):
    """Everything that any logger says, formatted."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
        self.lines.append(repr(record.args))


@pytest.fixture
def printed() -> Iterator[Printed]:
    root, handler = logging.getLogger(), Printed()
    levels = {logger: logger.level for logger in (root, logging.getLogger("glaive"))}
    root.addHandler(handler)
    for logger in levels:
        logger.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    for logger, level in levels.items():
        logger.setLevel(level)


def checked_failure(printed: Printed, call: Callable[[], object]) -> str:
    """What is said about the error of a call; no secret is in it, or was printed."""
    message = failure_of(call)
    check(message)
    check(printed.lines)
    return message


def options_for(server: Server, **more: str) -> dict[str, str]:
    return {
        **MARKERS,
        **NEVER_SENT,
        "aws_endpoint": server.url,
        "aws_region": "us-east-1",
        "allow_http": "true",
        "client_max_retries": "0",
        "download_retry_count": "0",
        **more,
    }


def failure_of(call: Callable[[], object]) -> str:
    """Everything that is said about the error of a call, its pickle included."""
    with pytest.raises(GlaiveError) as found:
        call()
    error = found.value
    shown = "".join(traceback.format_exception(error)) + repr(error)
    return (
        shown
        + repr(error.__notes__ if hasattr(error, "__notes__") else "")
        + repr(pickle.dumps(error))
    )


def check(texts: object) -> None:
    """No secret is in any of the texts, nor its bytes as they are or in hexadecimal digits."""
    shown = repr(texts)
    assert [secret for secret in SECRETS if secret in shown] == []
    assert [secret for secret in SECRETS if secret.encode().hex() in shown] == []


def test_no_text_log_or_object_has_a_credential(server: Server, printed: Printed) -> None:
    uri = f"s3://{server.bucket()}/t"
    options = options_for(server)
    dataset = glaive.write_dataset(ROWS, uri, storage_options=options)
    dataset.insert(ROWS, commit_message="more")
    dataset.delete("id = 2")
    dataset.create_scalar_index("id", "BTREE")
    dataset.tags.create("first", 1)
    dataset.create_branch("side")
    dataset.optimize.compact_files()
    scanner = dataset.scanner(filter="id > 1", columns=["text"])
    shown = [
        repr(dataset),
        str(dataset),
        dataset._repr_html_(),  # the protocol of notebooks
        repr(scanner),
        scanner.explain_plan(),
        scanner.analyze_plan(),
        repr(dataset.get_fragments()),
        repr(dataset.versions()),
        repr(dataset.session()),
        repr(dataset.schema),
        repr(dataset.read_transaction(2)),
        repr(dataset.describe_indices()),
        dataset.tracked_files().read_all().to_pylist(),
        repr(open_store(uri, options)),
        pickle.dumps([fragment.metadata for fragment in dataset.get_fragments()]),
        pickle.dumps(dataset.read_transaction(2)),
        dataset.cleanup_old_versions(),
    ]
    check(shown)
    check(printed.lines)
    assert any("misspelt" not in line and "acess" in line for line in printed.lines)


def test_pickled_plans_and_tasks_have_no_options_but_pickled_datasets_have(tmp_path: Path) -> None:
    glaive.write_dataset(ROWS, tmp_path, max_rows_per_file=1)
    dataset = glaive.dataset(tmp_path, storage_options=MARKERS)
    plan = Compaction.plan(dataset, {})
    assert plan.tasks
    shown = [pickle.dumps(plan), pickle.dumps(plan.tasks), plan.tasks[0].json()]
    check([*shown, pickle.dumps(plan.tasks[0].execute(dataset))])
    secret = MARKERS["aws_secret_access_key"].encode()
    assert secret in pickle.dumps(dataset)
    assert secret in pickle.dumps(dataset.get_fragments()[0])


def test_no_object_that_is_written_has_a_credential(server: Server) -> None:
    uri = f"s3://{server.bucket()}/t"
    dataset = glaive.write_dataset(ROWS, uri, storage_options=options_for(server))
    dataset.create_scalar_index("id", "BTREE")
    dataset.tags.create("first", 1)
    dataset.create_branch("side")
    dataset.shallow_clone(f"{uri}-clone", storage_options=options_for(server))
    for place in (uri, f"{uri}-clone"):
        store = open_store(place, options_for(server))
        paths = [meta.path for meta in store.walk("")]
        assert paths
        for path in paths:
            check([path, store.get(path).to_pybytes()])
            content = store.get(path).to_pybytes()
            assert not any(secret.encode() in content for secret in SECRETS), path


@pytest.mark.parametrize("kind", ["error", "throttle", "reset"])
def test_no_error_has_a_credential(server: Server, printed: Printed, kind: Any) -> None:
    uri = f"s3://{server.bucket()}/t"
    options = options_for(server)
    dataset = glaive.write_dataset(ROWS, uri, storage_options=options)
    calls: list[Callable[[], object]] = [
        lambda: glaive.dataset(uri, storage_options=options),
        lambda: glaive.dataset(uri, storage_options=options).to_table(),
        lambda: dataset.insert(ROWS),
        lambda: dataset.delete("id = 1"),
        lambda: dataset.tags.create("x", 1),
        dataset.cleanup_old_versions,
    ]
    shown = []
    for call in calls:
        server.failing.append(Failing(kind, times=1_000))
        shown.append(failure_of(call))
        server.reset()
    check(shown)
    check(printed.lines)


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    "uri",
    [
        "sftp://user:MARKED-secret-9c2@127.0.0.1:9/table",
        "https://user:MARKED-secret-9c2@127.0.0.1:9/table.lance",
        "https://127.0.0.1:9/table.lance?sig=MARKED-secret-9c2",
        "unknown://user:MARKED-secret-9c2@host/table",
        "https:/user:MARKED-secret-9c2@127.0.0.1:9/table.lance",
        "https://127.0.0.1:9/table.lance#access_token=MARKED-secret-9c2",
        "https://127.0.0.1:9/table.lance;jsessionid=MARKED-secret-9c2",
        "https://127.0.0.1:9/table.lance?a=1&AWSSecretKey=MARKED-secret-9c2",
        "https://127.0.0.1:9/table.lance?sig=Zm9v/MARKED-secret-9c2",
        "https://127.0.0.1:9/table.lance?pwd=MARKED-secret-9c2",
        "https://user:Zm9v/MARKED-secret-9c2@127.0.0.1:9/table.lance",
        "s3://AKIA:Zm9v/MARKED-secret-9c2@bucket/table.lance",
        "file://user:MARKED-secret-9c2@host/table.lance",
        "https://me@example.com:MARKED-secret-9c2@127.0.0.1:9/table.lance",
        "unknown://me@example.com:MARKED-secret-9c2@host/table",
    ],
)
def test_no_error_has_the_password_of_a_uri(uri: str, printed: Printed) -> None:
    options = {"client_max_retries": "0", "allow_http": "true"}
    check(failure_of(lambda: glaive.dataset(uri, storage_options=options)))
    check(printed.lines)


def test_neither_clones_nor_branches_nor_stores_have_the_key_of_a_uri() -> None:
    dataset = glaive.write_dataset(ROWS, f"memory://copied/t?sig={SECRETS[1]}")
    for change in (
        lambda: dataset.shallow_clone("memory://copied/shallow", 1),
        lambda: dataset.create_branch("side"),
    ):
        error = failure_of(change)
        assert "has a password or a key" in error
        check(error)
    assert dataset.deep_clone("memory://copied/deep", 1).to_table() == ROWS
    for uri in ("memory://copied/deep", dataset.uri, f"fsspec+{dataset.uri}"):
        store = open_store(uri)
        check([store.get(meta.path).to_pybytes() for meta in store.walk("")])
        check(repr(store))


def test_a_folder_whose_name_looks_like_a_key_is_cloned(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path / "c:" / "of&token=none")  # looks like a URL
    dataset.create_branch("side")
    assert dataset.shallow_clone(tmp_path / "clone", 1).to_table() == ROWS


def test_no_log_has_the_key_of_a_uri(printed: Printed) -> None:
    store = open_store(f"memory://hints/t?sig={SECRETS[1]}")
    store.put("_versions/latest_version_hint.json", [b"{"])
    assert read_hint(store) is None
    assert any("says nothing" in line for line in printed.lines)
    check(printed.lines)


class _Telling(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system that has the password of a URI in the path of its errors."""

    protocol = "telling"
    cachable = False

    def __init__(self, username: str = "", password: str = "", **_: Any) -> None:
        raise ValueError(f"nothing at /{username}/{password}/x")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        url = fsspec.utils.infer_storage_options(path)
        return {key: url[key] for key in ("username", "password")}


def test_no_error_of_a_file_system_has_the_password_of_a_uri(printed: Printed) -> None:
    fsspec.register_implementation("telling", _Telling, clobber=True)
    message = checked_failure(
        printed, lambda: glaive.dataset(f"fsspec+telling://u:{SECRETS[1]}@h/x")
    )
    assert "nothing at /u/***/x" in message


class _Login(Distant):
    """Files for who gives the password."""

    protocol = "login"
    cachable = False

    def __init__(self, password: str | None = None, **_: Any) -> None:
        if password != SECRETS[1]:
            raise ValueError("wrong password")
        super().__init__()

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        _, mark, rest = path.partition("://")
        return f"/{rest.partition('/')[2]}" if mark else path

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {"password": urlsplit(path).password}


@pytest.mark.parametrize("user", ["me", "", "me@example.com"])
def test_the_password_of_a_uri_stays_before_its_host(
    user: str, tmp_path: Path, printed: Printed
) -> None:
    """Names of users may have an @, as those of many FTP servers, or be empty, as for Redis."""
    fsspec.register_implementation("login", _Login, clobber=True)
    home = f"fsspec+login://{user}:{SECRETS[1]}@host{tmp_path}/a@b"
    glaive.write_dataset(ROWS, f"{home}/d@1")
    dataset = pickle.loads(pickle.dumps(glaive.dataset(f"{home}/d@1")))
    assert dataset.count_rows() == ROWS.num_rows
    base = f"fsspec+login://{user}{'@' if user else ''}host{tmp_path}/a@b/d@1/of@me"
    dataset.add_bases([glaive.DatasetBasePath(base, id=7)])
    store = base_of(dataset.store, dataset.manifest, 7)[0]
    store.put("x", [b"1"])
    assert (tmp_path / "a@b" / "d@1" / "of@me" / "x").read_bytes() == b"1"
    dataset.create_branch("of@me".replace("@", "-")).insert(ROWS)
    clone = dataset.shallow_clone(f"{home}/clone")
    check([store.uri, str(store), dataset.store.uri, str(clone.store), str(clone.base_paths())])
    check(failure_of(lambda: dataset.checkout_version(99)))
    check(printed.lines)
    for path in tmp_path.rglob("*"):
        assert SECRETS[1] not in path.name
        assert not path.is_file() or SECRETS[1].encode() not in path.read_bytes()


class _Refusing(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system that repeats the token that it refuses."""

    protocol = "refusing"
    cachable = False

    def __init__(self, token: str = "", early: str = "", **_: Any) -> None:
        self.token = token
        if early:
            raise ValueError(f"invalid {token}")
        super().__init__()

    def ls(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"invalid {self.token}")

    def open(self, *_: Any, **__: Any) -> Any:
        raise PermissionError(f"invalid {self.token}")


def test_no_error_of_a_file_system_has_a_token_that_it_repeats(printed: Printed) -> None:
    fsspec.register_implementation("refusing", _Refusing, clobber=True)
    options, uri = {"token": SECRETS[1]}, "fsspec+refusing://x/y"
    calls: list[Callable[[], object]] = [
        lambda: glaive.dataset(uri, storage_options=options),
        lambda: glaive.dataset(uri, storage_options={**options, "early": "yes"}),
        lambda: open_store(uri, options).put("a", [b"1"]),
    ]
    for call in calls:
        message = failure_of(call)
        assert "invalid ***" in message
        check(message)
    check(printed.lines)


class _Wordy(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system whose errors, which are of the system's kind, have what a server said."""

    protocol = "wordy"
    cachable = False

    def __init__(self, said: str, **_: Any) -> None:
        self.said = said
        super().__init__()

    def ls(self, *_: Any, **__: Any) -> Any:
        raise OSError(self.said)


def failure_of_wordy(printed: Printed, options: dict[str, str]) -> str:
    """What is said about the error of a file system that says the option ``said``."""
    fsspec.register_implementation("wordy", _Wordy, clobber=True)
    store = open_store("fsspec+wordy://x/y", options)
    return checked_failure(printed, lambda: list(store.list("")))


@pytest.mark.parametrize(
    "said",
    [
        "refused: Authorization: Basic bWU6{0} Host: h",
        "refused: no 'Bearer {0}' for it",
        "no basic authentication, nor Bearer A1-{0}=",
        "refused: Cookie: a=b; hadoop.auth=u&t=k&s={0}",
        '{{"Set-Cookie": "id={0}; Path=/", "path": "x"}}',
        '{{"Cookie": ["id={0}; a={0}"], "X-Api-Key": ["{0}"], "Authorization": ["Basic YTpi"]}}',
        "map[Authorization:[Basic YTpi] Cookie:[id={0}; a={0}] X-Auth-Token:[{0}]]",
        "403 Client Error for url: http://h/webhdfs/v1/t?op=OPEN&delegation={0}&x=1",
        "refused\nX-Auth-Token: {0}",
    ],
)
def test_no_error_of_a_file_system_has_a_header_that_a_server_repeats(
    said: str, printed: Printed
) -> None:
    """With credentials that no option has: a token that a login gave, or a password in base64."""
    message = failure_of_wordy(printed, {"said": said.format(SECRETS[1])})
    assert "YTpi" not in message


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "FSSPEC_WEBHDFS_PASSWORD", "fsspec_s3_secret"]
)
def test_no_error_of_a_file_system_has_a_credential_of_its_environment(
    name: str, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    monkeypatch.setenv(name, SECRETS[1])
    message = failure_of_wordy(printed, {"said": f"nobody knows {SECRETS[1]}"})
    assert "nobody knows ***" in message


class _Echo(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system that repeats what it was opened with."""

    protocol = "echo"
    cachable = False

    def __init__(self, early: str = "", **given: Any) -> None:
        texts = (one if isinstance(one, str) else " ".join(one) for one in given.values())
        self.said = f"refused: {' '.join(texts)}"
        if early:
            raise ValueError(self.said)
        super().__init__()

    def ls(self, *_: Any, **__: Any) -> Any:
        raise OSError(self.said)


@pytest.mark.parametrize(
    "name",
    [
        "password", "passwd", "passphrase", "kerb_pass", "pwd", "auth", "authorization", "tok",
        "credential", "credentials", "connection_string", "cookies", "signature", "jwt",
    ],
)  # fmt: skip
@pytest.mark.parametrize("early", ["", "yes"])
def test_no_error_of_a_file_system_has_a_credential_of_its_options(
    name: str, early: str, printed: Printed
) -> None:
    fsspec.register_implementation("echo", _Echo, clobber=True)
    options = {name: SECRETS[1], "early": early}
    message = checked_failure(
        printed, lambda: glaive.dataset("fsspec+echo://x/y", storage_options=options)
    )
    assert "refused: ***" in message


def test_no_error_of_a_file_system_has_a_part_of_a_text_of_names_and_values(
    printed: Printed,
) -> None:
    text = f"AccountName=shop;AccountKey={SECRETS[1]}==;Suffix=windows.net"
    given = {"said": f"shop: not {SECRETS[1]}==", "connection_string": text}
    message = failure_of_wordy(printed, given)
    assert "shop: not ***" in message


class _Closed(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system that opens no file, and says of which."""

    protocol = "closed"

    def open(self, path: str, *_: Any, **__: Any) -> Any:
        raise OSError(f"refused: {path}")


def test_no_error_of_a_file_system_has_a_password_of_a_later_part_of_a_chain(
    printed: Printed,
) -> None:
    fsspec.register_implementation("closed", _Closed, clobber=True)
    place = f"fsspec+zip://t::closed://user:{SECRETS[1]}@host/x.zip"
    message = checked_failure(printed, lambda: glaive.dataset(place))
    assert "refused: user:***@host" in message


@pytest.mark.parametrize(
    "given",
    [{"password": SECRETS[1]}, {"auth": ("user", SECRETS[1])}],
    ids=["a password", "user and password"],
)
@pytest.mark.parametrize("early", ["", "yes"])
def test_no_error_of_a_file_system_has_a_credential_of_the_settings_of_fsspec(
    early: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    """Files of its folder, and variables with all settings of a file system as JSON."""
    fsspec.register_implementation("echo", _Echo, clobber=True)
    monkeypatch.setitem(fsspec.config.conf, "echo", given | {"early": early})
    message = checked_failure(printed, lambda: glaive.dataset("fsspec+echo://x/y"))
    assert "***" in message.partition("refused: ")[2]


class _Repeating(BaseHTTPRequestHandler):
    """Refuses each request, and says which headers it had, or their values alone."""

    def do_GET(self) -> None:
        headers = " ".join(f"{name}:{value}" for name, value in self.headers.items())
        values = "".join(
            f"<Token-0>{value}</Token-0> no {value}" for value in self.headers.values()
        )
        body = (
            f"<Error><Code>AccessDenied</Code>{values}<Request>{headers}</Request></Error>".encode()
        )
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """As DynamoDB, which says what should have been signed."""
        self.rfile.read(int(self.headers["Content-Length"]))
        headers = " ".join(f"{name}:{value}" for name, value in self.headers.items())
        body = json.dumps({"__type": "AccessDenied", "message": headers}).encode()
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # the name it has in its base class
        pass


class _RepeatingAsS3(_Repeating):
    """Refuses each request as S3 does."""

    def do_GET(self) -> None:
        token = self.headers["x-amz-security-token"]
        signed = f"GET x-amz-security-token:{token}"
        body = (
            f"<Error><Code>InvalidToken</Code><Token-0>{token}</Token-0><CanonicalRequestBytes>"
            f"{signed.encode().hex(' ')}</CanonicalRequestBytes></Error>"
        ).encode()
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def repeating() -> Iterator[str]:
    with answering_with(_Repeating) as url:
        yield url


@contextmanager
def answering_with(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://b/t", {**MARKERS, "aws_region": "us-east-1", "aws_endpoint": "{}"}),
        ("gs://b/t", {"google_bearer_token": SECRETS[1], "google_base_url": "{}"}),
        (
            "az://c/t",
            {
                "azure_storage_token": SECRETS[1],
                "azure_storage_account_name": "me",
                "azure_endpoint": "{}",
            },
        ),
    ],
)
def test_no_error_has_the_credentials_that_a_server_repeats(
    repeating: str, printed: Printed, uri: str, options: dict[str, str]
) -> None:
    given = {key: value.format(repeating) for key, value in options.items()}
    given |= {"allow_http": "true", "client_max_retries": "0"}
    message = checked_failure(printed, lambda: glaive.dataset(uri, storage_options=given))
    assert "AccessDenied" in message


class _Proxy(_Repeating):
    """Says what it was sent, and which password that is."""

    def do_GET(self) -> None:
        sent = self.headers["Proxy-Authorization"]
        body = f"no {sent}, which is {b64decode(sent.split()[1]).decode()}".encode()
        self.send_response(407)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("password", [SECRETS[1], f"a%40{SECRETS[1]}", f"{SECRETS[1]}%2Fb"])
@pytest.mark.parametrize("where", ["option", "environment"])
def test_no_error_has_the_password_of_a_proxy(
    password: str, where: str, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with answering_with(_Proxy) as url:
        proxy = f"http://me:{password}@{urlsplit(url).netloc}"
        given = {"client_max_retries": "0"}
        if where == "option":
            given["proxy_url"] = proxy
        else:
            monkeypatch.setenv("http_proxy", proxy)
        message = checked_failure(
            printed, lambda: glaive.dataset("http://a.invalid/t", storage_options=given)
        )
    assert "no Basic ***, which is me:***" in message


def test_no_error_has_a_session_token_that_no_option_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One of a profile, as of an instance: S3 repeats it under a name of its own, and signed."""
    profile = tmp_path / "credentials"
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    lines = (f"{name}={value}" for name, value in zip(names, SECRETS, strict=False))
    profile.write_text("\n".join(["[default]", *lines]))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    with answering_with(_RepeatingAsS3) as url:
        given = {"aws_region": "us-east-1", "aws_endpoint": url, "allow_http": "true"}
        given["client_max_retries"] = "0"
        message = failure_of(lambda: open_store("s3://b/t", given).get("x"))
    assert "InvalidToken" in message
    check(message)
    assert SECRETS[2].encode().hex(" ") not in message


@pytest.mark.parametrize(
    ("config", "profile"),
    [
        ("", "missing"),
        ("no section", "default"),
        ("[default]\naws_access_key_id = a", "default"),
        ("[default]\ncredential_process = false", "default"),
        (f"[default]\ncredential_process = echo {SECRETS[1]}", "default"),
        ("[default]\nrole_arn = r\nsource_profile = missing", "default"),
    ],
)
def test_a_profile_without_credentials_is_an_error_that_names_it(
    config: str, profile: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(config)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", profile)
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    message = failure_of(lambda: open_store("s3://b/t", {"aws_region": "us-east-1"}))
    assert f"profile '{profile}'" in message
    check(message)


class _Short(_RepeatingAsS3):
    """A server of short objects, which refuses to send their bytes as S3 does."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "10")
        self.send_header("Last-Modified", "Tue, 21 Oct 2025 07:28:00 GMT")
        self.end_headers()


@pytest.mark.parametrize("read", ["read", "tail"])
def test_no_error_of_an_object_that_is_too_short_shows_what_the_server_said(read: str) -> None:
    with answering_with(_Short) as url:
        given = {**MARKERS, "aws_region": "us-east-1", "aws_endpoint": url, "allow_http": "true"}
        reader = open_store("s3://b/t", given).open("x", size=100)
        if read == "tail":
            message = failure_of(lambda: reader.tail(50))
        else:
            message = failure_of(lambda: reader.read([ByteRange(50, 50)]))
    assert "CorruptFileError: byte range: expected bytes 50..100" in message
    assert "InvalidToken" not in message
    check(message)


def test_no_error_has_the_credentials_that_a_register_repeats(repeating: str) -> None:
    given = {**MARKERS, "aws_region": "us-east-1", "dynamodb_endpoint": repeating}
    uri = "s3+ddb://b/t?ddbTableName=T"
    message = failure_of(lambda: glaive.dataset(uri, storage_options=given))
    assert "AccessDenied" in message
    check(message)


def test_no_error_has_the_credentials_of_the_environment_that_a_server_repeats(
    repeating: str, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in MARKERS.items():
        monkeypatch.setenv(name.upper(), value)
    given = {"aws_region": "us-east-1", "aws_endpoint": repeating, "client_max_retries": "0"}
    given["allow_http"] = "true"
    message = checked_failure(printed, lambda: glaive.dataset("s3://b/t", storage_options=given))
    assert "AccessDenied" in message


@pytest.mark.parametrize("key", [*MARKERS, *NEVER_SENT])
def test_an_option_that_cannot_be_is_named_without_its_value(key: str) -> None:
    wrong: Any = {key: [SECRETS[0]]}
    message = failure_of(lambda: glaive.dataset("s3://b/t", storage_options=wrong))
    assert key in message
    check(message)


@pytest.mark.parametrize("start", ["", "//", "http:/"])
@pytest.mark.parametrize("key", ["aws_endpoint", "azure_endpoint", "dynamodb_endpoint"])
def test_an_address_without_a_scheme_is_named_without_its_password(key: str, start: str) -> None:
    store = {"azure_endpoint": "az://b/t"}.get(key, "s3://b/t")
    given = {key: f"{start}me:{SECRETS[0]}@127.0.0.1:9", "aws_region": "us-east-1"}
    register = "dynamodb://T" if key == "dynamodb_endpoint" else None
    said = failure_of(lambda: glaive.dataset(store, storage_options=given, manifest_store=register))
    assert "with http:// or https:// before the host" in said
    check(said)


@pytest.mark.parametrize("key", ["google_service_account", "google_service_account_key"])
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("write", [str, json.dumps], ids=["JSON", "a text of JSON"])
def test_a_key_of_google_in_the_wrong_place_is_in_no_error(
    key: str, end: str, write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = write(json.dumps({"private_key": f"é '\n{SECRETS[1]}\n", "id": 5})) + end
    check(failure_of(lambda: open_store("gs://b/t", {key: value})))
    monkeypatch.setenv(key.upper(), value)
    check(failure_of(lambda: open_store("gs://b/t")))


@pytest.mark.parametrize(
    "root",
    [
        f"memory://shown/t?sig={SECRETS[0]}",
        f"https://127.0.0.1:9/t?token={SECRETS[0]}",
        f"fsspec+memory://host/t?sig={SECRETS[0]}",
        f"https://me:{SECRETS[0]}@127.0.0.1:9/t",
    ],
)
def test_no_representation_has_the_password_of_a_uri(root: str) -> None:
    catalogue = DirectoryNamespace(root=root)
    shown = [repr(catalogue), catalogue.namespace_id(), repr(RestAdapter(catalogue))]
    shown += [repr(catalogue.settings), repr(catalogue.manifest), repr(glaive.Blob(uri=root))]
    shown.append(repr(glaive.DatasetBasePath(root)))
    assert all("/t" in text for text in shown)
    check(shown)


def test_a_catalogue_whose_root_has_a_password_is_refused() -> None:
    """Its tables would be looked for, and written, without it."""
    for root in (f"fsspec+memory://me:{SECRETS[0]}@host/t", f"ftp://me:{SECRETS[0]}@host/t"):
        said = failure_of(lambda root=root: DirectoryNamespace(root=root))  # type: ignore[misc]  # of this turn
        assert "storage.password" in said
        check(said)


def test_settings_of_a_catalogue_in_a_directory_show_no_options_of_its_store() -> None:
    found = DirectorySettings.of({"root": "/catalogue", "storage.password": SECRETS[0]})
    assert found.storage_options == {"password": SECRETS[0]}
    assert "/catalogue" in repr(found)
    check(found)


class _OtherClient:
    """A client of another package, whose errors have all that a server said."""

    said = (
        "HTTP response headers: HTTPHeaderDict({'Set-Cookie': 'id={0}; Path=/'})\n"
        "HTTP response body: no Authorization: Bearer {0}, nor {'aws_session_token': '{0}'}"
    ).replace("{0}", SECRETS[1])

    def __getattr__(self, name: str) -> Any:
        def refuse(_: object) -> Any:
            raise RuntimeError(self.said)

        return refuse


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: glaive.dataset(namespace_client=client, table_id=["t"]),
        lambda client: CatalogueManifestStore(client, ("t",), "s3://b/t").latest("s3://b/t"),
    ],
    ids=["where a table is", "which version is the newest"],
)
def test_no_message_has_a_credential_that_a_client_of_a_catalogue_repeats(ask: Any) -> None:
    with pytest.raises(StoreError, match="HTTP response body: no Authorization") as refused:
        ask(_OtherClient())
    assert SECRETS[1] not in str(refused.value)
