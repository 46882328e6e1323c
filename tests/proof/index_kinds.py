"""Kinds of indices for trials of damaged ones: how each is built, and the searches of it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from glaive.query import FullTextOperator, MatchQuery, MinHashQuery, PhraseQuery
from lance.indices import IndexConfig

import glaive

__all__ = ["KINDS", "indexed_dataset", "searches_of"]

_ROWS, _DIMENSION = 400, 16
_BOX = "st_geomfromtext('POLYGON((2 2, 7 2, 7 7, 2 7, 2 2))')"


def _scalar(column: str, kind: Any, **parameters: Any) -> Callable[[Any], None]:
    return lambda one: one.create_scalar_index(column, kind, **parameters)


def _vector(kind: str, **parameters: Any) -> Callable[[Any], None]:
    return lambda one: one.create_index("v", kind, num_partitions=3, **parameters)


def _config(column: str, kind: str, **parameters: Any) -> Callable[[Any], None]:
    return lambda one: one.create_scalar_index(column, IndexConfig(kind, parameters))


def _json(kind: str) -> Callable[[Any], None]:
    return _config("j", "json", path="a", target_index_type=kind)


SCALAR: dict[str, Callable[[Any], None]] = {
    "btree": _scalar("id", "BTREE"),
    "btree of texts": _scalar("t", "BTREE"),
    "bitmap": _scalar("k", "BITMAP"),
    "bitmap of texts": _scalar("t", "BITMAP"),
    "label list": _scalar("labels", "LABEL_LIST"),
    "ngram": _scalar("t", "NGRAM"),
    "zone map": _scalar("id", "ZONEMAP"),
    "bloom filter": _scalar("t", "BLOOMFILTER"),
    "json": _json("btree"),
    "json in bitmaps": _json("bitmap"),
    "json in zones": _json("zonemap"),
    "substrings": _config("t", "fm"),
    "tree of boxes": _config("g", "rtree", page_size=16),
}
SIMILAR: dict[str, Callable[[Any], None]] = {
    "similar texts": _config("t", "minhashlsh", num_hashes=32, num_bands=16, shingle_size=1)
}
TEXTS: dict[str, Callable[[Any], None]] = {
    "texts": _scalar("t", "INVERTED", with_position=True),
    "texts by 256": _scalar("t", "INVERTED", with_position=True, block_size=256),
    "texts without positions": _scalar("t", "INVERTED"),
    "pylance texts 1": _scalar("t", "INVERTED", with_position=True, format_version=1),
    "pylance texts 2": _scalar("t", "INVERTED", with_position=True, format_version=2),
    "pylance texts 3": _scalar("t", "INVERTED", with_position=True, format_version=3),
}
VECTORS: dict[str, Callable[[Any], None]] = {
    "flat": _vector("IVF_FLAT"),
    "scalar codes": _vector("IVF_SQ"),
    "product codes": _vector("IVF_PQ", num_sub_vectors=4),
    "small product codes": _vector("IVF_PQ", num_sub_vectors=4, num_bits=4),
    "bit codes": _vector("IVF_RQ", num_bits=1),
    **{f"codes of {bits} bits": _vector("IVF_RQ", num_bits=bits) for bits in (2, 3, 5, 8, 9)},
    "graphs": _vector("IVF_HNSW_FLAT"),
    "graphs of scalar codes": _vector("IVF_HNSW_SQ"),
    "graphs of product codes": _vector("IVF_HNSW_PQ", num_sub_vectors=4),
    "pylance one file": _vector("IVF_PQ", num_sub_vectors=4, index_file_version="Legacy"),
}
KINDS = {**SCALAR, **SIMILAR, **TEXTS, **VECTORS}


def _table() -> pa.Table:
    rng = np.random.default_rng(3)
    words = [f"word{at}" for at in range(30)]
    vectors = rng.normal(size=(_ROWS, _DIMENSION)).astype(np.float32)
    json = [None if at % 9 == 1 else f'{{"a": {at % 50}}}' for at in range(_ROWS)]
    texts = [None if at % 11 == 3 else " ".join(rng.choice(words, at % 9)) for at in range(_ROWS)]
    points = [None if at % 13 == 5 else {"x": float(at % 20), "y": at / 20} for at in range(_ROWS)]
    rows = pa.table({
        "id": pa.array([None if at % 50 == 7 else at * 3 for at in range(_ROWS)], pa.int64()),
        "k": pa.array([at % 7 for at in range(_ROWS)], pa.int32()),
        "t": pa.array(texts, pa.string()),
        "labels": pa.array([[f"l{(at + k) % 5}" for k in range(at % 4)] for at in range(_ROWS)]),
        "j": pa.ExtensionArray.from_storage(pa.json_(), pa.array(json, pa.string())),
        "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), _DIMENSION),
        "g": pa.array(points, pa.struct([("x", pa.float64()), ("y", pa.float64())])),
    })  # fmt: skip
    at = rows.schema.get_field_index("g")
    said = {"ARROW:extension:name": "geoarrow.point", "ARROW:extension:metadata": "{}"}
    return rows.cast(rows.schema.set(at, rows.schema.field(at).with_metadata(said)))


@cache
def indexed_dataset(kind: str) -> Path:
    """A dataset with one index; rows were deleted and appended since. Made once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-index-")) / "base.lance"
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    library: Any = lance if kind.startswith(("pylance", "json")) else glaive
    glaive.write_dataset(_table(), folder, data_storage_version="2.1")
    KINDS[kind](library.dataset(str(folder)))
    dataset = glaive.dataset(folder)
    dataset.delete("k = 3")
    glaive.write_dataset(dataset.head(20), folder, mode="append")
    return folder


