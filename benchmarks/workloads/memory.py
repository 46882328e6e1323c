"""Peak memory of writes and changes for sources of several sizes; streaming must stay flat.

A new process measures each above its memory before the change. The first figure is private
memory, the second includes pages of mapped files. The rows have numbers, strings and vectors.
Merges have the memory limit ``LIMIT``. ``--memory-gb 4`` measures 1, 2 and 4 GB.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.engines import Engine
from benchmarks.measure import peak_memory
from benchmarks.workloads.common import Bench, Row, Run, Workload, without_parquet

__all__ = ["WORKLOADS"]

LIMIT = "512MB"
ROW_BYTES = 320
_FRAGMENTS = 16

FLAT_FROM_GB = 1
ALLOWED_GROWTH = 1.3
SMALL_MB = 128
"""From ``FLAT_FROM_GB`` for the smaller source, twice the rows may take ``ALLOWED_GROWTH`` times
the peak. Peaks below ``SMALL_MB`` count as ``SMALL_MB``."""

_ROWS = f"""
import numpy as np, pyarrow as pa
import {{engine}} as engine
schema = pa.schema([
    ("id", pa.int64()), ("small", pa.int32()), ("float", pa.float64()), ("text", pa.string()),
    ("vector", pa.list_(pa.float32(), 64)),
])
rng = np.random.default_rng(0)
STEP = 8192
pool = pa.array(rng.standard_normal(2 * STEP * 64, np.float32))
texts = pa.array([f"text {{{{at:05d}}}} " + "x" * int(size) for at, size in
                  enumerate(rng.integers(20, 45, 4 * STEP))])

def batch(start, count):
    ids = np.arange(start, start + count)
    vectors = pa.FixedSizeListArray.from_arrays(pool.slice(start % STEP * 64, count * 64), 64)
    columns = [ids, (ids % 1000).astype(np.int32), rng.random(count)]
    return pa.record_batch([*map(pa.array, columns), texts.slice(start % STEP, count), vectors],
                           schema=schema)

def source(rows, first=0):
    batches = (batch(at, min(STEP, rows + first - at)) for at in range(first, rows + first, STEP))
    return pa.RecordBatchReader.from_batches(schema, batches)

def bound(merge):
    return merge.memory_limit({LIMIT!r}) if hasattr(merge, "memory_limit") else merge

path, rows = {{path!r}}, {{rows}}
"""

_TARGET = """
engine.write_dataset(
    source(rows), path, max_rows_per_file=-(-rows // {fragments}), data_storage_version="{version}"
)
"""

_CHANGES = {
    "write": "engine.write_dataset(source(rows), path)",
    "stream": "for batch in engine.dataset(path).to_batches(): pass",
    "update": "engine.dataset(path).update({'float': 'float + 1'})",
    "upsert": (
        "bound(engine.dataset(path).merge_insert('id').when_matched_update_all()"
        ".when_not_matched_insert_all()).execute(source(rows, rows // 2))"
    ),
    "new column": "engine.dataset(path).add_columns({'double': 'float * 2'})",
    "compact": "engine.dataset(path).optimize.compact_files(target_rows_per_fragment=1 << 30)",
}


def _peak(bench: Bench, engine: Engine, change: str, rows: int) -> tuple[float, float]:
    path = bench.data.scratch(f"memory-{engine.name}")
    if change != "write":
        theirs = bench.engines[0].name
        _measure(theirs, path, rows, _TARGET.format(
            fragments=_FRAGMENTS, version=bench.data.version
        ))  # fmt: skip
    try:
        return _measure(engine.name, path, rows, _CHANGES[change])
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _measure(engine: str, path: Path, rows: int, script: str) -> tuple[float, float]:
    module = {"pylance": "lance"}.get(engine, engine)
    return peak_memory(script, before=_ROWS.format(engine=module, path=str(path), rows=rows))


def peaks(change: str) -> Run:
    """Measure the peak of a change for the largest size, a half and a quarter of it."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        bench = without_parquet(bench)
        lines = []
        for part in (4, 2, 1):
            size = bench.memory_gb / part
            own = Row(f"{title} {size:g} GB", goal, unit="MB")
            resident = Row("  with mapped pages", goal, unit="MB")
            for engine in bench.engines:
                mine, all_of_it = _peak(bench, engine, change, int(size * 1e9) // ROW_BYTES)
                own.values[engine.name] = (mine, mine)
                resident.values[engine.name] = (all_of_it, all_of_it)
            lines += [own, resident]
        if bench.memory_gb >= 2 * FLAT_FROM_GB:
            _check_flat(lines[-4], lines[-2])
        return lines

    return work


def _check_flat(half: Row, whole: Row) -> None:
    """Mark the row as wrong if twice the rows take much more memory."""
    if "glaive" not in whole.values:
        return
    first, last = half.values["glaive"][0], whole.values["glaive"][0]
    if last > ALLOWED_GROWTH * max(first, SMALL_MB):
        whole.wrong = f"not flat: {first:.0f} MB for half of the rows"


def _table(bench: Bench, title: str, goal: float | None) -> list[Row]:
    """Measure writing the table of the benchmark, which is in memory before."""
    row = Row(title, None, unit="MB", most=goal)
    source = bench.data.lance("table")
    for engine in without_parquet(bench).engines:
        module = {"pylance": "lance"}.get(engine.name, engine.name)
        path = bench.data.scratch(f"memory-{engine.name}")
        before = (
            f"import lance\nimport {module} as engine\n"
            f"table = lance.dataset({str(source)!r}).to_table()\n"
        )
        peak = peak_memory(f"engine.write_dataset(table, {str(path)!r})", before=before)
        row.values[engine.name] = peak[0], peak[1]
        shutil.rmtree(path)
    return [row]


WORKLOADS = [
    Workload("memory of a write", 250, _table),
    *(Workload(f"memory: {change}", None, peaks(change)) for change in _CHANGES),
]
