"""Servers that send other bodies than they stated: memory follows what was asked for."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from time import sleep

import pytest

import glaive
from glaive.errors import StoreError
from glaive.io.access import open_store
from glaive.io.store import ObjectStore
from glaive.types import ByteRange

OBJECT = b"".join(number.to_bytes(4, "big") for number in range(250_000))
SIZE = len(OBJECT)
MOST = 64 * 1024 * 1024
MEBIBYTE = bytes(1024 * 1024)
OPTIONS = {"download_retry_count": "1", "client_max_retries": "0", "allow_http": "true"}
KEYS = {"aws_access_key_id": "x", "aws_secret_access_key": "y", "aws_region": "us-east-1"}

READS: dict[str, Callable[[ObjectStore], object]] = {
    "whole": lambda store: store.get("x"),
    "tail": lambda store: store.open("x").tail(100),
    "range": lambda store: store.open("x", size=SIZE).read([ByteRange(10, 100)]),
}


class Sender:
    """A server of one object, that goes on after the end of each body, or breaks off early."""

    def __init__(self, *, endless: bool, stated: int = SIZE) -> None:
        self.endless, self.stated, self.sent = endless, stated, 0

    def answer(self, client: socket.socket) -> None:
        """Answer one request with a range that is right, and a body that is not."""
        request = b""
        while b"\r\n\r\n" not in request:
            request += client.recv(65536)
        lines = request.decode().split("\r\n")
        asked = next((line for line in lines if line.lower().startswith("range:")), "")
        start, stop, status = 0, self.stated, "200 OK"
        if asked:
            first, _, last = asked.partition("=")[2].partition("-")
            start = int(first) if first else self.stated - int(last)
            stop = int(last) + 1 if first else self.stated
            status = "206 Partial Content"
        head = f"HTTP/1.1 {status}\r\nContent-Length: {stop - start}\r\nConnection: close\r\n"
        head += "Last-Modified: Tue, 21 Oct 2025 07:28:00 GMT\r\n"
        head += f"Content-Range: bytes {start}-{stop - 1}/{self.stated}\r\n" if asked else ""
        if lines[0].startswith("HEAD"):
            client.sendall(f"{head}\r\n".encode())
        elif not self.endless:
            client.sendall(f"{head}\r\n".encode() + OBJECT[start:stop])
        else:
            client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            while self.sent < MOST:
                client.sendall(b"100000\r\n" + MEBIBYTE + b"\r\n")
                self.sent += len(MEBIBYTE)
            client.sendall(b"0\r\n\r\n")


@contextmanager
def serving(sender: Sender) -> Iterator[str]:
    """The server's address; it ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve(client: socket.socket) -> None:
            with client, suppress(OSError):
                sender.answer(client)

        def loop() -> None:
            with suppress(OSError):
                while True:
                    Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

        Thread(target=loop, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def opened(url: str, kind: str) -> ObjectStore:
    """A store whose server this is."""
    if kind == "web":
        return open_store(f"{url}/d", OPTIONS)
    return open_store("s3://b/d", {**OPTIONS, **KEYS, "aws_endpoint": url})


@pytest.mark.spec("rel-24", "sec-10")
@pytest.mark.parametrize("kind", ["web", "bucket"])
@pytest.mark.parametrize("read", READS)
def test_a_body_that_goes_on_after_its_end_is_an_error(kind: str, read: str) -> None:
    with serving(sender := Sender(endless=True)) as url:
        store = opened(url, kind)
        with pytest.raises(StoreError, match=r"/d/x: the server sent more bytes than the \d+ "):
            READS[read](store)
        assert sender.sent < MOST


@pytest.mark.spec("rel-24")
def test_so_is_one_of_several_ranges_of_a_web_server() -> None:
    with serving(sender := Sender(endless=True, stated=10**7)) as url:
        far = [ByteRange(start, 100) for start in range(0, 10**7, 10**6)]
        with pytest.raises(StoreError, match="more bytes than the 100 that it had to"):
            opened(url, "web").open("x").read(far)
        assert sender.sent < MOST


def test_a_message_has_the_beginning_of_what_a_server_answered() -> None:
    class Refusing(Sender):
        def answer(self, client: socket.socket) -> None:
            client.recv(65536)
            text = b"https://me:secret" + b"x" * 10**6 + b"@host " + b"y" * 10**6
            client.sendall(b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n" % len(text) + text)

    with serving(Refusing(endless=False)) as url, pytest.raises(StoreError) as caught:
        opened(url, "bucket").get("x")
    assert len(str(caught.value)) < 3000
    assert "secret" not in str(caught.value)


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize(
    ("kind", "ask", "answer"),
    [
        ("bucket", lambda store: store.delete(["x"]), "200 OK"),
        ("bucket", lambda store: store.get("x"), "404 No"),
        ("web", lambda store: store.get("x"), "404 No"),
        ("web", lambda store: list(store.list("x")), "207 Multi-Status"),
    ],
    ids=["another object", "an error", "an error of a web server", "a listing"],
)
def test_what_the_client_panics_at_is_an_error(
    kind: str, ask: Callable[[ObjectStore], object], answer: str
) -> None:
    refused = b"<Error><Key>other</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    body = b"<DeleteResult>%s</DeleteResult>" % refused
    length = len(body) if kind == "bucket" and answer == "200 OK" else 1 << 63

    class Wrong(Sender):
        def answer(self, client: socket.socket) -> None:
            client.recv(65536)
            client.sendall(f"HTTP/1.1 {answer}\r\nContent-Length: {length}\r\n\r\n".encode())
            for piece in (body[:9], body[9:20], body[20:]):
                client.sendall(piece)
                sleep(0.05)  # they come one by one
            client.recv(1)

    with serving(Wrong(endless=False)) as url, pytest.raises(StoreError, match="/d") as found:
        ask(opened(url, kind))
    assert found.value.is_unanswered, "what was asked for may have been done"


@pytest.mark.spec("rel-23", "sec-10")
@pytest.mark.parametrize("kind", ["web", "bucket"])
@pytest.mark.parametrize("stated", [10**12, 1 << 62, (1 << 63) - 1])
def test_a_length_that_no_object_has_takes_no_memory(kind: str, stated: int) -> None:
    with (
        serving(Sender(endless=False, stated=stated)) as url,
        pytest.raises(StoreError, match="cannot read"),
    ):
        opened(url, kind).get("x")


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("kind", ["web", "bucket"])
def test_neither_do_ranges_of_such_an_object(kind: str) -> None:
    with serving(Sender(endless=False, stated=1 << 60)) as url:
        reader = opened(url, kind).open("x", size=1 << 60)
        with pytest.raises(StoreError, match="cannot read"):
            reader.read([ByteRange(0, 10), ByteRange(1 << 17, 1 << 50)])


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.png"])
@pytest.mark.parametrize("stated", [(1 << 63) - 1, (1 << 64) - 1])
def test_a_source_of_such_a_length_is_an_error(tmp_path: Path, name: str, stated: int) -> None:
    with (
        serving(Sender(endless=False, stated=stated)) as url,
        pytest.raises(StoreError, match=f"{name}: the store says that it has {stated} bytes"),
    ):
        glaive.ingest(f"{url}/{name}", tmp_path / "t", source_options=OPTIONS)


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("kind", ["web", "bucket"])
def test_the_size_of_an_object_is_one_that_files_can_have(kind: str) -> None:
    stated = (1 << 64) - 1
    with (
        serving(Sender(endless=False, stated=stated)) as url,
        pytest.raises(StoreError, match=f"d/x: the store says that it has {stated} bytes"),
    ):
        opened(url, kind).head("x")


@pytest.mark.spec("rel-42")
def test_so_are_sizes_in_a_listing() -> None:
    stated = (1 << 64) - 1

    class Listing(Sender):
        def answer(self, client: socket.socket) -> None:
            client.recv(65536)
            changed = "<LastModified>2025-10-21T07:28:00.000Z</LastModified>"
            found = f"<Contents><Key>d/x</Key>{changed}<Size>{stated}</Size></Contents>"
            body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>"
            client.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    with (
        serving(Listing(endless=False)) as url,
        pytest.raises(StoreError, match=f"d/x: the store says that it has {stated} bytes"),
    ):
        list(opened(url, "bucket").walk(""))


def test_several_ranges_of_a_web_server_come_in_their_order() -> None:
    with serving(Sender(endless=False)) as url:
        reader = opened(url, "web").open("x")
        starts = [900_000, 0, 500_000, 250_003, 700_001]
        ranges = [ByteRange(start, start % 7 * 10) for start in starts]
        buffers = reader.read(ranges)
        assert [one.to_pybytes() for one in buffers] == [
            OBJECT[offset : offset + size] for offset, size in ranges
        ]
        assert reader.tail(10).to_pybytes() == OBJECT[-10:]
        assert opened(url, "web").get("x").to_pybytes() == OBJECT
