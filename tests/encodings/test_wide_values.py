"""Decimals: which are compressed, in which chunks, and that these fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.arrow.blocks import FixedWidth
from glaive.encodings.options import AUTOMATIC
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.general import General
from glaive.encodings.writing.fixed_stats import FixedStats
from glaive.encodings.writing.page import fixed_encoding

PRICES = np.random.default_rng(3).integers(0, 10_000_000, 100_000)


def wide(low: np.ndarray, high: np.ndarray) -> FixedWidth:  # type: ignore[type-arg]  # of integers
    words = np.stack([low, high], axis=1).astype("<u8")
    return FixedWidth(pa.py_buffer(words), 128, len(words))


def test_prices_are_compressed_in_chunks_of_16_kib() -> None:
    block = wide(PRICES, np.zeros_like(PRICES))
    chosen = fixed_encoding(FixedStats(block), AUTOMATIC)
    assert chosen == General("zstd", Flat(128))
    chunks = chosen.encode_mini(block)
    assert set(chunks.counts[:-1].tolist()) == {1024}
    small = General("zstd", Flat(128)).encode_mini(block)
    assert int(chunks.sizes[0].sum()) < int(small.sizes[0].sum())


def test_values_that_zstd_does_not_halve_stay_plain_in_chunks_of_4_kib() -> None:
    rng = np.random.default_rng(4)
    block = wide(rng.integers(0, 2**63, 100_000), rng.integers(0, 2**63, 100_000))
    chosen = fixed_encoding(FixedStats(block), AUTOMATIC)
    assert chosen == Flat(128)
    assert set(chosen.encode_mini(block).counts[:-1].tolist()) == {256}


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
def test_chunks_that_do_not_compress_fit_among_those_that_do(tmp_path: Path, version: str) -> None:
    rng = np.random.default_rng(5)
    low, high = PRICES.copy(), np.zeros_like(PRICES)
    # What is tried are values in the middle.
    low[:20_000], high[:20_000] = rng.integers(0, 2**62, (2, 20_000))
    values = pa.Array.from_buffers(pa.decimal128(38, 2), len(low), [None, wide(low, high).values])
    table = pa.table({"price": values})
    glaive.write_dataset(table, tmp_path / "t", data_storage_version=version)
    dataset = glaive.dataset(tmp_path / "t")
    assert dataset.to_table().equals(table)
    # Too long for their layout, they would all have to stay plain.
    written = sum(file.stat().st_size for file in (tmp_path / "t" / "data").iterdir())
    assert written < 0.45 * table.nbytes
    rows = [0, 19_999, 20_000, 50_000, 99_999]
    assert dataset.take(rows).equals(table.take(rows))
