"""The data sets: made once from fixed seeds, written by pylance and by pyarrow, kept on disk.

========== =============== ===================================================================
name       rows            columns
========== =============== ===================================================================
table      ``rows``        int64 ascending, int32 below 1,000, float64, bool, int64 with 10 %
                           nulls, string of 50 values, text of 20-60 characters, timestamp
vectors    ``rows`` / 50   int64 and 768 float32
nested     ``rows`` / 5    list<int32>, list<string>, nullable struct
flat       ``rows``        float64 that no encoding makes smaller, as pylance writes it
plain      ``rows``        the same, as glaive writes it: pages without chunks
========== =============== ===================================================================
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import glaive

__all__ = ["Data"]

RECIPE = 1
"""Counts up when a recipe changes, so that no old files are read."""


def _table(rows: int) -> pa.Table:
    rng = np.random.default_rng(1)
    value = rng.integers(0, 1 << 40, rows)
    steps = rng.integers(1, 2_000_000, rows)
    kinds = pa.array([f"category-{i:02d}" for i in range(50)])
    return pa.table(
        {
            "seq": np.arange(rows),
            "small": rng.integers(0, 1_000, rows, np.int32),
            "float": rng.random(rows),
            "flag": rng.random(rows) < 0.5,
            "nullable": pa.array(value, mask=rng.random(rows) < 0.1),
            "kind": kinds.take(pa.array(rng.integers(0, 50, rows))),
            "text": _texts(rng, rows),
            "time": pa.array(1_700_000_000_000_000 + np.cumsum(steps), pa.timestamp("us")),
        }
    )


def _texts(rng: np.random.Generator, rows: int) -> pa.Array:
    """Four to ten words out of 5,000, which makes 20 to 60 characters."""
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", np.uint8)
    weights = 1 / np.arange(1, 27)
    sizes = rng.integers(2, 10, 5_000)
    spelled = rng.choice(letters, int(sizes.sum()), p=weights / weights.sum()).tobytes().decode()
    ends = np.cumsum(sizes)
    words = pa.array([spelled[end - size : end] for end, size in zip(ends, sizes, strict=True)])
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(rng.integers(4, 11, rows), out=offsets[1:])
    chosen = words.take(pa.array(rng.integers(0, 5_000, int(offsets[-1]))))
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), chosen), " ")


def _vectors(rows: int) -> pa.Table:
    rng = np.random.default_rng(2)
    flat = pa.array(rng.standard_normal(rows * 768, np.float32))
    return pa.table({"id": np.arange(rows), "vector": pa.FixedSizeListArray.from_arrays(flat, 768)})


def _nested(rows: int) -> pa.Table:
    rng = np.random.default_rng(3)

    def offsets(most: int) -> pa.Array:
        ends = np.zeros(rows + 1, np.int32)
        np.cumsum(rng.integers(0, most + 1, rows), out=ends[1:])
        return pa.array(ends)

    ints, strings = offsets(10), offsets(3)
    tags = pa.array([f"tag-{i}" for i in range(1_000)])
    return pa.table(
        {
            "ints": pa.ListArray.from_arrays(
                ints, pa.array(rng.integers(0, 100_000, ints[-1].as_py(), np.int32))
            ),
            "strings": pa.ListArray.from_arrays(
                strings, tags.take(pa.array(rng.integers(0, 1_000, strings[-1].as_py())))
            ),
            "struct": pa.StructArray.from_arrays(
                [pa.array(rng.integers(0, 1 << 30, rows)), pa.array(rng.random(rows))],
                names=["a", "b"],
                mask=pa.array(rng.random(rows) < 0.1),
            ),
        }
    )


def _flat(rows: int) -> pa.Table:
    return pa.table({"float": np.random.default_rng(4).standard_normal(rows)})


@dataclass(frozen=True, slots=True)
class Data:
    """Where the files lie; makes those that are missing."""

    root: Path
    rows: int
    version: str

    @property
    def folder(self) -> Path:
        """One folder per recipe, size and format version."""
        return self.root / f"{RECIPE}-{self.rows}-{self.version}"

    def make(self, name: str) -> pa.Table:
        """Return a data set in memory, in one chunk per column."""
        return _made(name, self.rows)

    def lance(self, name: str) -> Path:
        """Return the dataset as pylance writes it by default, ``plain`` as glaive does."""
        writer = glaive if name == "plain" else lance
        return self._kept(
            f"{name}.lance",
            lambda path: writer.write_dataset(
                self.make(name), path, data_storage_version=self.version
            ),
        )

    def parquet(self, name: str) -> Path:
        """Return the same rows as one Parquet file, zstd, as pyarrow writes it by default."""
        return self._kept(
            f"{name}.parquet",
            lambda path: pq.write_table(self.make(name), path, compression="zstd"),
        )

    def scratch(self, name: str) -> Path:
        """Return a path on the same disk with nothing there."""
        path = self.folder / "scratch" / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _kept(self, name: str, write: Callable[[str], object]) -> Path:
        path = self.folder / name
        if not path.exists():
            fresh = self.scratch(name)
            write(str(fresh))
            fresh.rename(path)
        return path


@cache
def _made(name: str, rows: int) -> pa.Table:
    if name == "table":
        return _table(rows)
    if name in ("flat", "plain"):
        return _flat(rows)
    return _vectors(rows // 50) if name == "vectors" else _nested(rows // 5)
