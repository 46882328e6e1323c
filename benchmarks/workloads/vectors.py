"""Exact and indexed searches for nearest vectors, and builds of indices.

The data set has 100,000 clustered vectors of 128 numbers (``--rows`` divided by 50), and 50
queries of the same kind. Both libraries search an index of glaive with the same parameters. The
next row has recall@10. An in-memory index of faiss, if it is installed, is the reference.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import glaive
from benchmarks.engines import Engine
from benchmarks.measure import peak_memory
from benchmarks.recipes import DIMENSION, clustered
from benchmarks.workloads.common import Bench, Row, Run, Workload, run, timed, without_parquet

__all__ = ["KINDS", "QUERIES", "WORKLOADS", "ids_of", "indexed", "queries_of", "truth"]

QUERIES = 50
_BATCH = 100
_PARTS = DIMENSION // 8
_HALF = "small < 500"

KINDS: dict[str, dict[str, Any]] = {
    "IVF_FLAT": {},
    "IVF_SQ": {},
    "IVF_PQ": {"num_sub_vectors": _PARTS},
    "IVF_RQ": {},
    "IVF_HNSW_SQ": {"num_partitions": 4},
}
"""Parameters of the builds. All except graphs have a partition for each 400 vectors."""

_SEARCH: dict[str, dict[str, Any]] = {
    "IVF_FLAT": {"nprobes": 8},
    "IVF_SQ": {"nprobes": 8},
    "IVF_PQ": {"nprobes": 8, "refine_factor": 8},
    "IVF_RQ": {"nprobes": 8},
    "IVF_HNSW_SQ": {"nprobes": 4, "ef": 64},
}


def queries_of(bench: Bench, count: int = QUERIES) -> NDArray[np.float32]:
    """Return queries of the same kind as the vectors of the dataset."""
    return clustered(bench.data.rows // 50, _BATCH)[1][:count]


def parameters_of(bench: Bench, kind: str) -> dict[str, Any]:
    """Return the parameters of a build."""
    return {"num_partitions": max(1, bench.data.rows // 20_000), **KINDS[kind]}


def indexed(bench: Bench, kind: str) -> Path:
    """Return the path of the dataset with an index of glaive; build it once."""
    path = bench.data.folder / f"clustered-{kind}.lance"
    if not path.exists():
        fresh = bench.data.scratch(path.name)
        shutil.copytree(bench.data.lance("clustered"), fresh)
        glaive.dataset(str(fresh)).create_index("vector", kind, **parameters_of(bench, kind))
        fresh.rename(path)
    return path


@cache
def truth(rows: int, *, half: bool = False) -> list[frozenset[int]]:
    """Return the ten nearest rows of each query, among all rows or the filter's half."""
    vectors, queries = clustered(rows, _BATCH)
    far = np.square(vectors).sum(axis=1) - 2 * (queries[:QUERIES] @ vectors.T)
    if half:
        far[:, np.arange(rows) % 1000 >= 500] = np.inf
    nearest = np.argpartition(far, 10, axis=1)[:, :10]
    return [frozenset(row) for row in nearest.tolist()]


def ids_of(opened: Any, query: Any, scan: dict[str, Any], nearest: dict[str, Any]) -> list[int]:
    """Search for one query and return row ids."""
    search = {"column": "vector", "q": query, "k": 10, **nearest}
    return opened.to_table(columns=["id", "_distance"], nearest=search, **scan)["id"].to_pylist()


