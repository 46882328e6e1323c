"""Sorted keys with a few rows each are compressed where nobody asked for it; others are not."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.arrow.blocks import FixedWidth
from glaive.encodings.options import AUTOMATIC
from glaive.encodings.values.bitpack_inline import InlineBitpacking
from glaive.encodings.values.general import General
from glaive.encodings.values.rle import RunLength
from glaive.encodings.writing.fixed_stats import FixedStats
from glaive.encodings.writing.fixed_width import fixed_encoding
from glaive.memory import as_buffer

COUNT = 100_000
RNG = np.random.default_rng(0)
KEYS = np.repeat(10**6 + np.arange(COUNT) * 4 // 3, RNG.integers(1, 8, COUNT))[:COUNT]


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        (KEYS, General),
        (np.arange(COUNT), InlineBitpacking),
        (RNG.permutation(KEYS), InlineBitpacking),
        (np.repeat(RNG.integers(0, 2**40, COUNT // 100), 100), RunLength),
    ],
    ids=["sorted keys", "row numbers", "unsorted keys", "long runs"],
)
def test_only_sorted_keys_with_a_few_rows_each_are_compressed(
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]], kind: type
) -> None:
    words = numbers.astype(np.uint64)
    block = FixedWidth(as_buffer(words), 64, len(words))
    assert isinstance(fixed_encoding(FixedStats(block), AUTOMATIC), kind)


@pytest.mark.interop
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_compressed_keys_are_read_by_pylance(tmp_path: Path, version: str) -> None:
    table = pa.table({"key": KEYS})
    uri = str(tmp_path / "t.lance")
    glaive.write_dataset(table, uri, data_storage_version=version)
    assert lance.dataset(uri).to_table() == table
    rows = [0, 77, COUNT - 1]
    assert glaive.dataset(uri).take(rows) == table.take(rows)
    expected = int((KEYS[500] == KEYS).sum())
    assert glaive.dataset(uri).count_rows(f"key = {KEYS[500]}") == expected
