"""Files read range by range, where the address space is limited."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from glaive.errors import CorruptFileError, ObjectNotFoundError
from glaive.io.local import LocalStore, PositionedReader
from glaive.io.store import IoCounters
from glaive.types import ByteRange


def test_ranges_are_those_of_a_map(tmp_path: Path) -> None:
    data = np.random.default_rng(1).bytes(300_000)
    (tmp_path / "f").write_bytes(data)
    counters = IoCounters()
    reader = PositionedReader(str(tmp_path / "f"), counters)
    ranges = [ByteRange(70_000, 10), ByteRange(3, 5), ByteRange(9, 0), ByteRange(69_990, 100)]

    found = reader.read(ranges)

    assert [part.to_pybytes() for part in found] == [
        data[offset : offset + size] for offset, size in ranges
    ]
    assert found[0].address % 64 == 70_000 % 64
    assert reader.tail(7).to_pybytes() == data[-7:]
    assert reader.tail(10**9).to_pybytes() == data
    assert not reader.mapped


def test_ranges_beyond_the_end_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    reader = PositionedReader(str(tmp_path / "f"), IoCounters())
    with pytest.raises(CorruptFileError, match="found a file of 5 bytes"):
        reader.read([ByteRange(3, 3)])

    (tmp_path / "f").write_bytes(b"12")
    with pytest.raises(CorruptFileError, match="found a file of 2 bytes"):
        reader.read([ByteRange(0, 5)])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="there is no such file"):
        PositionedReader(str(tmp_path / "f"), IoCounters())
    assert LocalStore(tmp_path).is_free("f")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit address space")
def test_a_file_larger_than_the_address_space_is_read_range_by_range(tmp_path: Path) -> None:
    """As in Spark's workers with ``spark.executor.pyspark.memory``."""
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(bytes(1 << 20))
    large.write_bytes(b"start")
    with large.open("r+b") as file:  # without data in between
        file.truncate(64 << 30)
        file.seek(-3, 2)
        file.write(b"end")
    script = """
import resource, sys
from pathlib import Path
from glaive.io.local import LocalStore
from glaive.types import ByteRange

resource.setrlimit(resource.RLIMIT_AS, (16 << 30, resource.RLIM_INFINITY))
store = LocalStore(sys.argv[1])
reader = store.open("large")
print(reader.mapped, reader.tail(3).to_pybytes(), reader.read([ByteRange(0, 5)])[0].to_pybytes())
print(store.open("small").mapped)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert done.stdout == "False b'end' b'start'\nTrue\n", done.stderr
