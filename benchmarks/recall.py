"""Measure recall of indices that both libraries build: ``python -m benchmarks.recall``.

Both build with the same parameters. The vectors are:

- ``--data clustered``: vectors around centres.
- ``--data texts``: latent semantic analysis (TF-IDF, then SVD) of docstrings of the installed
  packages.
- ``--data FILE.npy``: your own, an array with a vector in each row, as NumPy saves it.

``--searcher`` searches both indices. A row has recall@10 of each, and the mean difference over the
queries with its standard error.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from site import getsitepackages
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import glaive

__all__ = ["Matrix", "around_centres", "differences", "nearest_rows", "text_vectors"]

Matrix = NDArray[np.float32]
_NEAR = 10
_WORDS, _AXES = 2048, 256
_DOCSTRING = re.compile(r'"""(.{20,400}?)[.\n]*(?:\n\s*\n|""")', re.DOTALL)

KINDS: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "IVF_FLAT": ({}, ({"nprobes": 1}, {"nprobes": 4}, {"nprobes": 16})),
    "IVF_SQ": ({}, ({"nprobes": 4}, {"nprobes": 16})),
    "IVF_PQ": (
        {"num_sub_vectors": 16},
        ({"nprobes": 4}, {"nprobes": 16}, {"nprobes": 16, "refine_factor": 5}),
    ),
    "IVF_RQ": ({}, ({"nprobes": 4}, {"nprobes": 16})),
    "IVF_HNSW_FLAT": ({"num_partitions": 1}, ({"ef": 10}, {"ef": 20}, {"ef": 50})),
    "IVF_HNSW_SQ": ({"num_partitions": 1}, ({"ef": 10}, {"ef": 15}, {"ef": 20}, {"ef": 50})),
    "IVF_HNSW_PQ": (
        {"num_partitions": 1, "num_sub_vectors": 16},
        ({"ef": 50}, {"ef": 50, "refine_factor": 5}),
    ),
}
"""Parameters of each build, with a partition for each 400 vectors, and of its searches."""


def around_centres(rows: int, queries: int, dimension: int, seed: int) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((1_000, dimension), np.float32)
    widths = rng.uniform(0.3, 1.0, 1_000).astype(np.float32)
    pick = rng.integers(0, 1_000, rows + queries)
    vectors = rng.standard_normal((rows + queries, dimension), np.float32)
    vectors *= widths[pick][:, None]
    vectors += centers[pick]
    return vectors[:rows], vectors[rows:]


def _docstrings() -> Iterator[str]:
    """Yield beginnings of docstrings of the installed packages, each once, unordered."""
    seen: set[str] = set()
    for folder in getsitepackages():
        for path in sorted(Path(folder).rglob("*.py")):
            for text in _DOCSTRING.findall(path.read_text(errors="replace")):
                plain = " ".join(text.split()).lower()
                if plain not in seen:
                    seen.add(plain)
                    yield plain


def text_vectors(texts: list[str], words: int = _WORDS, axes: int = _AXES) -> Matrix:
    """Return vectors of length 1, near each other for texts with words in common.

    Skip texts with fewer than three of the most frequent words.
    """
    tokens = [re.findall(r"[a-z]{2,}", text) for text in texts]
    found_in = Counter(word for one in tokens for word in set(one))
    numbers = {word: at for at, (word, _) in enumerate(found_in.most_common(words))}
    rare = np.log(len(texts) / np.array([found_in[word] for word in numbers]))
    rows = np.zeros((len(texts), len(numbers)), np.float32)
    for row, one in zip(rows, tokens, strict=True):
        known = [numbers[word] for word in one if word in numbers]
        np.add.at(row, known, 1)
    rows = np.log1p(rows) * rare.astype(np.float32)
    rows = rows[np.count_nonzero(rows, axis=1) > 2]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    _, main = np.linalg.eigh(rows.T @ rows)
    vectors: Matrix = np.ascontiguousarray(rows @ main[:, : -axes - 1 : -1], np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _of_texts(rows: int, queries: int, seed: int) -> tuple[Matrix, Matrix]:
    texts = list(_docstrings())
    np.random.default_rng(seed).shuffle(texts)
    vectors = text_vectors(texts[: rows + queries])
    return vectors[:-queries], vectors[-queries:]


def _of_file(path: str, rows: int, queries: int, seed: int) -> tuple[Matrix, Matrix]:
    vectors = np.asarray(np.load(path, allow_pickle=False), np.float32)
    order = np.random.default_rng(seed).permutation(len(vectors))[: rows + queries]
    return vectors[order[:-queries]], vectors[order[-queries:]]


def nearest_rows(vectors: Matrix, queries: Matrix) -> list[frozenset[int]]:
    """Return the rows nearest to each query, by exhaustive comparison."""
    squares = np.einsum("ij,ij->i", vectors, vectors)
    found: list[frozenset[int]] = []
    for part in np.array_split(queries, max(1, len(queries) // 50)):
        far = squares - 2 * (part @ vectors.T)
        found += map(frozenset, np.argpartition(far, _NEAR, axis=1)[:, :_NEAR].tolist())
    return found


def _recall(
    searcher: Any, path: str, queries: Matrix, near: list[frozenset[int]], how: dict[str, Any]
) -> NDArray[np.float64]:
    """Return the recall of a search for each query."""
    opened = searcher.dataset(path)
    shares = []
    for query, wanted in zip(queries, near, strict=True):
        nearest = {"column": "vector", "q": query, "k": _NEAR, **how}
        ids = opened.to_table(columns=["id", "_distance"], nearest=nearest)["id"].to_pylist()
        shares.append(len(wanted & set(ids)) / _NEAR)
    return np.array(shares)


def differences(
    vectors: Matrix, queries: Matrix, kinds: list[str], searcher: Any, folder: str
) -> Iterator[str]:
    """Yield a row of a Markdown table for each kind of index and each search."""
    near = nearest_rows(vectors, queries)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    table = pa.table({"id": np.arange(len(vectors)), "vector": lists})
    for kind in kinds:
        parameters, searches = KINDS[kind]
        parameters = {"num_partitions": max(1, len(vectors) // 400), **parameters}
        paths = {}
        for module in (glaive, lance):
            paths[module] = f"{folder}/{kind}-{module.__name__}.lance"
            glaive.write_dataset(table, paths[module])
            module.dataset(paths[module]).create_index("vector", kind, **parameters)
        for how in searches:
            ours, theirs = (
                _recall(searcher, paths[module], queries, near, how) for module in (glaive, lance)
            )
            more = ours - theirs
            error = more.std() / np.sqrt(len(more))
            said = ", ".join(f"{name}={value}" for name, value in how.items())
            yield (
                f"| {kind} | {said} | {ours.mean():.4f} | {theirs.mean():.4f} | "
                f"{more.mean():+.4f} ± {error:.4f} |"
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall", description=__doc__)
    parser.add_argument(
        "--data", default="clustered", metavar="clustered|texts|FILE.npy", help="which vectors"
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=128, help="of clustered vectors")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--searcher", choices=("glaive", "pylance"), default="glaive")
    given = parser.parse_args()
    if given.data == "texts":
        vectors, queries = _of_texts(given.rows, given.queries, given.seed)
    elif given.data != "clustered":
        vectors, queries = _of_file(given.data, given.rows, given.queries, given.seed)
    else:
        size = given.rows, given.queries, given.dimension
        vectors, queries = around_centres(*size, given.seed)
    print(f"{len(vectors)} × {vectors.shape[1]} ({given.data}, seed {given.seed})", flush=True)
    print("| kind | search | built by glaive | built by pylance | difference |")
    print("|---|---|---|---|---|")
    searcher = {"glaive": glaive, "pylance": lance}[given.searcher]
    with tempfile.TemporaryDirectory() as folder:
        for line in differences(vectors, queries, given.kinds, searcher, folder):
            print(line, flush=True)


if __name__ == "__main__":
    main()
