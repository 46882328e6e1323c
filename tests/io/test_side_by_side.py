"""Requests that work on a pool makes do not wait for the threads of that pool."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.io.pool import side_by_side

pytest.importorskip("fsspec", reason="install the extra 'fsspec'")

READ = """
import glaive, sys, tests.distant
opened = glaive.dataset(f"fsspec+distant://{sys.argv[1]}")
print(opened.to_table(columns=["c1", "c9"]).num_rows, opened.count_rows("c1 >= 0 and c9 >= 0"))
"""


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("at_a_time", [1, 2, 8, 16])
def test_a_scan_through_fsspec_ends_with_any_number_of_requests_at_a_time(
    tmp_path: Path, at_a_time: int
) -> None:
    rows = pa.table({f"c{number}": range(120_000) for number in range(10)})
    glaive.write_dataset(rows, tmp_path / "t", max_rows_per_file=5000)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "t")],
        env=os.environ | {"GLAIVE_IO_CONCURRENCY": str(at_a_time)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["120000", "120000"]


def test_results_come_in_the_order_of_the_requests() -> None:
    assert side_by_side(str, range(40)) == [*map(str, range(40))]
    assert side_by_side(str, []) == []
