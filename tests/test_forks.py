"""Calls in children that are forked, and in handlers of signals, amid other calls."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def run(program: str, *arguments: str) -> str:
    """What a program writes in a process of its own, which has to end well."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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
    run(PROGRAM, str(tmp_path / "t"), "6")


AMID_OTHERS = """
import faulthandler, gc, signal, sys

import pyarrow as pa
import glaive

place, how = sys.argv[1:]
rows = pa.table({"id": range(20_000), "t": [f"x{at % 37}" for at in range(20_000)]})
shared = glaive.write_dataset(rows, place, max_rows_per_file=2000)
inside, done = False, 0


def amid(*_):
    global inside, done
    if inside:
        return
    inside = True
    assert shared.to_table().num_rows == 20_000
    assert shared.take([1, 19_000]).num_rows == 2
    assert glaive.dataset(place, session=shared.session()).count_rows("id < 7") == 7
    done += 1
    inside = False


class Ends:
    def __init__(self):
        self.cycle = self

    def __del__(self):
        amid()


def read():
    global shared
    shared = glaive.dataset(place)
    if how == "garbage":
        cycles = [Ends() for _ in range(5)]
        del cycles
    assert shared.to_table().num_rows == 20_000
    assert shared.to_table(filter="id > 100 and id < 300").num_rows == 199
    assert shared.take([5, 8000, 12_345]).num_rows == 3


inside = True
read()  # imports all that it needs, and links kernels
inside = False
amid()
faulthandler.dump_traceback_later(60, exit=True)
if how == "signal":
    signal.signal(signal.SIGALRM, amid)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.002)
for _ in range(60):
    read()
signal.setitimer(signal.ITIMER_REAL, 0)
assert done > 20, done
"""


@pytest.mark.sampled(every=2)
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers")
@pytest.mark.parametrize("how", ["signal", "garbage"])
def test_a_handler_or_the_end_of_an_object_reads_amid_other_calls(tmp_path: Path, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AMID_OTHERS, str(tmp_path / "t"), how],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" not in done.stderr


LEFT_CALLS = """
import os, sys
from pathlib import Path

import pyarrow as pa
import glaive
from glaive._dataset.cache import CachedDataset
from glaive.file import LanceFileWriter
from glaive.ingestion import ingest
from glaive.torch.batch_cache import BatchCache

place, parent = sys.argv[1], os.getpid()
schema = pa.schema([("id", pa.int64()), ("v", pa.string())])


def fork(at=7):
    if at == 7:
        child = os.fork()
        if not child:
            sys.exit(0)  # out of all calls of the parent
        os.waitpid(child, 0)


def batches(change=fork, value="x" * 100):
    for at in range(10):
        change(at)
        yield pa.record_batch([range(at * 100, at * 100 + 100), [value] * 100], schema=schema)


def double(batch):
    fork(int(batch["id"][0].as_py()) // 100)
    return pa.record_batch({"twice": batch["id"]})


def progress(done, _):
    fork(7 if done == 2 else 0)


def append():
    glaive.write_dataset(batches(), place, schema=schema, mode="append", max_rows_per_file=150)


def append_to_one_file():
    glaive.write_dataset(batches(), place, schema=schema, mode="append")


def add_a_column():
    glaive.dataset(place).add_columns(double, read_columns=["id"])


def index():
    written = iter([0, 7])
    glaive.dataset(place).create_scalar_index(
        "id", "BTREE", progress_callback=lambda _: fork(next(written, 0))
    )


def read_files():
    for at in range(4):
        Path(f"{place}-{at}.csv").write_text(f"id\\n{at}\\n")
    ingest(f"{place}-*.csv", f"{place}-2", task_bytes=1, progress=progress)
    assert glaive.dataset(f"{place}-2").to_table().num_rows == 4


def merge():
    uri = f"{place}-3"
    glaive.write_dataset(batches(lambda _: None, "old"), uri, schema=schema)
    builder = glaive.dataset(uri).merge_insert("id").when_matched_update_all()
    builder.memory_limit(1 << 12).execute(batches(), schema=schema)
    assert glaive.dataset(uri).count_rows("v = 'old'") == 0


def keep_batches():
    found = BatchCache(batches)
    first = [batch for batch in found]
    assert [batch for batch in found] == first
    with CachedDataset(first) as cache:
        for _ in range(2):
            for at, _ in enumerate(cache):
                fork(at)
        assert list(cache) == first


def write_a_file():
    with LanceFileWriter(f"{place}.lance") as writer:
        for batch in batches():
            writer.write_batch(batch)
    assert Path(f"{place}.lance").exists()


glaive.write_dataset(batches(lambda _: None), place, schema=schema, max_rows_per_file=100)
columns = (append, append_to_one_file, add_a_column, index)
for call in (*columns, read_files, merge, keep_batches, write_a_file):
    call()
    found = glaive.dataset(place)
    assert found.to_table().num_rows == found.count_rows("id >= 0"), call.__name__
assert found.to_table(columns=["twice"]).num_rows == 3000
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork processes")
@pytest.mark.spec("rel-1")
def test_a_child_that_leaves_the_calls_of_its_parent_changes_none_of_their_files(
    tmp_path: Path,
) -> None:
    run(LEFT_CALLS, str(tmp_path / "t"))


LEFT_SINK = """
import os, sys
import tests.distant
from glaive.io.access import open_store

store = open_store(f"fsspec+distant://{sys.argv[1]}")
sink = store.create("x")
sink.write([b"it waits, "])
try:
    child = os.fork()
    if not child:
        sys.exit(0)
except BaseException:
    sink.abort()
    raise
os.waitpid(child, 0)
sink.write([b"and is written once"])
sink.finish()
print(store.get("x").to_pybytes())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork processes")
@pytest.mark.spec("rel-1")
def test_a_child_that_gives_up_an_upload_of_its_parent_neither_ends_nor_removes_it(
    tmp_path: Path,
) -> None:
    pytest.importorskip("fsspec", reason="install the extra 'fsspec'")
    assert run(LEFT_SINK, str(tmp_path)).strip() == "b'it waits, and is written once'"
