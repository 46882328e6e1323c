"""Datasets of many fragments: open, append, and take rows by stable row id."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import glaive
from benchmarks.engines import Engine
from benchmarks.workloads.changes import measure_fresh
from benchmarks.workloads.common import (
    Bench,
    Row,
    Workload,
    each,
    run,
    same,
    timed,
    without_parquet,
)
from glaive.format.manifest import encode_manifest
from glaive.format.paths import manifest_path, new_data_file_name
from glaive.format.pb import table_pb2
from glaive.io.local import LocalStore
from glaive.table.load import open_latest

__all__ = ["WORKLOADS"]

_FRAGMENTS, _APPENDS, _FILES = 100_000, 1_000, 1_000
"""Full sizes: fragments of a long manifest, consecutive appends, files of the take."""

_FULL = 5_000_000
"""Minimum rows of the table for the full sizes."""


def _scaled(bench: Bench, most: int) -> int:
    """Scale a full size down with the rows of the table."""
    return max(10, min(most, most * bench.data.rows // _FULL))


def _many(bench: Bench, engine: Engine) -> Path:
    """Write a dataset whose second version lists one real file, and many files that stay unread."""
    path = bench.data.scratch(f"many-{engine.name}")
    engine.write(_ten(), path, bench.data.version)
    store = LocalStore(path)
    base = open_latest(store)
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(base.wire)
    one = base.fragment_wire(0)
    fragments = _scaled(bench, _FRAGMENTS)
    for number in range(1, fragments):
        one.id = number
        one.files[0].path = new_data_file_name()
        wire.fragments.append(one.SerializeToString())
    wire.version, wire.max_fragment_id = 2, fragments - 1
    transaction = base.transaction or b""
    pieces = encode_manifest(wire, transaction=transaction, index_section=None)
    store.put(manifest_path(2, base.scheme), pieces)
    return path


def _ten() -> pa.Table:
    return pa.table({"id": range(10), "name": ["a"] * 10})


def _open(bench: Bench, title: str, goal: float | None) -> list[Row]:
    bench = without_parquet(bench)
    paths = {engine.name: _many(bench, engine) for engine in bench.engines}
    calls = each(bench, lambda engine: engine.open(paths[engine.name]).count_rows())
    rows = timed(Row(title, goal), run(bench, calls))
    for path in paths.values():
        shutil.rmtree(path)
    return rows


def _append(bench: Bench, title: str, goal: float | None) -> list[Row]:
    bench = without_parquet(bench)
    paths = {engine.name: _many(bench, engine) for engine in bench.engines}
    calls = each(bench, lambda engine: engine.append(_ten(), paths[engine.name]))
    rows = timed(Row(title, goal), run(bench, calls))
    for path in paths.values():
        shutil.rmtree(path)
    return rows


def _thousand(bench: Bench, title: str, goal: float | None) -> list[Row]:
    bench = without_parquet(bench)
    count = _scaled(bench, _APPENDS)
    made: list[Path] = []

    def prepare(engine: Engine) -> Path:
        # Remove files only at the end. Without a journal, ext4 skips recently freed inodes one by
        # one whenever it creates a file.
        path = bench.data.scratch(f"thousand-{engine.name}-{len(made)}")
        made.append(path)
        engine.write(_ten(), path, bench.data.version)
        return path

    def call(engine: Engine, path: Path) -> None:
        for _ in range(count):
            engine.append(_ten(), path)

    rows = timed(Row(title, goal), measure_fresh(bench, prepare, call))
    for path in made:
        shutil.rmtree(path)
    return rows


def _versions(bench: Bench, title: str, goal: float | None) -> list[Row]:
    bench = without_parquet(bench)
    path = bench.data.scratch("versions")
    for _ in range(_scaled(bench, _APPENDS)):
        glaive.write_dataset(_ten(), path, mode="append")
    calls = each(bench, lambda engine: engine.open(path).count_rows())
    rows = timed(Row(title, goal), run(bench, calls))
    shutil.rmtree(path)
    return rows


def _by_id(bench: Bench, title: str, goal: float | None) -> list[Row]:
    import lance

    bench = without_parquet(bench)
    total = 2 * bench.data.rows
    path = str(bench.data.scratch("row-ids"))
    files = _scaled(bench, _FILES)
    table = pa.table({"a": np.arange(total)})
    lance.write_dataset(
        table, path, max_rows_per_file=-(-total // files), enable_stable_row_ids=True
    )
    ids = np.random.default_rng(7).integers(0, total, 100).tolist()

    def call(engine: Engine) -> Any:
        return engine.open(Path(path))._take_rows(ids)  # noqa: SLF001  # pylance's only way

    answers = {engine.name: call(engine) for engine in bench.engines}
    rows = timed(Row(title, goal, wrong=same(answers)), run(bench, each(bench, call)))
    shutil.rmtree(path)
    return rows


WORKLOADS = [
    Workload("open 100,000 fragments", 2, _open),
    Workload("append to 100,000 fragments", 2, _append),
    Workload("1,000 appends", 3, _thousand),
    Workload("open 1,000 versions", 5, _versions),
    Workload("open, take 100 row ids", 2, _by_id),
]
