"""Recipes of the data sets: deterministic tables of typical columns.

================ ========= ===================================================================
name             rows      columns
================ ========= ===================================================================
table            all       int64 ascending, int32 below 1,000, float64, bool, int64 with 10 %
                           nulls, string of 50 values, text of 20-60 characters, timestamp
vectors          1 in 50   int64 and 768 float32
clustered        1 in 50   int64, int32 below 1,000 and 128 float32 around 1,000 centres
nested           1 in 5    list<int32>, list<string>, nullable struct
maps             1 in 5    map<string, int64> of up to five entries
flat             all       incompressible float64, as pylance writes it
plain            all       the same, as glaive writes it: pages without chunks
dictionary       all       50 strings as an Arrow dictionary
zstd_doubles     all       prices, split into byte streams, with zstd
zstd_text        1 in 5    the text of ``table`` with zstd
packed           all       packed struct of int64, float64 and int32
blobs            1 in 2500 100 KB of noise each, which pylance compresses with zstd
plain_blobs      1 in 2500 the same, uncompressed
v2_0, v0_1       all       numbers and text in files of format 2.0 and 0.1
wide             100       10,000 columns of int64
deleted          all       numbers of ``table``, with 3 % of the rows deleted
scattered        all       ``table`` in a thousand fragments
one_of_them      1 in 1000 the rows of one of these fragments
fragments        10,000    numbers of ``table``, ten in a fragment
keyed            1 in 5    keys, kinds, labels and times, with scalar indices
documents        1 in 50   titles and texts of 10 to 150 words, with NGRAM and text indices
================ ========= ===================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

import glaive
from benchmarks.indexed import Indexing, documents, keyed

__all__ = ["DIMENSION", "RECIPES", "Recipe", "clustered", "make"]

DIMENSION = 128
"""Dimension of the clustered vectors."""

WIDE = 10_000
"""Number of columns of the wide table."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe: ``make`` builds the table from a number of rows.

    ``version`` is the format that the data set needs. ``writer`` writes the dataset.
    """

    make: Callable[[int], pa.Table]
    version: str | None = None
    writer: Any = lance


def _table(rows: int) -> pa.Table:
    rng = np.random.default_rng(1)
    value = rng.integers(0, 1 << 40, rows)
    steps = rng.integers(1, 2_000_000, rows)
    kinds = pa.array([f"category-{i:02d}" for i in range(50)])
    return pa.table(
        {
            "seq": np.arange(rows),
            "small": rng.integers(0, 1_000, rows, np.int32),
            "float": rng.random(rows),
            "flag": rng.random(rows) < 0.5,
            "nullable": pa.array(value, mask=rng.random(rows) < 0.1),
            "kind": kinds.take(pa.array(rng.integers(0, 50, rows))),
            "text": _texts(rng, rows),
            "time": pa.array(1_700_000_000_000_000 + np.cumsum(steps), pa.timestamp("us")),
        }
    )


def _texts(rng: np.random.Generator, rows: int) -> pa.Array:
    """Return texts of four to ten words out of 5,000: 20 to 60 characters."""
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", np.uint8)
    weights = 1 / np.arange(1, 27)
    sizes = rng.integers(2, 10, 5_000)
    spelled = rng.choice(letters, int(sizes.sum()), p=weights / weights.sum()).tobytes().decode()
    ends = np.cumsum(sizes)
    words = pa.array([spelled[end - size : end] for end, size in zip(ends, sizes, strict=True)])
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(rng.integers(4, 11, rows), out=offsets[1:])
    chosen = words.take(pa.array(rng.integers(0, 5_000, int(offsets[-1]))))
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), chosen), " ")


def _vectors(rows: int) -> pa.Table:
    rng = np.random.default_rng(2)
    flat = pa.array(rng.standard_normal(rows * 768, np.float32))
    return pa.table({"id": np.arange(rows), "vector": pa.FixedSizeListArray.from_arrays(flat, 768)})


@cache
def clustered(rows: int, queries: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return vectors around centres of different width, and queries of the same kind."""
    rng = np.random.default_rng(13)
    centers = rng.standard_normal((1_000, DIMENSION), np.float32)
    widths = rng.uniform(0.3, 1.0, 1_000).astype(np.float32)
    pick = rng.integers(0, 1_000, rows + queries)
    noise = rng.standard_normal((rows + queries, DIMENSION), np.float32)
    vectors = centers[pick] + noise * widths[pick][:, None]
    return vectors[:rows], vectors[rows:]


def _clustered(rows: int) -> pa.Table:
    flat = pa.array(clustered(rows, 100)[0].reshape(-1))
    ids = np.arange(rows)
    lists = pa.FixedSizeListArray.from_arrays(flat, DIMENSION)
    return pa.table({"id": ids, "small": (ids % 1_000).astype(np.int32), "vector": lists})


def _nested(rows: int) -> pa.Table:
    rng = np.random.default_rng(3)

    def offsets(most: int) -> pa.Array:
        ends = np.zeros(rows + 1, np.int32)
        np.cumsum(rng.integers(0, most + 1, rows), out=ends[1:])
        return pa.array(ends)

    ints, strings = offsets(10), offsets(3)
    tags = pa.array([f"tag-{i}" for i in range(1_000)])
    return pa.table(
        {
            "ints": pa.ListArray.from_arrays(
                ints, pa.array(rng.integers(0, 100_000, ints[-1].as_py(), np.int32))
            ),
            "strings": pa.ListArray.from_arrays(
                strings, tags.take(pa.array(rng.integers(0, 1_000, strings[-1].as_py())))
            ),
            "struct": pa.StructArray.from_arrays(
                [pa.array(rng.integers(0, 1 << 30, rows)), pa.array(rng.random(rows))],
                names=["a", "b"],
                mask=pa.array(rng.random(rows) < 0.1),
            ),
        }
    )


