"""Windows of a stream have a size in memory, however many columns there are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.config import MAX_IMPLIED_BYTES
from glaive.errors import CapacityError
from glaive.file.protocol import in_proportion
from glaive.io.local import LocalStore

COLUMNS, ROWS, BLOCK = 16, 2048, 256

STREAMS = """
import sys, glaive
dataset = glaive.dataset(sys.argv[1])
streams = [
    dataset.to_batches(),
    dataset.to_batches(filter="id >= 0"),
    dataset.to_batches(columns={"a": "c0 || 'x'", **{f"c{at}": f"c{at}" for at in range(16)}}),
]
for batches in streams:
    sizes = [(batch.num_rows, batch.nbytes) for batch in batches]
    print(sum(rows for rows, _ in sizes), max(size for _, size in sizes))
    glaive.dataset(sys.argv[1], session=glaive.Session())
"""


@pytest.mark.nightly(reason="makes rows of thousands of columns")
@pytest.mark.sampled(every=3)
@pytest.mark.spec("rel-24")
@pytest.mark.parametrize(("version", "deleted"), [("2.1", False), ("2.1", True), ("2.0", False)])
def test_rows_of_many_columns_are_made_some_at_a_time_where_few_bytes_stand_for_them(
    tmp_path: Path, version: str, deleted: bool
) -> None:
    """Each column has a limit. A batch of 16 took 4 GB of a file of 1.4 MB."""
    text = pa.array(["x" * 20_000]).take(pa.array([0] * BLOCK))
    names = [f"c{at}" for at in range(COLUMNS)]

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, ROWS, BLOCK):
            ids = pa.array(range(first, first + BLOCK))
            yield pa.RecordBatch.from_arrays([ids, *[text] * COLUMNS], ["id", *names])

    schema = pa.schema([("id", pa.int64()), *((name, pa.string()) for name in names)])
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    dataset = glaive.write_dataset(reader, tmp_path, data_storage_version=version)
    if deleted:
        dataset.delete("id % 3 = 0")
    found = subprocess.run(
        [sys.executable, "-c", STREAMS, str(tmp_path)],
        env={**os.environ, "GLAIVE_MAX_DECODED_BYTES_PER_PAGE": "24MiB"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    for line in found.stdout.splitlines():
        rows, largest = map(int, line.split())
        assert rows == dataset.count_rows()
        assert largest <= 66_000_000, "all rows take 655 MB"


OPENED = """
import sys, glaive

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))

dataset = glaive.dataset(sys.argv[1])
dataset.head(2)
before = peak()
"""

MEMBERS = """
chosen = {"filter": "id != 1", "late_materialization": True} if sys.argv[2:] else {}
sizes = [(batch.num_rows, batch.nbytes) for batch in dataset.to_batches(["s"], **chosen)]
print(sum(rows for rows, _ in sizes), peak() - before)
"""


@pytest.mark.nightly(reason="makes rows of thousands of columns")
@pytest.mark.sampled(every=6)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says how much was held")
@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("kind", ["texts", "dictionary", "compressed"])
def test_members_of_a_struct_are_not_all_made_before_they_are_counted(
    tmp_path: Path, kind: str, taken: bool
) -> None:
    """Each leaf has a page, and each page a limit: 96 of them took 96 times that."""
    count = {"texts": 1, "dictionary": 2, "compressed": ROWS // 8}[kind]
    values = pa.array([f"{at:04}{'x' * 20_000}" for at in range(count)])
    text = values.take(pa.array([at % count for at in range(ROWS // 8)]))
    metadata = {"lance-encoding:compression": "zstd"} if kind == "compressed" else None
    members = [pa.field(f"m{at}", pa.string(), metadata=metadata) for at in range(96)]
    struct = pa.StructArray.from_arrays([text] * 96, fields=members)
    table = pa.table({"id": range(len(text)), "s": struct})
    dataset = glaive.write_dataset(table, tmp_path, data_storage_version="2.1")
    found = subprocess.run(
        [sys.executable, "-c", OPENED + MEMBERS, str(tmp_path), *["taken"] * taken],
        env={**os.environ, "GLAIVE_MAX_DECODED_BYTES_PER_PAGE": "12MiB"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    rows, made = map(int, found.stdout.split())
    assert rows == dataset.count_rows() - taken
    assert made < 400_000_000, "all members take 492 MB, and as many took 540 MB and more"


TOGETHER = """
sizes = "length(concat(" + ", ".join(f"c{at}" for at in range(96)) + "))"
if sys.argv[2] == "filter":
    rows = dataset.count_rows(f"{sizes} > 3")
else:
    dataset.add_columns({"size": sizes})
    rows = dataset.count_rows()
print(rows, peak() - before)
"""


@pytest.mark.nightly(reason="makes rows of thousands of columns")
@pytest.mark.sampled(every=2)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says how much was held")
@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("use", ["filter", "new column"])
def test_columns_of_a_filter_or_of_a_new_column_are_not_all_made_before_they_are_counted(
    tmp_path: Path, use: str
) -> None:
    """Filters and expressions read all columns that they need of a window of rows."""
    text = pa.array(["x" * 20_000]).take(pa.array([0] * BLOCK))
    rows = pa.table({f"c{at}": text for at in range(96)})
    dataset = glaive.write_dataset(rows, tmp_path, data_storage_version="2.1")
    found = subprocess.run(
        [sys.executable, "-c", OPENED + TOGETHER, str(tmp_path), use],
        env={**os.environ, "GLAIVE_MAX_DECODED_BYTES_PER_PAGE": "12MiB"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    count, made = map(int, found.stdout.split())
    assert count == dataset.count_rows()
    assert made < 400_000_000, "all columns took 670 MB, and joined"


class Large:
    """Values of a column that take more than may be made at once."""

    nbytes = MAX_IMPLIED_BYTES + 1

    def __len__(self) -> int:
        return 10

    def get_total_buffer_size(self) -> int:
        return self.nbytes


@pytest.mark.parametrize(("more", "checked"), [(0, False), (1, True)])
def test_columns_are_measured_where_their_rows_may_take_too_much(
    tmp_path: Path, more: int, *, checked: bool
) -> None:
    store = LocalStore(tmp_path)
    store.put("x", [b"1"])
    values: Any = Large()
    check = in_proportion(10, 2, MAX_IMPLIED_BYTES / 10 + more, [store.open("x")])
    if checked:
        with pytest.raises(CapacityError, match="read or take fewer rows at a time"):
            check(values)
    else:
        assert check(values) is values
