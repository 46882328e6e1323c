"""Index files of few bytes are maintained some rows at a time, within the limit of a page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.traced import traced_peak

import glaive

pytestmark = pytest.mark.spec("rel-24")

ROWS = 20_000

MAINTAINED = """
import sys
import glaive

dataset = glaive.dataset(sys.argv[1])
how = sys.argv[2]
if how == "compact":
    dataset.optimize.compact_files()
else:
    dataset.optimize.optimize_indices(num_indices_to_merge=2)
(index,) = glaive.dataset(sys.argv[1]).describe_indices()
print(len(index.segments), index.num_rows_indexed)
"""


def maintained(place: Path, how: str, limit: str) -> list[int]:
    """Segments, and rows that they cover, once a process with a limit has maintained them."""
    done = subprocess.run(
        [sys.executable, "-c", MAINTAINED, str(place), how],
        env={**os.environ, "GLAIVE_MAX_DECODED_BYTES_PER_PAGE": limit},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [int(number) for number in done.stdout.split()]


def repeated(text: str) -> pa.Table:
    return pa.table({"t": pa.array([text]).take(pa.array([0] * ROWS))})


@pytest.mark.nightly(reason="merges long texts")
@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("how", ["compact", "optimize"])
def test_long_texts_that_repeat_are_maintained_some_at_a_time(tmp_path: Path, how: str) -> None:
    long = "x" * 1_000
    dataset = glaive.write_dataset(repeated(long), tmp_path, max_rows_per_file=ROWS // 2)
    dataset.create_scalar_index("t", "BTREE")
    sizes = [file.stat().st_size for file in (tmp_path / "_indices").rglob("*.lance")]
    assert sum(sizes) < ROWS * 16  # for 20 MB of texts
    rows = ROWS
    if how == "optimize":
        glaive.write_dataset(repeated(long), tmp_path, mode="append")
        rows *= 2
    assert maintained(tmp_path, how, limit="4MiB") == [1, rows]
    found = glaive.dataset(tmp_path).scanner(filter=f"t = '{long}'").count_rows()
    assert found == rows


@pytest.mark.nightly(reason="memory of many keys is counted")
@pytest.mark.parametrize("how", ["compact", "optimize"])
def test_sets_of_many_keys_are_maintained_some_at_a_time(tmp_path: Path, how: str) -> None:
    keys = pa.table({"t": pa.array(range(150_000), pa.int32())})
    dataset = glaive.write_dataset(keys, tmp_path, max_rows_per_file=75_000)
    dataset.create_scalar_index("t", "BITMAP")
    rows = len(keys)
    if how == "optimize":
        glaive.write_dataset(keys.slice(0, 1_000), tmp_path, mode="append")
        rows += 1_000
    opened = glaive.dataset(tmp_path)
    if how == "compact":
        peak = traced_peak(opened.optimize.compact_files)
    else:
        peak = traced_peak(lambda: opened.optimize.optimize_indices(num_indices_to_merge=2))
    assert peak < 70 << 20  # 98 MB where all keys were objects at once
    dataset = glaive.dataset(tmp_path)
    assert dataset.scanner(filter="t = 149999 or t = 7").count_rows() == (rows > 150_000) + 2
    (index,) = dataset.describe_indices()
    assert index.num_rows_indexed == rows


WARNED = """
import logging, sys
import glaive

logging.basicConfig(format="%(levelname)s %(name)s %(message)s", stream=sys.stdout)
merged = None if sys.argv[2] == "default" else int(sys.argv[2])
glaive.dataset(sys.argv[1]).optimize.optimize_indices(num_indices_to_merge=merged)
dataset = glaive.dataset(sys.argv[1])
(index,) = dataset.describe_indices()
print(len(index.segments), index.num_rows_indexed)
print(dataset.scanner(filter="array_has(t, 7)", use_scalar_index=False).count_rows())
"""


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("merge", "instead", "left"),
    [("default", "it has a segment more", "2 3000"), ("1", "it is built again", "1 3000")],
)
def test_a_merge_that_a_limit_refuses_is_told(
    tmp_path: Path, merge: str, instead: str, left: str
) -> None:
    """The sets of a thousand labels that the same rows have: two bytes for each of these rows."""
    labels = [list(range(1_000)), []]
    rows = pa.table({"t": pa.array(labels, pa.list_(pa.int32())).take(pa.array([0, 1] * 1_000))})
    dataset = glaive.write_dataset(rows, tmp_path)
    dataset.create_scalar_index("t", "LABEL_LIST", name="labels\nERROR")
    glaive.write_dataset(rows.slice(0, 1_000), tmp_path, mode="append")
    done = subprocess.run(
        [sys.executable, "-c", WARNED, str(tmp_path), merge],
        env={**os.environ, "GLAIVE_MAX_DECODED_BYTES_PER_PAGE": "1MiB"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    warning, *rest = done.stdout.splitlines()
    assert warning.startswith("WARNING glaive.dataset.indexing.optimize index 'labels\\nERROR': ")
    assert instead in warning
    assert "allow more: set GLAIVE_MAX_DECODED_BYTES_PER_PAGE" in warning
    assert rest == [left, "1500"]