def _flat(rows: int) -> pa.Table:
    return pa.table({"float": np.random.default_rng(4).standard_normal(rows)})


def _maps(rows: int) -> pa.Table:
    rng = np.random.default_rng(6)
    ends = np.zeros(rows // 5 + 1, np.int32)
    np.cumsum(rng.integers(0, 6, rows // 5), out=ends[1:])
    keys = pa.array([f"key-{i}" for i in range(200)])
    count = int(ends[-1])
    entries = keys.take(pa.array(rng.integers(0, 200, count)))
    numbers = pa.array(rng.integers(0, 1_000_000, count))
    return pa.table({"map": pa.MapArray.from_arrays(pa.array(ends), entries, numbers)})


def _dictionary(rows: int) -> pa.Table:
    kinds = pa.array([f"category-{i:02d}" for i in range(50)])
    picks = pa.array(np.random.default_rng(7).integers(0, 50, rows, np.int32))
    return pa.table({"kind": pa.DictionaryArray.from_arrays(picks, kinds)})


def _with_metadata(name: str, array: pa.Array, **keys: str) -> pa.Table:
    """Return a table of one column with encoding keys."""
    metadata: Any = {f"lance-encoding:{key}": value for key, value in keys.items()}
    field = pa.field(name, array.type, metadata=metadata)
    return pa.Table.from_arrays([array], schema=pa.schema([field]))


def _zstd_doubles(rows: int) -> pa.Table:
    steps = np.random.default_rng(8).normal(size=rows)
    prices = pa.array(np.round(np.cumsum(steps) + 1_000, 2))
    return _with_metadata("price", prices, compression="zstd", bss="on")


def _zstd_text(rows: int) -> pa.Table:
    texts = _texts(np.random.default_rng(9), rows // 5)
    return _with_metadata("text", texts, compression="zstd")


def _packed(rows: int) -> pa.Table:
    rng = np.random.default_rng(10)
    members: list[Any] = [rng.integers(0, 1 << 40, rows), rng.random(rows)]
    members.append(rng.integers(0, 1_000, rows, np.int32))
    fields = [
        pa.field(name, pa.array(one).type, False) for name, one in zip("abc", members, strict=True)
    ]
    return _with_metadata(
        "struct",
        pa.StructArray.from_arrays(list(map(pa.array, members)), fields=fields),
        packed="true",
    )


def _blobs(rows: int, **keys: str) -> pa.Table:
    count, size = max(rows // 2_500, 2), 100_000
    noise = np.random.default_rng(11).integers(0, 256, count * size, np.uint8)
    ends = pa.array(np.arange(count + 1) * size)
    array = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), count, [None, ends.buffers()[1], pa.py_buffer(noise)]
    )
    return _with_metadata("blob", array, **keys)


def _older(rows: int) -> pa.Table:
    return make("table", rows).select(["seq", "float", "text"])


def _wide() -> pa.Table:
    numbers = np.random.default_rng(12).integers(0, 1 << 40, (WIDE, 100))
    return pa.table({f"c{at:05d}": numbers[at] for at in range(WIDE)})


def _numbers(rows: int) -> pa.Table:
    return make("table", rows).select(["seq", "small", "float"])


class _Deleting:
    """A writer that deletes 3 % of the rows."""

    def write_dataset(self, table: pa.Table, path: str, **options: Any) -> None:
        lance.write_dataset(table, path, **options).delete("small < 30")


class _Scattering:
    """A writer of fragments of ten rows."""

    def write_dataset(self, table: pa.Table, path: str, **options: Any) -> None:
        lance.write_dataset(table, path, max_rows_per_file=10, **options)


class _Fragmenting:
    """A writer of a thousand fragments."""

    def write_dataset(self, table: pa.Table, path: str, **options: Any) -> None:
        lance.write_dataset(table, path, max_rows_per_file=-(-len(table) // 1000), **options)


@cache
def make(name: str, rows: int) -> pa.Table:
    """Return a data set in memory, in one chunk per column."""
    return RECIPES[name].make(rows)


RECIPES: dict[str, Recipe] = {
    "table": Recipe(_table),
    "vectors": Recipe(lambda rows: _vectors(rows // 50)),
    "clustered": Recipe(lambda rows: _clustered(rows // 50)),
    "nested": Recipe(lambda rows: _nested(rows // 5)),
    "flat": Recipe(_flat),
    "plain": Recipe(_flat, writer=glaive),
    "maps": Recipe(_maps, "2.2"),
    "dictionary": Recipe(_dictionary),
    "zstd_doubles": Recipe(_zstd_doubles),
    "zstd_text": Recipe(_zstd_text),
    "packed": Recipe(_packed),
    "blobs": Recipe(_blobs),
    "plain_blobs": Recipe(lambda rows: _blobs(rows, compression="none")),
    "v2_0": Recipe(_older, "2.0"),
    "v0_1": Recipe(_older, "0.1"),
    "wide": Recipe(lambda _rows: _wide()),
    "deleted": Recipe(_numbers, writer=_Deleting()),
    "scattered": Recipe(_table, writer=_Fragmenting()),
    "one_of_them": Recipe(lambda rows: _table(-(-rows // 1000))),
    "fragments": Recipe(lambda rows: _numbers(rows).slice(0, 10_000), writer=_Scattering()),
    "keyed": Recipe(lambda rows: keyed(rows // 5), writer=Indexing("keyed")),
    "documents": Recipe(lambda rows: documents(rows // 50), writer=Indexing("documents")),
}
"""The data sets by name."""
