"""Storage options, the bound on requests, repeated reads, and the count of both."""

from __future__ import annotations

import os
import pickle
import signal
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.replaced import replaced_clock

from glaive.errors import GlaiveError, OptionError, StoreError
from glaive.io.access import open_store
from glaive.io.local import LocalStore
from glaive.io.remote import RequestLimit, is_transient, repeating
from glaive.io.storage_options import MAX_RETRIES, StoreKind, normalise_options, read_options
from glaive.io.store import IoCounters, IOStats
from glaive.namespace.rest import refusal_of_options
from glaive.process import Clock
from glaive.testing import CountingStore


class TestOptions:
    @pytest.mark.parametrize(
        ("kind", "given_key", "full"),
        [
            ("s3", "region", "aws_region"),
            ("s3", "AWS_ENDPOINT_URL", "aws_endpoint"),
            ("s3", "token", "aws_session_token"),
            ("gs", "service_account_key", "google_service_account_key"),
            ("gs", "GOOGLE_STORAGE_TOKEN", "google_bearer_token"),
            ("az", "account_name", "azure_storage_account_name"),
            ("az", "azure_storage_sas_token", "azure_storage_sas_key"),
        ],
    )
    def test_spellings_come_to_one_name(self, kind: StoreKind, given_key: str, full: str) -> None:
        given = read_options(kind, {given_key: "http://x" if "URL" in given_key else "x"}, uri="u")
        assert [*given.config] == [full]

    def test_full_names_win_then_those_in_other_letters(self) -> None:
        options = {"region": "c", "AWS_REGION": "b", "aws_region": "a"}
        assert read_options("s3", options, uri="u").config == {"aws_region": "a"}
        del options["aws_region"]
        assert read_options("s3", options, uri="u").config == {"aws_region": "b"}

    def test_keys_without_an_effect_take_few_comparisons_and_lines(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compared: list[str] = []

        def close(word: str, possibilities: Any, n: int) -> list[str]:
            compared.append(word)
            return get_close_matches(word, possibilities, n)

        monkeypatch.setattr("difflib.get_close_matches", close)
        options = {f"aws_access_key_{'x' * (at % 90)}{at}": "" for at in range(20_000)}
        read_options("s3", {"aws_regoin": "x", "long" * 100_000: "x", **options}, uri="u")
        assert 0 < len(compared) < 20
        assert max(map(len, compared)) < 200
        assert len(caplog.records) < 20
        assert len(caplog.text) < 5_000
        assert "did you mean" in caplog.text
        assert "other keys" in caplog.text

    def test_the_client_and_the_repetitions_are_told_apart(self) -> None:
        options = {"TIMEOUT": "3s", "client_max_retries": "7", "Client_Retry_Timeout": "9"}
        connection = read_options("s3", options, uri="u")
        assert connection.client == {"timeout": "3s"}
        assert connection.retry == {"max_retries": 7, "retry_timeout": timedelta(seconds=9)}
        assert connection.config == {}

    @pytest.mark.parametrize(
        ("kind", "name"),
        [("s3", "aws_allow_http"), ("gs", "GOOGLE_ALLOW_HTTP"), ("az", "azure_allow_http")],
    )
    def test_that_connections_may_be_plain_has_a_name_for_each_kind(
        self, kind: StoreKind, name: str
    ) -> None:
        connection = read_options(kind, {name: "true"}, uri="u")
        assert (connection.client, connection.config) == ({"allow_http": "true"}, {})
        both = read_options(kind, {name: "true", "allow_http": "false"}, uri="u")
        assert both.client == {"allow_http": "false"}
        assert refusal_of_options({name: "true"}, f"{kind}://b/t") is None

    @pytest.mark.parametrize("value", ["", "many", "-1", "1.5"])
    def test_a_number_that_is_none_counts_as_not_given(self, value: str) -> None:
        connection = read_options("s3", {"client_max_retries": value}, uri="u")
        assert connection.retry["max_retries"] == MAX_RETRIES

    def test_values_become_text(self) -> None:
        assert normalise_options({"a": True, "b": 5, "c": "x"}) == {"a": "true", "b": "5", "c": "x"}
        assert normalise_options(None) == {}

    @pytest.mark.parametrize("options", [{"a": None}, {"a": b"x"}, {5: "x"}])
    def test_what_is_no_option_is_refused(self, options: Any) -> None:
        with pytest.raises(OptionError, match="storage_options"):
            open_store("memory://x/y", options)

    @given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=5))
    def test_no_options_break_it(self, options: dict[str, str]) -> None:
        for kind in get_args(StoreKind):
            with suppress(OptionError):  # control characters in a password
                read_options(kind, options, uri="u")


