"""Children that are forked from a process which works with buckets."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests.stores.server import Server

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

PROGRAM = """
import json, os, signal, sys

import pyarrow as pa
import glaive
from glaive.errors import StoreError

uri, options = sys.argv[1], json.loads(sys.argv[2])


def in_child(call):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0, "it hung, or failed"
        return
    signal.alarm(20)
    try:
        call()
    except StoreError as error:
        assert "forkserver" in str(error), error
        print(type(error).__name__, flush=True)
    else:
        print("done", flush=True)
    os._exit(0)


"""


def run(body: str, *arguments: str) -> list[str]:
    """What a program prints, which forks children."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM + body, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_children_forked_after_a_request_get_an_error_and_do_not_wait(server: Server) -> None:
    body = """
data = pa.table({"id": [1, 2, 3]})
in_child(lambda: glaive.write_dataset(data, uri, storage_options=options))
dataset = glaive.dataset(uri, storage_options=options)
for call in (
    dataset.to_table,
    dataset.checkout_latest,
    lambda: glaive.dataset(uri, storage_options=options),
    lambda: glaive.write_dataset(data, uri + "2", storage_options=options),
    lambda: dataset.delete("id = 1"),
    lambda: glaive.write_dataset(pa.table({"id": [4]}), "memory://name/t"),
):
    in_child(call)
assert dataset.count_rows() == 3
"""
    printed = run(body, f"s3://{server.bucket()}/t", json.dumps(server.options))
    assert printed[0] == printed[-1] == "done"
    assert len(printed) == 7
    assert "done" not in printed[1:-1]


def test_children_write_files_of_any_size_in_their_memory() -> None:
    body = """
data = pa.table({"v": pa.array([bytes(1000)] * 20_000)}).append_column(
    "id", pa.array([os.urandom(1000) for _ in range(20_000)])
)
first = glaive.write_dataset(data.slice(0, 10), uri)
in_child(lambda: glaive.write_dataset(data, uri, mode="append"))
"""
    assert run(body, "memory://name/t", "{}") == ["done"]