def exact(metric: str, count: int) -> Run:
    """Compare all vectors with one query, or with a batch."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        bench = without_parquet(bench)
        opened = {e.name: e.open(e.place(bench.data, "clustered")) for e in bench.engines}
        queries = queries_of(bench, count)
        nearest = {
            "column": "vector", "q": queries if count > 1 else queries[0], "k": 10,
            "metric": metric,
        }  # fmt: skip
        calls: dict[str, Callable[[], object]] = {
            name: partial(at.to_table, columns=["id", "_distance"], nearest=nearest)
            for name, at in opened.items()
        }
        return timed(Row(title, goal), run(bench, calls))

    return work


def search(kind: str, *, half: bool = False, default: bool = False) -> Run:
    """Search with an index, query by query: milliseconds for each."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        bench = without_parquet(bench)
        path, queries = indexed(bench, kind), queries_of(bench)
        scan = {"filter": _HALF, "prefilter": True} if half else {}
        nearest = {} if default else _SEARCH[kind]
        opened = {e.name: e.open(path) for e in bench.engines}
        recall = Row("  recall@10", None, unit="")
        near = truth(bench.data.rows // 50, half=half)

        def call(name: str) -> list[list[int]]:
            return [ids_of(opened[name], query, scan, nearest) for query in queries]

        calls: dict[str, Callable[[], object]] = {}
        for name in opened:
            hits = sum(len(one & set(ids)) for one, ids in zip(near, call(name), strict=True))
            recall.values[name] = (hits / 10 / QUERIES,) * 2
            calls[name] = partial(call, name)
        if find_spec("faiss") is not None and kind in _FAISS and not (half or default):
            calls["faiss"] = _of_faiss(bench, kind, near, recall)
        row = timed(Row(title, goal), run(bench, calls))[0]
        row.values = {name: (a / QUERIES, b / QUERIES) for name, (a, b) in row.values.items()}
        return [row, recall]

    return work


_FAISS = ("IVF_PQ", "IVF_HNSW_SQ")


def _of_faiss(bench: Bench, kind: str, near: list[frozenset[int]], recall: Row) -> Any:
    """Return searches of an in-memory faiss index on one core, with the same refinement."""
    faiss = import_module("faiss")
    faiss.omp_set_num_threads(1)
    vectors, queries = clustered(bench.data.rows // 50, _BATCH)
    if kind == "IVF_PQ":
        name = f"IVF{parameters_of(bench, kind)['num_partitions']},PQ{_PARTS}x8,RFlat"
        index = faiss.index_factory(DIMENSION, name)
        index.train(vectors)
        index.k_factor = _SEARCH[kind]["refine_factor"]
        faiss.extract_index_ivf(index).nprobe = _SEARCH[kind]["nprobes"]
    else:
        index = faiss.IndexHNSWFlat(DIMENSION, 20)
        index.hnsw.efConstruction, index.hnsw.efSearch = 150, _SEARCH[kind]["ef"]
    index.add(vectors)

    def call() -> list[list[int]]:
        return [index.search(query[None], 10)[1][0].tolist() for query in queries[:QUERIES]]

    hits = sum(len(one & set(ids)) for one, ids in zip(near, call(), strict=True))
    recall.values["faiss"] = (hits / 10 / QUERIES,) * 2
    return call


def build(kind: str) -> Run:
    """Build an index; a new process measures the peak of its memory."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        bench = without_parquet(bench)
        row, memory = Row(title, goal), Row("  peak memory", None, unit="MB")
        parameters = parameters_of(bench, kind)

        def call(engine: Engine) -> Any:
            path = bench.data.scratch(f"build-{engine.name}")
            shutil.copytree(bench.data.lance("clustered"), path)
            return path

        def built(engine: Engine) -> object:
            return engine.open(call(engine)).create_index("vector", kind, **parameters)

        for engine in bench.engines:
            module = {"pylance": "lance"}.get(engine.name, engine.name)
            before = f"import {module} as m\nat = m.dataset({str(call(engine))!r})\n"
            script = f"at.create_index('vector', {kind!r}, **{parameters!r})"
            memory.values[engine.name] = peak_memory(script, before=before)
        once = Bench(bench.data, bench.engines, 1, 0, bench.memory_gb)
        calls: dict[str, Callable[[], object]] = {
            engine.name: partial(built, engine) for engine in bench.engines
        }
        return [*timed(row, run(once, calls)), memory]

    return work


_AS_BUILT: dict[str, dict[str, Any]] = {
    "IVF_SQ": {"nprobes": 8},
    "IVF_PQ": {"nprobes": 16},
    "IVF_RQ": {"nprobes": 16},
    "IVF_HNSW_SQ": {"nprobes": 4, "ef": 20},
}
"""Searches that depend on codes and graphs: without refinement, over few nodes."""


def recall_as_built(kind: str) -> Run:
    """Measure recall of indices that each library builds; glaive searches both."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        bench = without_parquet(bench)
        near, queries = truth(bench.data.rows // 50), queries_of(bench)
        row = Row(title, goal, unit="")
        for engine in bench.engines:
            path = bench.data.scratch(f"recall-{engine.name}")
            shutil.copytree(bench.data.lance("clustered"), path)
            engine.open(path).create_index("vector", kind, **parameters_of(bench, kind))
            opened = glaive.dataset(str(path))
            found = [ids_of(opened, query, {}, _AS_BUILT[kind]) for query in queries]
            hits = sum(len(one & set(ids)) for one, ids in zip(near, found, strict=True))
            row.values[engine.name] = (hits / 10 / QUERIES,) * 2
        return [row]

    return work


WORKLOADS = [
    Workload("nearest, exact", 3, exact("l2", 1)),
    Workload("nearest, exact, batch of 100", 10, exact("l2", _BATCH)),
    Workload("nearest, exact cosine", 3, exact("cosine", 1)),
    Workload("nearest, cosine, batch of 100", 10, exact("cosine", _BATCH)),
    *(Workload(f"nearest {kind}", 2, search(kind)) for kind in KINDS),
    Workload("nearest IVF_PQ, as by default", 2, search("IVF_PQ", default=True)),
    *(Workload(f"nearest {kind}, prefilter", 2, search(kind, half=True)) for kind in KINDS),
    *(Workload(f"build {kind}", 1, build(kind)) for kind in ("IVF_PQ", "IVF_HNSW_SQ")),
    *(Workload(f"recall as built, {kind}", None, recall_as_built(kind)) for kind in _AS_BUILT),
]