class TestForcing:
    @pytest.mark.parametrize("value", ["true", "1", "ON"])
    def test_files_and_directories_are_forced_to_disk_where_asked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
    ) -> None:
        forced: list[bool] = []
        monkeypatch.setattr(
            os, "fsync", lambda fd: forced.append(stat.S_ISDIR(os.fstat(fd).st_mode))
        )
        LocalStore(tmp_path, {"FSYNC": value}).put("x", [b"1"], mode="create")
        assert forced == [False, True]
        LocalStore(tmp_path, {"fsync": "false"}).put("y", [b"1"])
        assert forced == [False, True]

    def test_other_values_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="fsync is true or false, found 'maybe'"):
            open_store(tmp_path, {"fsync": "maybe"})


class TestRequestLimit:
    def test_no_more_than_its_width_pass(self) -> None:
        limit, under_way, most = RequestLimit(5), [0], [0]
        lock = threading.Lock()

        def work(requests: int) -> None:
            with limit.acquire(requests):
                with lock:
                    under_way[0] += requests
                    most[0] = max(most[0], under_way[0])
                time.sleep(0.001)
                with lock:
                    under_way[0] -= requests

        threads = [threading.Thread(target=work, args=(1 + i % 3,)) for i in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert under_way == [0]
        assert 3 <= most[0] <= 5

    def test_one_that_wants_more_passes_alone_and_a_failure_makes_room(self) -> None:
        limit = RequestLimit(2)
        with pytest.raises(RuntimeError), limit.acquire(10):
            raise RuntimeError
        with limit.acquire(2):
            pass

    def test_a_handler_amid_requests_of_its_thread_does_not_wait_for_them(self) -> None:
        limit = RequestLimit(2)
        with limit.acquire(2), limit.acquire(1):
            pass

        def all_of_it() -> bool:
            with limit.acquire(2):
                return True

        with ThreadPoolExecutor(1) as other:
            assert other.submit(all_of_it).result(timeout=10)

    @pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers")
    def test_other_threads_go_on_whenever_ctrl_c_comes(self) -> None:
        limit = RequestLimit(3)

        def all_of_it() -> bool:
            with limit.acquire(3):
                return True

        end = time.monotonic() + 2

        def interrupt(*_: object) -> None:
            if time.monotonic() < end - 0.1:  # the loops below catch it
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            while time.monotonic() < end:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0003)
                    # Python drops an exception that a finaliser raises: no second signal comes.
                    while time.monotonic() < end:
                        with limit.acquire(1):
                            pass
                except KeyboardInterrupt:
                    continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        other = threading.Thread(target=all_of_it, daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive()


class TestRepeating:
    @staticmethod
    def failing(times: int, error: Exception) -> tuple[Callable[[], str], list[int]]:
        calls: list[int] = []

        def read() -> str:
            calls.append(1)
            if len(calls) <= times:
                raise error
            return "read"

        return read, calls

    @pytest.mark.sampled(every=2)
    @pytest.mark.parametrize(
        "error",
        [
            ConnectionResetError("by peer"),
            TimeoutError("too long"),
            OSError("error: request or response body error"),
            ValueError("connection closed before message completed"),
            RuntimeError("Server error '500 Internal Server Error' for url 'http://a/b'"),
        ],
    )
    def test_what_broke_off_is_asked_for_again(self, error: Exception) -> None:
        read, calls = self.failing(2, error)
        assert repeating(read, 2, refusals=(Exception,)) == "read"
        assert len(calls) == 3
        read, calls = self.failing(3, error)
        with pytest.raises(type(error)):
            repeating(read, 2, refusals=(Exception,))

    def test_it_may_be_asked_for_any_number_of_times(self) -> None:
        class Hasty(Clock):
            def sleep(self, seconds: float) -> None:
                assert 0 <= seconds <= 10

        read, calls = self.failing(2000, OSError("timed out"))
        with replaced_clock(Hasty()):
            assert repeating(read, 2000, refusals=(Exception,)) == "read"
        assert len(calls) == 2001

    @pytest.mark.parametrize(
        "error",
        [
            FileNotFoundError("timeout.lance"),
            PermissionError("body"),
            OSError("no such bucket"),
            OSError("error sending request, after 3 retries, timed out"),
            StoreError("refused"),
        ],
    )
    def test_what_will_not_help_is_not_repeated(self, error: Exception) -> None:
        assert not is_transient(error)
        read, calls = self.failing(1, error)
        with pytest.raises(type(error)):
            repeating(read, 5, refusals=(Exception,))
        assert len(calls) == 1


class TestCounters:
    def test_they_add_up_and_begin_anew(self) -> None:
        counters = IoCounters()
        counters.add_read(2, 30)
        counters.add_write(1, 7)
        counters.add_read(1, 5)
        expected = IOStats(read_iops=3, read_bytes=35, write_iops=1, written_bytes=7)
        assert counters.snapshot() == counters.snapshot() == expected
        assert counters.take() == expected
        assert counters.snapshot() == IOStats()
        assert repr(expected) == (
            "IOStats(read_iops=3, read_bytes=35, write_iops=1, write_bytes=7)"
        )

    def test_those_of_a_wrapped_store_are_found(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path)
        assert CountingStore(store).counters is store.counters


NO_RETRIES = {"client_max_retries": "0", "max_retries": "0"}


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    "uri",
    [
        "ftp://somebody:hush@127.0.0.1:9/x",
        "http://somebody:hush@127.0.0.1:9/x",
        "http://127.0.0.1:9/x?v=1&sig=hush",
        "nothing://somebody:hush@place/x",
    ],
)
def test_messages_hold_no_password_of_a_url(uri: str) -> None:
    error = StoreError(f"cannot read {uri}: GET {uri.replace('?', '%3F')} failed")
    for shown in (str(error), repr(error), str(pickle.loads(pickle.dumps(error)))):
        assert "hush" not in shown
        assert "127.0.0.1:9/x" in shown or "place/x" in shown
    with pytest.raises(GlaiveError) as caught:
        open_store(uri, NO_RETRIES).get("a")
    assert "hush" not in str(caught.value)


