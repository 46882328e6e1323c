"""Measure samples per second of loaders for PyTorch: ``python -m benchmarks.loaders``.

glaive's loader, pylance's loader and Parquet's batches read the same rows: an id, a label, a
vector. They read in order, shuffled, and single rows at random, with several numbers of workers.
Needs torch.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from glaive.torch.data import (
    LanceDataset,
    LanceLoader,
    SafeLanceDataset,
    get_safe_loader,
    to_tensor,
)
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import glaive
from benchmarks.__main__ import CACHE
from glaive.sampler import ShardedBatchSampler

BATCH = 1024
COLUMNS = ["id", "label", "vector"]


class ParquetBatches(IterableDataset):  # type: ignore[misc]  # torch has no types here
    """Row groups of a file, divided among workers; in order, or shuffled eight at a time."""

    def __init__(self, path: Path, *, shuffle: bool) -> None:
        self.path, self.shuffle = path, shuffle

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        file = pq.ParquetFile(self.path, memory_map=True)
        groups = np.arange(file.num_row_groups)
        if self.shuffle:
            np.random.default_rng(0).shuffle(groups)
        mine = groups[worker.id :: worker.num_workers] if worker else groups
        for first in range(0, len(mine), 8):
            table = file.read_row_groups(mine[first : first + 8].tolist(), COLUMNS)
            if self.shuffle:
                table = table.take(pa.array(np.random.default_rng(0).permutation(len(table))))
            for batch in table.combine_chunks().to_batches(BATCH):
                yield to_tensor(batch)


def write(folder: Path, rows: int) -> tuple[str, Path]:
    """Write missing files in both formats, with row groups of 8,192 rows."""
    lance, parquet = folder / f"loaders-{rows}.lance", folder / f"loaders-{rows}.parquet"
    if not parquet.exists():
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        vectors = pa.array(random.random(rows * 128, dtype=np.float32))
        table = pa.table(
            {
                "id": np.arange(rows),
                "label": random.integers(0, 1000, rows).astype(np.int32),
                "vector": pa.FixedSizeListArray.from_arrays(vectors, 128),
            }
        )
        per_file = rows // 8
        glaive.write_dataset(table, lance, mode="overwrite", max_rows_per_file=per_file)
        pq.write_table(table, parquet, row_group_size=8192)
    return str(lance), parquet


def loaders(lance: str, parquet: Path, workers: int) -> dict[str, dict[str, Callable[[], Any]]]:
    """Return functions that make a loader, by order and library."""
    from lance.sampler import ShardedBatchSampler as TheirBatches
    from lance.torch import data as their_data
    from lance.torch.data import LanceDataset as TheirDataset

    their: Any = their_data  # some of it has no types
    method = "forkserver" if workers else None  # pylance hangs after a fork
    options: dict[str, Any] = {"num_workers": workers, "multiprocessing_context": method}
    kept = {"persistent_workers": bool(workers)}

    def theirs(**how: Any) -> Any:
        data = TheirDataset(lance, BATCH, columns=COLUMNS, **how)
        return DataLoader(data, batch_size=None, **options, **kept)

    def ours(**how: Any) -> Any:
        return LanceLoader(LanceDataset(lance, BATCH, columns=COLUMNS, **how), **options, **kept)

    def plain(*, shuffle: bool) -> Any:
        data = ParquetBatches(parquet, shuffle=shuffle)
        return DataLoader(data, batch_size=None, **options, **kept)

    rows: dict[str, Any] = {"batch_size": BATCH, "shuffle": True} | options | kept
    found: dict[str, dict[str, Callable[[], Any]]] = {
        "in order": {"glaive": ours, "pylance": theirs, "parquet": lambda: plain(shuffle=False)},
        # pylance only shuffles single rows, as in the last line.
        "shuffled": {
            "glaive": lambda: ours(shuffle=True),
            "pylance": lambda: their.get_safe_loader(their.SafeLanceDataset(lance), **rows),
            "parquet": lambda: plain(shuffle=True),
        },
        "single rows": {
            "glaive": lambda: get_safe_loader(
                SafeLanceDataset(lance, columns=COLUMNS, to_tensor_fn=to_tensor), **rows
            ),
            "pylance": lambda: their.get_safe_loader(their.SafeLanceDataset(lance), **rows),
        },
    }
    if not workers:  # both samplers ignore workers: each worker would read all rows
        found["whole batches"] = {
            "glaive": lambda: ours(sampler=ShardedBatchSampler(0, 1, randomize=True)),
            "pylance": lambda: theirs(sampler=TheirBatches(0, 1, randomize=True)),
        }
    return found


def cpu_seconds() -> float:
    """Return the CPU time of this process and its workers."""
    spent = time.process_time()
    for process in psutil.Process().children(recursive=True):
        used = process.cpu_times()
        spent += used.user + used.system
    return spent


def samples_per_second(loader: Iterable[Any], seconds: float) -> tuple[float, float]:
    """Return rows per second of wall time, and of CPU time of all processes.

    The first batches do not count. The loader runs again until the time is over.
    """
    rows, begun = 0, 0.0
    cpu = 0.0
    started = time.perf_counter()
    while True:
        for batch in loader:
            if not begun:
                begun, cpu = time.perf_counter(), cpu_seconds()
                continue
            rows += len(batch["id"])
            vectors = batch["vector"]  # pylance returns rows by position as 128 tensors
            (torch.stack(vectors, 1) if isinstance(vectors, list) else vectors).sum()
            if time.perf_counter() - begun > seconds:
                break
        now = time.perf_counter()
        if now - begun > seconds or now - started > 4 * seconds + 20:
            break
    return rows / max(now - begun, 1e-9), rows / max(cpu_seconds() - cpu, 1e-9)


def main() -> None:
    """Measure the loaders and print a table."""
    parser = argparse.ArgumentParser(prog="make bench-loaders", description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--seconds", type=float, default=2, help="per loader and round")
    parser.add_argument("--rounds", type=int, default=2, help="the best one counts")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2, 4])
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--only", help="orders with this text in their name")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lance, parquet = write(options.cache, options.rows)
    print(
        f"{options.rows:,} rows of 128 floats, batches of {BATCH}: samples per second, without "
        "workers\nper second of CPU time; with workers per second, and ratios of the CPU time of "
        "all processes\n\n"
        f"{'order':14}{'workers':>8}{'glaive':>12}{'pylance':>12}{'parquet':>12}  ratios"
    )
    for workers in options.workers:
        for order, makers in loaders(lance, parquet, workers).items():
            if options.only and options.only not in order:
                continue
            best: dict[str, float] = {}
            thrifty: dict[str, float] = {}
            for _ in range(options.rounds):
                for name, make in makers.items():
                    wall, cpu = samples_per_second(make(), options.seconds)
                    best[name] = max(best.get(name, 0.0), wall if workers else cpu)
                    thrifty[name] = max(thrifty.get(name, 0.0), cpu)
            cells = [
                f"{best[name]:12,.0f}" if name in best else f"{'-':>12}"
                for name in ("glaive", "pylance", "parquet")
            ]
            ratios = [
                f"{best['glaive'] / best[name]:.1f}x {name}"
                + (f" (CPU {thrifty['glaive'] / thrifty[name]:.1f}x)" if workers else "")
                for name in best
                if name != "glaive"
            ]
            print(f"{order:14}{workers:8}{''.join(cells)}  {', '.join(ratios)}", flush=True)


if __name__ == "__main__":
    main()
