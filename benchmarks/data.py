"""Data sets on disk, generated once from fixed seeds and written by pylance and pyarrow."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.recipes import RECIPES, make

__all__ = ["Data"]

RECIPE = 1
"""Version of the recipes: increase it when a recipe changes, so that files are written again."""


@dataclass(frozen=True, slots=True)
class Data:
    """A cache of data sets, which writes missing files on demand."""

    root: Path
    rows: int
    version: str

    @property
    def folder(self) -> Path:
        """The folder of this recipe version, size and format version."""
        return self.root / f"{RECIPE}-{self.rows}-{self.version}"

    def make(self, name: str) -> pa.Table:
        """Return a data set in memory, in one chunk per column."""
        return make(name, self.rows)

    def lance(self, name: str) -> Path:
        """Return the dataset, written with pylance's defaults unless its recipe differs."""
        recipe = RECIPES[name]
        return self._kept(
            f"{name}.lance",
            lambda path: recipe.writer.write_dataset(
                self.make(name), path, data_storage_version=recipe.version or self.version
            ),
        )

    def parquet(self, name: str) -> Path:
        """Return the path of one Parquet file with the same rows, zstd, with pyarrow's defaults."""
        return self._kept(
            f"{name}.parquet",
            lambda path: pq.write_table(self.make(name), path, compression="zstd"),
        )

    def scratch(self, name: str) -> Path:
        """Return a free path on the same disk."""
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