@pytest.mark.sampled(every=3)
@pytest.mark.spec("rel-27")
@pytest.mark.parametrize("key", ["sig", "token", "X-Amz-Signature"])
def test_messages_hold_no_key_of_a_url_that_is_a_parameter_of_another(key: str) -> None:
    """As the prefix of a listing is, in which servers get the parameters of a URL."""
    place = {"aws_endpoint": "http://127.0.0.1:9", "aws_skip_signature": "true", "aws_region": "x"}
    for rest in ("", "&v=1", "/t.lance"):
        store = open_store(f"s3://bucket/x?{key}=hush%2B1{rest}", NO_RETRIES | place)
        with pytest.raises(StoreError, match=r"cannot list .*prefix=x") as caught:
            list(store.list("_versions"))
        assert "hush" not in str(caught.value)


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize(
    ("uri", "key"),
    [
        ("s3://bucket/x", "token"),
        ("s3://bucket/x", "AWS_ACCESS_KEY_ID"),
        ("s3://bucket/x", "aws_region"),
        ("az://c/x", "bearer_token"),
        ("gs://bucket/x", "google_storage_token"),
        ("s3://bucket/x", "default_content_type"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\nX: y", "\0", "\x7f"])
def test_a_value_with_a_line_end_is_an_error_and_no_panic(uri: str, key: str, end: str) -> None:
    """As of a token that was read from a file."""
    with pytest.raises(OptionError, match="has a control character") as caught:
        open_store(uri, {key: f"secret{end}"})
    assert "secret" not in str(caught.value)


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize(
    ("uri", "variable"),
    [
        ("s3://bucket/x", "AWS_SESSION_TOKEN"),
        ("s3://bucket/x", "AWS_ENDPOINT_URL"),
        ("az://c/x", "AZURE_STORAGE_TOKEN"),
        ("gs://bucket/x", "GOOGLE_BEARER_TOKEN"),
    ],
)
def test_a_variable_with_a_line_end_is_an_error_unless_an_option_takes_its_place(
    uri: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "secret\r")
    with pytest.raises(OptionError, match=f"the variable {variable}.*control") as caught:
        open_store(uri, {})
    assert "secret" not in str(caught.value)
    read_options(uri[:2], {variable.lower(): "http://sound"}, uri=uri)
    read_options("http", {}, uri="http://127.0.0.1/x")


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize(
    ("uri", "key", "wrong"),
    [
        ("s3://bucket/x", "aws_endpoint", "localhost:9000"),
        ("s3://bucket/x", "endpoint_url", "http:/127.0.0.1:9"),
        ("s3://bucket/x", "AWS_ENDPOINT", "http://127.0.0.1:99999"),
        ("s3://bucket/x", "aws_endpoint", "http://a b"),
        ("s3://bucket/x", "aws_endpoint", ""),
        ("gs://bucket/x", "google_base_url", "http://["),
        ("az://c/x", "azure_endpoint", "http:/127.0.0.1:9"),
        ("s3://bucket/x", "region", "eu west"),
    ],
)
def test_what_is_no_address_or_region_is_an_error_and_no_panic(
    uri: str, key: str, wrong: str
) -> None:
    with pytest.raises(OptionError, match=f"'{key.lower()}' in storage_options: expected"):
        open_store(uri, {key: wrong, "client_max_retries": "0"}).get("a")


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "https://[::1]:9/a/b", "http://a_b/"])
def test_addresses_of_stores_are_taken(address: str) -> None:
    read_options("s3", {"aws_endpoint": address}, uri="s3://bucket/x")


def test_values_of_several_lines_and_numbers_without_end_are_taken() -> None:
    certificate = "-----BEGIN CERTIFICATE-----\n"
    options = {"google_service_account_key": "{\n}", "root_certificate": certificate}
    assert read_options("gs", options, uri="gs://b/x").client == {"root_certificate": certificate}
    for digits in ("9" * 30, "9" * 5000):
        retry = {"client_max_retries": digits, "client_retry_timeout": digits}
        assert read_options("s3", retry, uri="s3://b/x").retry["max_retries"] == MAX_RETRIES


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize("most", [40, 60, 80, 100, 200])
def test_messages_that_cut_a_uri_hold_no_part_of_its_password(most: int) -> None:
    text = f"https://oauth2:pat_{'MARKED' * 40}@host/t.lance"
    shown = str(OptionError(f"uri: expected an address, found {text!r:.{most}}. Correct it"))
    assert shown == "uri: expected an address, found 'https://oauth2:*** Correct it"
    shown = str(OptionError(f"found {[text]!r:.{most}}, which is no place"))
    assert shown == "found ['https://oauth2:***, which is no place"


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:2333: no answer",
        "https://[fd00:abcd:efab::1]:80/x",
        "fsspec+zip://table.lance::/data/archive.zip",
        "mongodb://host1:27017,host2:27017/db",
        "file:///C:/data/things",
        "file://C:/data/things",
        "s3://bucket/a:longer-name",
        "sc://host:15002/;user_id=somebody",
        r"b'GET http://host:8080\r\nAccept: '",
        "hdfs://host:${hdfs_port}/data",
    ],
)
def test_messages_show_hosts_with_ports_as_they_are(text: str) -> None:
    assert str(OptionError(f"found {text}")) == f"found {text}"
