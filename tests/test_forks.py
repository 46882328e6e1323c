"""Children that are forked while other threads are in calls of the library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, random, signal, sys, time
from contextlib import suppress
from threading import Thread

import numpy as np
import pyarrow as pa
import glaive

place, rounds = sys.argv[1], int(sys.argv[2])
vectors = pa.FixedSizeListArray.from_arrays(np.arange(16_000, dtype=np.float32), 8)
texts = [f"word{at % 50}" for at in range(2000)]
rows = pa.table({"id": range(2000), "t": texts, "v": vectors})
shared = glaive.write_dataset(rows, place, max_rows_per_file=300)
shared.create_scalar_index("id", "BTREE")
shared.create_scalar_index("t", "INVERTED")
shared.create_index("v", "IVF_FLAT", num_partitions=4)


def scan(opened):
    assert opened.to_table().num_rows >= 2000


def search(opened):
    assert opened.to_table(filter="id = 3").num_rows >= 1
    assert opened.to_table(full_text_query="word3", limit=5).num_rows == 5
    assert opened.to_table(nearest={"column": "v", "q": [1.0] * 8, "k": 3}).num_rows == 3


def take(opened):
    assert opened.take([1, 5, 900]).num_rows == 3


def commit(opened):
    opened.delete("id < 0")


CALLS = (scan, search, take, commit)


def repeat(call):
    while True:
        call(shared if call is search else glaive.dataset(place))


for call in CALLS:
    call(glaive.dataset(place))
    Thread(target=repeat, args=(call,), daemon=True).start()
for at in range(rounds):
    time.sleep(random.random() / 10)
    child = os.fork()
    if not child:
        signal.alarm(60)
        with suppress(Exception):
            for call in CALLS:
                call(glaive.dataset(place))
            search(shared)
            os._exit(0)
        os._exit(1)
    if os.waitpid(child, 0)[1]:
        print(f"child {at} hung, or failed", file=sys.stderr, flush=True)
        os._exit(1)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork processes")
def test_children_scan_search_and_commit_whatever_threads_were_in_calls(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / "t"), "30"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
