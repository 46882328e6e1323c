"""Offsets of 64 bits in a data file may be any number: an error, never memory of others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import CorruptFileError

WILD = [-(2**63), 2**63 - 1, -1, 2**62, 2**31, 2**32]


def urls(count: int, kind: pa.DataType) -> pa.Array:
    values = [
        f"https://example.org/some/path/{i % 997}/item-{i}.html?session={i * 7919 % 100_003}"
        for i in range(count)
    ]
    return pa.array(values, pa.large_string()).cast(kind)


def offset_positions(raw: bytes) -> list[int]:
    """Places in a file of what looks like 64-bit offsets that ascend by the size of a text."""
    numbers = np.frombuffer(raw[: len(raw) // 8 * 8], "<i8")
    steps = np.diff(numbers)
    small = (steps > 0) & (steps < 200) & (numbers[:-1] > 0) & (numbers[:-1] < 10_000)
    return (8 * (np.flatnonzero(small[:-2] & small[1:-1] & small[2:]) + 1)).tolist()


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
@pytest.mark.parametrize("kind", [pa.large_string(), pa.large_binary()], ids=str)
def test_a_wild_offset_is_refused_in_a_scan(
    tmp_path: Path, kind: pa.DataType, version: str
) -> None:
    count = 20_000
    values = urls(count, kind)
    dataset = glaive.write_dataset(
        pa.table({"url": values}), tmp_path / "urls.lance", data_storage_version=version
    )
    (file,) = (tmp_path / "urls.lance" / "data").iterdir()
    raw = file.read_bytes()
    positions = offset_positions(raw)
    assert len(positions) > count // 2
    refused = 0
    assert dataset.to_table()["url"].combine_chunks().equals(values)
    for position in np.random.default_rng(1).choice(positions, 8).tolist():
        for number in WILD:
            damaged = bytearray(raw)
            damaged[position : position + 8] = number.to_bytes(8, "little", signed=True)
            file.write_bytes(damaged)
            try:
                table = glaive.dataset(tmp_path / "urls.lance").to_table()
            except CorruptFileError as error:
                refused += file.name in str(error)
            else:  # what was replaced is read by nobody
                assert table["url"].combine_chunks().equals(values)
    assert refused >= 6 * len(WILD)
