"""Builds of indices keep to their limit of memory: seen from outside, in new processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import glaive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

LIMIT = 32
"""MB that a build may hold."""

BESIDE = 110
"""MB that are held beside: up to four windows of 20 MB that are read, pages that are written."""

ROWS = {"BTREE": 4_000_000, "IVF_PQ": 300_000, "INVERTED": 120_000}
"""Rows that are more themselves, or take more without a limit."""

WORDS, WIDTH = 40, 128

_SCRIPT = """
import sys, threading
import glaive

page = __import__("resource").getpagesize()
small, large, limit = sys.argv[1:]

def held():  # without pages of mapped files
    with open("/proc/self/statm") as statm:
        _, resident, shared = statm.read().split()[:3]
    return (int(resident) - int(shared)) * page

def build(path, **options):
    dataset = glaive.dataset(path)
    {call}

build(small)  # loads modules and kernels
before, done, most = held(), threading.Event(), [0]

def watch():
    while not done.wait(0.001):
        most[0] = max(most[0], held())

threading.Thread(target=watch, daemon=True).start()
build(large, memory_limit=limit)
done.set()
print((most[0] - before) / 1e6)
"""

CALLS = {
    "BTREE": "dataset.create_scalar_index('key', 'BTREE', **options)",
    "INVERTED": "dataset.create_scalar_index('text', 'INVERTED', with_position=True, **options)",
    "IVF_PQ": (
        "dataset.create_index('vector', 'IVF_PQ', num_partitions=16, num_sub_vectors=4, "
        "sample_rate=32, max_iters=4, **options)"
    ),
}


def rows_of(kind: str, rows: int) -> pa.Table:
    """A column of the kind that is indexed."""
    random = np.random.default_rng(0)
    if kind == "BTREE":
        return pa.table({"key": random.permutation(rows)})
    if kind == "INVERTED":
        words = pa.array([f"word{number:04d}" for number in range(5_000)])
        picks = pa.array(random.integers(0, len(words), rows * WORDS))
        starts = pa.array(np.arange(0, rows * WORDS + 1, WORDS, np.int32))
        return pa.table(
            {"text": pc.binary_join(pa.ListArray.from_arrays(starts, words.take(picks)), " ")}
        )
    values = random.standard_normal(rows * WIDTH, np.float32)
    return pa.table({"vector": pa.FixedSizeListArray.from_arrays(values, WIDTH)})


def peak(folder: Path, kind: str, rows: int, limit: str) -> float:
    """MB that a process holds at most while it builds an index, above what it held before."""
    glaive.write_dataset(rows_of(kind, rows // 20), folder / "small")
    glaive.write_dataset(rows_of(kind, rows), folder / "large", max_rows_per_file=rows // 4)
    script = _SCRIPT.format(call=CALLS[kind])
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder / "small"), str(folder / "large"), limit],
        env={**os.environ, "GLAIVE_THREADS": "2"},  # each thread holds a batch
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "kind",
    [
        "BTREE",
        "IVF_PQ",
        pytest.param("INVERTED", marks=pytest.mark.nightly(reason="makes tokens of 40 MB")),
    ],
)
def test_a_build_keeps_to_its_limit(tmp_path: Path, kind: str) -> None:
    assert peak(tmp_path, kind, ROWS[kind], f"{LIMIT}MB") < LIMIT + BESIDE
