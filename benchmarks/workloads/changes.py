"""Deletes, updates, upserts and compaction, each on a copy of a dataset."""

from __future__ import annotations

import gc
import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.engines import Engine
from benchmarks.measure import FEWEST, Times, settled
from benchmarks.workloads.common import Bench, Row, Run, Workload, run, same, timed, without_parquet

__all__ = ["WORKLOADS", "measure_fresh"]

_FRAGMENTS = 200

Change = Callable[[Any], object]
"""A timed change of an opened dataset."""


def measure_fresh(
    bench: Bench, prepare: Callable[[Engine], Any], change: Callable[[Engine, Any], object]
) -> dict[str, Times]:
    """Time a change that can run only once; ``prepare`` runs untimed before each."""
    seen: dict[str, list[tuple[float, float]]] = {engine.name: [] for engine in bench.engines}
    spent = dict.fromkeys(seen, 0.0)
    with settled():
        for turn in range(-1, bench.repeats):
            for engine in bench.engines:
                if turn >= FEWEST and spent[engine.name] > bench.seconds:
                    continue
                made = prepare(engine)
                gc.collect()
                time.sleep(0.005)
                cpu, wall = time.process_time(), time.perf_counter()
                change(engine, made)
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                if turn >= 0:  # the first loads kernels
                    seen[engine.name].append((cpu * 1e3, wall * 1e3))
                    spent[engine.name] += wall
    return {
        name: Times(
            statistics.median(cpu for cpu, _ in times),
            statistics.median(wall for _, wall in times),
            len(times),
        )
        for name, times in seen.items()
    }


def _copy(source: Path, path: Path) -> Path:
    """Copy a dataset by hard links: Lance never changes existing files."""
    shutil.copytree(source, path, copy_function=os.link)
    return path


def changed(name: str, change: Callable[[Bench], Change]) -> Run:
    """Change a fresh copy of a data set; compare the rows that pylance reads afterwards."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        bench = without_parquet(bench)
        source, call = bench.data.lance(name), change(bench)
        paths: dict[str, Path] = {}

        def prepare(engine: Engine) -> Any:
            paths[engine.name] = path = bench.data.scratch(f"changed-{engine.name}")
            return engine.open(_copy(source, path))

        times = measure_fresh(bench, prepare, lambda _engine, opened: call(opened))
        reader = bench.engines[0]
        answers = {name: _sorted(reader, path) for name, path in paths.items()}
        for path in paths.values():
            shutil.rmtree(path)
        return timed(Row(title, goal, wrong=same(answers)), times)

    return work


def _sorted(reader: Engine, path: Path) -> pa.Table:
    """Return rows in the order of their keys: engines place updated rows differently."""
    return reader.scan(reader.open(path), ["seq", "float"]).sort_by("seq")


def _delete(_bench: Bench) -> Change:
    return lambda opened: opened.delete("small < 10")


def _update(_bench: Bench) -> Change:
    return lambda opened: opened.update({"float": "float + 1"}, where="small < 10")


def _add_column(_bench: Bench) -> Change:
    return lambda opened: opened.add_columns({"next": "seq + 1", "twice": "float * 2"})


def _upsert(bench: Bench) -> Change:
    """Return an upsert of 1 % of the rows; a fifth of them are new."""
    rows = bench.data.make("table")
    count = max(1, rows.num_rows // 100)
    rng = np.random.default_rng(13)
    keys = rng.choice(rows.num_rows * 5 // 4, count, replace=False)
    source = rows.slice(0, count).combine_chunks()
    source = source.set_column(0, source.schema.field("seq"), pa.array(keys))

    def call(opened: Any) -> object:
        builder = opened.merge_insert("seq").when_matched_update_all()
        return builder.when_not_matched_insert_all().execute(source)

    return call


def _compact(bench: Bench, title: str, goal: float | None) -> list[Row]:
    rows = bench.data.make("table").slice(0, max(_FRAGMENTS, bench.data.rows // 5))
    theirs = bench.engines[0]
    source = bench.data.scratch("fragments-to-compact")
    theirs.module.write_dataset(  # type: ignore[attr-defined]  # the first one is pylance
        rows,
        str(source),
        max_rows_per_file=rows.num_rows // _FRAGMENTS,
        data_storage_version=bench.data.version,
    )
    bench = without_parquet(bench)
    paths: dict[str, Path] = {}

    def prepare(engine: Engine) -> Any:
        paths[engine.name] = path = bench.data.scratch(f"changed-{engine.name}")
        return engine.open(_copy(source, path))

    times = measure_fresh(bench, prepare, lambda _engine, opened: opened.optimize.compact_files())
    answers = {name: _sorted(theirs, path) for name, path in paths.items()}
    for path in (source, *paths.values()):
        shutil.rmtree(path)
    return timed(Row(title, goal, wrong=same(answers)), times)


def _share(bench: Bench, title: str, goal: float | None) -> list[Row]:
    """Measure how much longer a scan takes because of deleted rows."""
    bench = without_parquet(bench)
    calls: dict[str, Callable[[], object]] = {}
    for engine in bench.engines:
        path = engine.place(bench.data, "deleted")
        whole = _undeleted(bench, engine, path)
        calls[engine.name] = _scanning(engine, engine.open(path))
        calls[f"{engine.name} whole"] = _scanning(engine, engine.open(whole))
    times = run(bench, calls, 3)
    row = Row(title, None, unit="x", most=goal)
    for engine in bench.engines:
        some, whole_time = times[engine.name], times[f"{engine.name} whole"]
        row.values[engine.name] = (some.cpu / whole_time.cpu, some.wall / whole_time.wall)
        row.repeats = some.repeats
        shutil.rmtree(bench.data.folder / "scratch" / f"whole-{engine.name}")
    return [row]


def _scanning(engine: Engine, opened: Any) -> Callable[[], object]:
    return lambda: engine.scan(opened, ["seq"])


def _undeleted(bench: Bench, engine: Engine, source: Path) -> Path:
    """Return the same files without the deletion, which is version 2."""
    path = _copy(source, bench.data.scratch(f"whole-{engine.name}"))
    engine.open(path).checkout_version(1).restore()
    return path


WORKLOADS = [
    Workload("delete 1 %", 5, changed("table", _delete)),
    Workload("update 1 %", 3, changed("table", _update)),
    Workload("upsert 1 %", 3, changed("table", _upsert)),
    Workload("add 2 columns by expression", 3, changed("table", _add_column)),
    Workload("compact 200 fragments", 3, _compact),
    Workload("  3 % deleted against none", 1.3, _share),
]
