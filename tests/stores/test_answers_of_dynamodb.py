"""What a server answers instead of DynamoDB is an entry of the version, or an error of glaive."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from glaive.errors import StoreError
from glaive.table.manifest_registers import DynamoManifestStore

ENTRY = '{"version": {"N": %s}, "path": {"S": "t/_versions/1.manifest"}, "size": {"N": %s}}'


@contextmanager
def answering(answer: str) -> Iterator[DynamoManifestStore]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    options = {
        "aws_region": "us-east-1",
        "aws_access_key_id": "id",
        "aws_secret_access_key": "secret",
        "dynamodb_endpoint": f"http://127.0.0.1:{server.server_address[1]}",
    }
    try:
        yield DynamoManifestStore("T", options)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.sampled(every=3)
@pytest.mark.spec("rel-42")
@pytest.mark.parametrize(
    "entry",
    [
        ENTRY % ("1e999", '"1"'),
        ENTRY % ('"1"', "-1e999"),
        ENTRY % ('"1"', "Infinity"),
        ENTRY % ("NaN", '"1"'),
        "null",
    ],
    ids=["version", "size", "infinity", "nan", "null"],
)
def test_an_entry_with_numbers_that_are_none_is_refused(entry: str) -> None:
    with (
        answering(f'{{"Item": {entry}, "Items": [{entry}]}}') as register,
        pytest.raises(StoreError, match="table T has an invalid entry of t: "),
    ):
        register.latest("s3://bucket/t")


@pytest.mark.spec("rel-42")
def test_an_entry_of_another_version_than_was_asked_for_is_refused() -> None:
    entry = ENTRY % ('"1"', '"1"')
    with answering(f'{{"Item": {entry}}}') as register:
        found = register.get("s3://bucket/t", 1)
        assert found is not None
        assert found.version == 1
        with pytest.raises(StoreError, match="table T has an invalid entry of t: "):
            register.get("s3://bucket/t", 2)
