"""Tables with indices, generated from seeds: keys, labels and documents."""

from __future__ import annotations

from functools import cache
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["INDICES", "Indexing", "documents", "keyed", "keys_of", "parameters", "vocabulary"]

_VOCABULARY = 30_000
_DAY = 86_400_000_000

INDICES = {
    "keyed": (
        ("id", "BTREE"),
        ("name", "BTREE"),
        ("kind", "BITMAP"),
        ("labels", "LABEL_LIST"),
        ("time", "ZONEMAP"),
    ),
    "documents": (("title", "NGRAM"), ("body", "INVERTED")),
}
"""Indexed columns of each table, and the kind of index."""


def keys_of(rows: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the ids of a table: distinct, shuffled, with gaps."""
    return np.random.default_rng(21).permutation(rows) * 3


def keyed(rows: int) -> pa.Table:
    """Return shuffled ids and names, 200 kinds, lists of labels, ascending times, a payload."""
    rng = np.random.default_rng(22)
    ids = keys_of(rows)
    kinds = pa.array([f"category-{at:03d}" for at in range(200)])
    labels = pa.array([f"label-{at:04d}" for at in range(1_000)])
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(rng.integers(0, 5, rows), out=ends[1:])
    picks = np.minimum(rng.zipf(1.3, int(ends[-1])) - 1, 999)
    steps = rng.integers(1, 60_000_000, rows)
    digits: Any = pc.utf8_lpad(pa.array(ids).cast(pa.string()), 9, "0")
    return pa.table(
        {
            "id": ids,
            "name": pc.binary_join_element_wise("user-", digits, "@example.org", ""),
            "kind": kinds.take(pa.array(np.minimum(rng.zipf(1.2, rows) - 1, 199))),
            "labels": pa.ListArray.from_arrays(pa.array(ends), labels.take(pa.array(picks))),
            "time": pa.array(20_000 * _DAY + np.cumsum(steps), pa.timestamp("us")),
            "price": rng.random(rows),
        }
    )


@cache
def vocabulary() -> pa.Array:
    """Return words of two to ten letters, the most frequent first."""
    rng = np.random.default_rng(23)
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", np.uint8)
    sizes = rng.integers(2, 11, _VOCABULARY)
    spelled = rng.choice(letters, int(sizes.sum())).tobytes().decode()
    ends = np.cumsum(sizes)
    return pa.array([spelled[end - size : end] for end, size in zip(ends, sizes, strict=True)])


def documents(rows: int) -> pa.Table:
    """Return texts of 10 to 150 words with titles; word frequencies follow natural language."""
    rng = np.random.default_rng(24)
    words = vocabulary()
    weights = 1 / (np.arange(len(words)) + 10.0)

    def texts(least: int, most: int) -> pa.Array:
        ends = np.zeros(rows + 1, np.int32)
        np.cumsum(rng.integers(least, most, rows), out=ends[1:])
        picks = rng.choice(len(words), int(ends[-1]), p=weights / weights.sum())
        return pc.binary_join(
            pa.ListArray.from_arrays(pa.array(ends), words.take(pa.array(picks))), " "
        )

    return pa.table({"id": np.arange(rows), "title": texts(3, 9), "body": texts(10, 150)})


class Indexing:
    """A writer that writes with pylance and builds its indices."""

    def __init__(self, name: str) -> None:
        self.name = name

    def write_dataset(self, table: pa.Table, path: str, **options: Any) -> None:
        dataset = lance.write_dataset(table, path, **options)
        for column, kind in INDICES[self.name]:
            dataset.create_scalar_index(column, kind, **parameters(kind))


def parameters(kind: str) -> dict[str, Any]:
    """Return the parameters of a build: phrases need positions."""
    return {"with_position": True} if kind == "INVERTED" else {}
