"""Compare searches with faiss, bm25s and tantivy, in turn: ``python -m benchmarks.beside``.

glaive and faiss search 200,000 clustered vectors of 128 numbers with the same parameters, on one
core. A row has recall@10 of both, then processor time in microseconds of one query, and of each
query in a batch of 100. glaive returns ``_distance`` and ``_rowid``, as faiss does; ``--id`` adds a
stored column.

With ``--texts``, glaive, bm25s and tantivy find the best 10 of 200,000 documents.

``--folder`` keeps datasets for the next run. It needs ``pip install faiss-cpu bm25s tantivy``.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import glaive
from benchmarks.indexed import documents, vocabulary
from benchmarks.measure import settled
from benchmarks.recall import Matrix, around_centres, nearest_rows

__all__ = ["SEARCHES"]

_NEAR, _BATCH, _PROBES, _REFINE = 10, 100, 10, 8

_BUILDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "pq": ("IVF_PQ", {"num_sub_vectors": 16}, "IVF{0},PQ16x8"),
    "pq-refined": ("IVF_PQ", {"num_sub_vectors": 16}, "IVF{0},PQ16x8,RFlat"),
    "pq4": ("IVF_PQ", {"num_sub_vectors": 32, "num_bits": 4}, "IVF{0},PQ32x4fs"),
    "rq": ("IVF_RQ", {"num_bits": 5}, "IVF{0},RaBitQ5"),
    "sq": ("IVF_SQ", {}, "IVF{0},SQ8"),
    "flat": ("IVF_FLAT", {}, "IVF{0},Flat"),
    "hnsw": ("IVF_HNSW_SQ", {"num_partitions": 1}, "HNSW20,SQ8"),
}
"""Kind and parameters of glaive, and the index of faiss with the number of partitions."""

SEARCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "IVF_PQ": ("pq", {"nprobes": _PROBES}),
    "IVF_PQ, refined": ("pq-refined", {"nprobes": _PROBES, "refine_factor": _REFINE}),
    "IVF_PQ, 4 bits": ("pq4", {"nprobes": _PROBES}),
    "IVF_RQ": ("rq", {"nprobes": _PROBES}),
    "IVF_SQ": ("sq", {"nprobes": _PROBES}),
    "IVF_FLAT": ("flat", {"nprobes": _PROBES}),
    "IVF_HNSW_SQ, ef=32": ("hnsw", {"nprobes": 1, "ef": 32}),
    "IVF_HNSW_SQ, ef=64": ("hnsw", {"nprobes": 1, "ef": 64}),
}


def _times(calls: list[Callable[[], object]], seconds: float, inner: int) -> list[float]:
    """Run calls in turn; return the median processor time of each, in microseconds."""
    seen: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    stop = time.perf_counter() + seconds
    with settled():
        while len(seen[0]) < 5 or time.perf_counter() < stop:
            for call, times in zip(calls, seen, strict=True):
                call()  # refills the caches of the processor
                start = time.process_time()
                for _ in range(inner):
                    call()
                times.append((time.process_time() - start) / inner * 1e6)
    return [statistics.median(times) for times in seen]


def _partitions(rows: int) -> int:
    return max(1, rows // 400)


def _dataset(name: str, vectors: Matrix, folder: str) -> Any:
    kind, parameters, _ = _BUILDS[name]
    path = f"{folder}/{name.removesuffix('-refined')}-{len(vectors)}.lance"
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    table = pa.table({"id": np.arange(len(vectors)), "vector": lists})
    parameters = {"num_partitions": _partitions(len(vectors)), **parameters}
    return _ready(path, table, "vector", kind, parameters)


def _faiss_index(name: str, vectors: Matrix, folder: str) -> Any:
    path = f"{folder}/{name}-{len(vectors)}.faiss"
    faiss = import_module("faiss")
    if Path(path).exists():
        return faiss.read_index(path)
    index = faiss.index_factory(
        vectors.shape[1], _BUILDS[name][2].format(_partitions(len(vectors)))
    )
    if name == "hnsw":
        index.hnsw.efConstruction = 150
    index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, path)
    return index


def _row(name: str, vectors: Matrix, queries: Matrix, near: Any, given: Any) -> str:
    build, how = SEARCHES[name]
    ours, theirs = (of(build, vectors, given.folder) for of in (_dataset, _faiss_index))
    if "ef" in how:
        theirs.hnsw.efSearch = how["ef"]
    else:
        import_module("faiss").extract_index_ivf(theirs).nprobe = how["nprobes"]
    if "refine_factor" in how:
        theirs.k_factor = how["refine_factor"]
    columns = ["id", "_distance"] if given.id else ["_distance"]

    def search(query: Matrix) -> pa.Table:
        nearest = {"column": "vector", "q": query, "k": _NEAR, **how}
        return ours.to_table(columns=columns, with_row_id=not given.id, nearest=nearest)

    key = "id" if given.id else "_rowid"
    found = [
        [search(query)[key].to_pylist() for query in queries],
        [theirs.search(query[None], _NEAR)[1][0].tolist() for query in queries],
    ]
    recalls = [
        sum(len(one & set(ids)) for one, ids in zip(near, each, strict=True)) / len(queries) / _NEAR
        for each in found
    ]
    turns = iter(range(1 << 62))

    def query() -> Matrix:
        return queries[next(turns) % len(queries)]

    one = _times(
        [lambda: search(query()), lambda: theirs.search(query()[None], _NEAR)], given.seconds, 50
    )
    batch = queries[:_BATCH]
    many = _times([lambda: search(batch), lambda: theirs.search(batch, _NEAR)], given.seconds, 1)
    many = [each / len(batch) for each in many]
    parts = [f"{recalls[0]:.3f} | {recalls[1]:.3f}"]
    parts += [f"{a:.0f} | {b:.0f} | {a / b:.2f}×" for a, b in (one, many)]
    return f"| {name} | {' | '.join(parts)} |"


def _ready(path: str, table: pa.Table, column: str, kind: str, parameters: dict[str, Any]) -> Any:
    """Open the dataset of a table with an index; write it once."""
    if not Path(path).exists():
        made = glaive.write_dataset(table, f"{path}.part")
        made.create_index(column, kind, **parameters)
        Path(f"{path}.part").rename(path)
    return glaive.dataset(path)


def _texts(given: Any) -> None:
    """Print times of searches for the best ten of documents."""
    bm25s, tantivy = import_module("bm25s"), import_module("tantivy")
    table = documents(given.rows).select(["id", "body"])
    bodies = table["body"].to_pylist()
    options = {"stem": False, "remove_stop_words": False}
    path = f"{given.folder}/texts-{given.rows}.lance"
    ours = _ready(path, table, "body", "INVERTED", options)
    model = bm25s.BM25()
    model.index([body.split() for body in bodies], show_progress=False)
    model.activate_numba_scorer()
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body", stored=False, index_option="freq")
    index = tantivy.Index(builder.build())
    writer = index.writer(200_000_000, 1)
    for body in bodies:
        writer.add_document(tantivy.Document(body=body))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher, words, random = index.searcher(), vocabulary().to_pylist(), np.random.default_rng(5)
    print("| query | glaive | bm25s | tantivy |\n|---|---|---|---|")
    for count in (1, 2, 4):
        picks = (random.zipf(1.1, (50, count)) * 7 % 3000).tolist()
        texts = [" ".join(words[at] for at in line) for line in picks]
        calls: list[Callable[[str], object]] = [
            lambda text: ours.to_table(
                columns=["_score"], with_row_id=True, full_text_query=text, limit=_NEAR
            ),
            lambda text: model.retrieve([text.split()], k=_NEAR, show_progress=False, n_threads=1),
            lambda text: searcher.search(index.parse_query(text, ["body"]), _NEAR, count=False),
        ]
        times = _times([partial(_each, call, texts) for call in calls], given.seconds, 1)
        print(
            f"| {count} words | " + " | ".join(f"{each / len(texts):.0f}" for each in times) + " |"
        )


def _each(call: Callable[[str], object], texts: list[str]) -> None:
    for text in texts:
        call(text)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=3, help="for each measurement")
    parser.add_argument("--folder", help="keep datasets here")
    parser.add_argument("--only", default="", help="searches whose name contains this text")
    parser.add_argument("--id", action="store_true", help="return a stored column, not the row id")
    parser.add_argument("--texts", action="store_true", help="compare searches of texts")
    given = parser.parse_args()
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as scratch:
        given.folder = given.folder or scratch
        (_texts if given.texts else _vectors)(given)


def _vectors(given: Any) -> None:
    """Print a row for each search of vectors."""
    import_module("faiss").omp_set_num_threads(1)
    vectors, queries = around_centres(given.rows, 200, given.dimension, 1)
    near = nearest_rows(vectors, queries)
    print("| search | recall | of faiss | one query | faiss | ratio | in a batch | faiss | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in SEARCHES:
        if given.only in name:
            print(_row(name, vectors, queries, near, given), flush=True)


if __name__ == "__main__":
    main()
