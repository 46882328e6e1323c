"""Datasets that lead elsewhere: to servers and files that their reader did not name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.format.pb import table_pb2
from glaive.format.transaction import Transaction
from glaive.table.commit import commit_transaction
from glaive.table.operations.overwrite import Append
from glaive.table.operations.update_config import UpdateBases

__all__ = ["CONTENT", "SECRET", "Stranger", "below_base", "blob_in", "contents_of", "listening"]

CONTENT = b"content of a stranger" * 10

SECRET = b"-----BEGIN PRIVATE KEY-----" * 9
"""Content of a file that no dataset may lead to."""


@dataclass(slots=True)
class Stranger:
    """A server on loopback that notes what it is asked, with all headers."""

    url: str = ""
    asked: list[str] = field(default_factory=list)
    moved_to: str = ""
    content: bytes = CONTENT


@contextmanager
def listening() -> Iterator[Stranger]:
    """A server that answers everything, by sending on to ``moved_to`` if that is set."""
    stranger = Stranger()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):
                return self._answer
            raise AttributeError(name)

        def _answer(self) -> None:
            stranger.asked.append(f"{self.requestline}\n{self.headers}")
            body = b"" if stranger.moved_to else stranger.content
            self.send_response(307 if stranger.moved_to else 200)
            if stranger.moved_to:
                self.send_header("Location", f"{stranger.moved_to}{self.path}")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    stranger.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stranger
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def below_base(
    place: str | Path, base: str, rows: pa.Table, *, name: str | None = None, is_root: bool = True
) -> LanceDataset:
    """A dataset whose second fragment says that its file lies below a base path."""
    dataset = glaive.write_dataset(rows, place)
    # Not by way of users' values: these are checked, as whoever is no stranger wants it.
    given = UpdateBases((table_pb2.BasePath(id=7, is_dataset_root=is_root, path=base),))
    commit_transaction(dataset.store, Transaction(read_version=1, operation=given))
    first = dataset.manifest.fragment(0)
    (file,) = first.files
    moved = replace(file, path=name or file.path, base_id=7)
    operation = Append((replace(first, files=(moved,)),))
    commit_transaction(dataset.store, Transaction(read_version=2, operation=operation))
    return glaive.dataset(place)


def blob_in(folder: Path, place: str | Path) -> None:
    """Write a dataset whose only blob, ``CONTENT``, is the file ``a.bin`` of a folder elsewhere."""
    folder.mkdir()
    (folder / "a.bin").write_bytes(CONTENT)
    schema = pa.schema([pa.field("id", pa.int64()), glaive.blob_field("b")])
    uris = [(folder / "a.bin").as_uri()]
    rows = pa.table([pa.array([1]), glaive.blob_array(uris)], schema=schema)
    glaive.write_dataset(rows, place, allow_external_blob_outside_bases=True)


def contents_of(place: Path) -> bytes:
    """All bytes of all files below a directory."""
    return b"".join(path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file())
