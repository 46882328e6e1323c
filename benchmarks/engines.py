"""The engines of the table, pylance, glaive and Parquet, with one interface."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import lance
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.data import Data

__all__ = ["Engine", "engines"]


class Engine(Protocol):
    """The operations that workloads time; ``cold_…`` returns a script for a new process."""

    name: str

    def place(self, data: Data, name: str) -> Path: ...
    def open(self, path: Path) -> Any: ...
    def scan(self, opened: Any, columns: Sequence[str] | None) -> pa.Table: ...
    def stream(self, opened: Any, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]: ...
    def take(
        self, opened: Any, rows: NDArray[np.int64], columns: Sequence[str] | None = None
    ) -> pa.Table: ...
    def write(self, table: pa.Table, path: Path, version: str) -> None: ...
    def append(self, table: pa.Table, path: Path) -> None: ...
    def cold_take(self, path: Path, rows: Sequence[int]) -> str: ...
    def cold_scan(self, path: Path, predicate: str | None) -> str: ...
    def cold_stream(self, path: Path) -> str: ...


class _Lance:
    """pylance and glaive: the same calls on the same files."""

    def __init__(self, name: str, module: Any) -> None:
        self.name, self.module = name, module

    def place(self, data: Data, name: str) -> Path:
        return data.lance(name)

    def open(self, path: Path) -> Any:
        return self.module.dataset(str(path))

    def scan(self, opened: Any, columns: Sequence[str] | None) -> pa.Table:
        table: pa.Table = opened.to_table(columns=columns)
        return table

    def stream(self, opened: Any, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch] = opened.to_batches(columns=columns)
        return batches

    def take(
        self, opened: Any, rows: NDArray[np.int64], columns: Sequence[str] | None = None
    ) -> pa.Table:
        table: pa.Table = opened.take(rows.tolist(), columns=columns)
        return table

    def write(self, table: pa.Table, path: Path, version: str) -> None:
        self.module.write_dataset(table, str(path), data_storage_version=version)

    def append(self, table: pa.Table, path: Path) -> None:
        self.module.write_dataset(table, str(path), mode="append")

    def cold_stream(self, path: Path) -> str:
        return (
            f"import {self.module.__name__} as m\n"
            f"for batch in m.dataset({str(path)!r}).to_batches(): pass\n"
        )

    def cold_take(self, path: Path, rows: Sequence[int]) -> str:
        return (
            f"import {self.module.__name__} as m\n"
            f"assert m.dataset({str(path)!r}).take({list(rows)}).num_rows == {len(rows)}\n"
        )

    def cold_scan(self, path: Path, predicate: str | None) -> str:
        return (
            f"import {self.module.__name__} as m\n"
            f"assert m.dataset({str(path)!r}).to_table(filter={predicate!r}).num_rows\n"
        )


class _Parquet:
    """pyarrow on one Parquet file compressed with zstd."""

    name = "parquet"

    def place(self, data: Data, name: str) -> Path:
        return data.parquet(name)

    def open(self, path: Path) -> Any:
        return pads.dataset(str(path))

    def scan(self, opened: Any, columns: Sequence[str] | None) -> pa.Table:
        table: pa.Table = opened.to_table(columns=columns)
        return table

    def stream(self, opened: Any, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch] = opened.to_batches(columns=columns)
        return batches

    def take(
        self, opened: Any, rows: NDArray[np.int64], columns: Sequence[str] | None = None
    ) -> pa.Table:
        table: pa.Table = opened.take(pa.array(rows), columns=columns)
        return table

    def write(self, table: pa.Table, path: Path, version: str) -> None:
        pq.write_table(table, path, compression="zstd")

    def append(self, table: pa.Table, path: Path) -> None:
        """Add a file to a folder: Parquet has no commit."""
        if path.is_file():
            part = path.with_suffix(".part")
            path.rename(part)
            path.mkdir()
            shutil.move(part, path / "0.parquet")
        pq.write_table(table, path / f"{len(list(path.iterdir()))}.parquet", compression="zstd")

    def cold_stream(self, path: Path) -> str:
        return (
            "import pyarrow.dataset as m\n"
            f"for batch in m.dataset({str(path)!r}).to_batches(): pass\n"
        )

    def cold_take(self, path: Path, rows: Sequence[int]) -> str:
        return (
            "import pyarrow.dataset as m\n"
            f"assert m.dataset({str(path)!r}).take({list(rows)}).num_rows == {len(rows)}\n"
        )

    def cold_scan(self, path: Path, predicate: str | None) -> str:
        given = "None" if predicate is None else f"pc.field({predicate.partition(' ')[0]!r})"
        test = "" if predicate is None else f" {predicate.partition(' ')[2]}"
        return (
            "import pyarrow.dataset as m\nimport pyarrow.compute as pc\n"
            f"assert m.dataset({str(path)!r}).to_table(filter={given}{test}).num_rows\n"
        )


def engines() -> list[Engine]:
    """Return pylance, glaive (if it can open datasets) and Parquet."""
    import glaive

    found: list[Engine] = [_Lance("pylance", lance)]
    if hasattr(glaive, "dataset"):
        found.append(_Lance("glaive", glaive))
    return [*found, _Parquet()]