def _filters(kind: str) -> list[str]:
    return {
        "id": ["id = 30", "id < 60", "id in (3, 9, 4000)", "id is null", "not (id > 90)"],
        "k": ["k = 1", "k between 2 and 5", "k is null", "not (k = 2)", "k > 5 or k = 0"],
        "t": [
            "t = 'word1 word2'", "t < 'word15'", "t like 'word1%'", "t is null",
            "contains(t, 'ord12')", "regexp_like(t, 'word1[0-3]')",
        ],
        "labels": ["array_has(labels, 'l1')", "array_has_all(labels, ['l1', 'l2'])"],
        "g": [f"st_intersects(g, {_BOX})", f"st_within(g, {_BOX})", "g is null"],
        "j": ["json_get_int(j, 'a') = 7", "json_get_int(j, 'a') > 40"],
    }[kind]  # fmt: skip


def _column(kind: str) -> str:
    if "label" in kind:
        return "labels"
    if kind == "bitmap":
        return "k"
    if kind.startswith("json"):
        return "j"
    if kind == "tree of boxes":
        return "g"
    return "id" if kind in ("btree", "zone map") else "t"


def searches_of(kind: str) -> list[Callable[[Any], pa.Table]]:
    """Searches of an index: each answers with rows of the dataset."""
    if kind in SCALAR:
        always = {"columns": ["k"], "use_scalar_index": True}
        return [_scan(filter=text, **always) for text in _filters(_column(kind))]
    if kind in SIMILAR:
        texts = ["word1 word2 word3", "word5", ""]
        return [
            _scan(columns=["k"], nearest=MinHashQuery(text, "t"), limit=limit)
            for text in texts
            for limit in (5, 200)
        ]
    if kind in TEXTS:
        queries: list[Any] = [
            MatchQuery("word1", "t"),
            MatchQuery("word1 word2 word3", "t"),
            MatchQuery("wird1", "t", fuzziness=1),
            MatchQuery("word1 word2", "t", operator=FullTextOperator.AND),
        ]
        if "without" not in kind:
            queries.append(PhraseQuery("word1 word2", "t"))
        queries.append("word1")  # in every column with such an index
        return [
            _scan(columns=["k"], full_text_query=query, limit=limit)
            for query in queries
            for limit in (5, None)
        ]
    query = np.linspace(-1, 1, _DIMENSION).astype(np.float32)
    near: dict[str, Any] = {"column": "v", "q": query, "k": 5}
    options: list[dict[str, Any]] = [
        {}, {"nprobes": 3}, {"refine_factor": 4, "nprobes": 3}, {"k": 300, "nprobes": 3},
        {"nprobes": 3, "ef": 40}, {"q": np.stack([query, -query]), "nprobes": 3},
    ]  # fmt: skip
    found = [_scan(columns=["k"], nearest=near | more) for more in options]
    return [*found, _scan(columns=["k"], filter="k < 2", nearest=near, prefilter=True)]


def _scan(**options: Any) -> Callable[[Any], pa.Table]:
    def search(dataset: Any) -> pa.Table:
        table: pa.Table = dataset.to_table(**options)
        return table

    return search
