"""Trials of damaged index files: one file of an index is changed, and all is searched, and rebuilt.

Bytes are changed wherever they are. Numbers, texts, lists and buffers are changed, too, and the
file is then written anew, so that what is wrong gets past all checks of files: counts, offsets,
codebooks, blocks of postings, neighbours in graphs.
"""

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
from lance.indices import IndexConfig

import glaive
from glaive.errors import GlaiveError
from glaive.file.open import create_writer
from glaive.format.fields import LanceSchema
from glaive.index.index_file import IndexFile
from glaive.io.uri import open_store
from glaive.query import FullTextOperator, MatchQuery, PhraseQuery
from glaive.testing import force_tier

__all__ = ["a_value_in_an_index", "an_index_file"]

_ROWS, _DIMENSION = 400, 16
_EXTREMES = [0, 1, -1, 2, 127, 255, 256, 65_535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1]


def _scalar(column: str, kind: Any, **parameters: Any) -> Callable[[Any], None]:
    return lambda one: one.create_scalar_index(column, kind, **parameters)


def _vector(kind: str, **parameters: Any) -> Callable[[Any], None]:
    return lambda one: one.create_index("v", kind, num_partitions=3, **parameters)


def _json(kind: str) -> Callable[[Any], None]:
    path = {"path": "a", "target_index_type": kind}
    return lambda one: one.create_scalar_index("j", IndexConfig("json", path))


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
}
TEXTS: dict[str, Callable[[Any], None]] = {
    "texts": _scalar("t", "INVERTED", with_position=True),
    "texts by 256": _scalar("t", "INVERTED", with_position=True, block_size=256),
    "texts without positions": _scalar("t", "INVERTED"),
    "pylance texts 1": _scalar("t", "INVERTED", with_position=True, format_version=1),
}
VECTORS: dict[str, Callable[[Any], None]] = {
    "flat": _vector("IVF_FLAT"),
    "scalar codes": _vector("IVF_SQ"),
    "product codes": _vector("IVF_PQ", num_sub_vectors=4),
    "small product codes": _vector("IVF_PQ", num_sub_vectors=4, num_bits=4),
    "bit codes": _vector("IVF_RQ", num_bits=1),
    "many bit codes": _vector("IVF_RQ", num_bits=5),
    "graphs": _vector("IVF_HNSW_FLAT"),
    "graphs of scalar codes": _vector("IVF_HNSW_SQ"),
    "graphs of product codes": _vector("IVF_HNSW_PQ", num_sub_vectors=4),
    "pylance one file": _vector("IVF_PQ", num_sub_vectors=4, index_file_version="Legacy"),
}
KINDS = {**SCALAR, **TEXTS, **VECTORS}


def _table() -> pa.Table:
    rng = np.random.default_rng(3)
    words = [f"word{at}" for at in range(30)]
    vectors = rng.normal(size=(_ROWS, _DIMENSION)).astype(np.float32)
    json = [None if at % 9 == 1 else f'{{"a": {at % 50}}}' for at in range(_ROWS)]
    texts = [None if at % 11 == 3 else " ".join(rng.choice(words, at % 9)) for at in range(_ROWS)]
    return pa.table({
        "id": pa.array([None if at % 50 == 7 else at * 3 for at in range(_ROWS)], pa.int64()),
        "k": pa.array([at % 7 for at in range(_ROWS)], pa.int32()),
        "t": pa.array(texts, pa.string()),
        "labels": pa.array([[f"l{(at + k) % 5}" for k in range(at % 4)] for at in range(_ROWS)]),
        "j": pa.ExtensionArray.from_storage(pa.json_(), pa.array(json, pa.string())),
        "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), _DIMENSION),
    })  # fmt: skip


@cache
def indexed_dataset(kind: str) -> Path:
    """A dataset with one index; rows were deleted and appended since. Made once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-index-")) / "base.lance"
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    library: Any = lance if kind.startswith("pylance") or kind == "json" else glaive
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
        "j": ["json_get_int(j, 'a') = 7", "json_get_int(j, 'a') > 40"],
    }[kind]  # fmt: skip


def _column(kind: str) -> str:
    if "label" in kind:
        return "labels"
    if kind == "bitmap":
        return "k"
    if kind == "json":
        return "j"
    return "id" if kind in ("btree", "zone map") else "t"


def _searches(kind: str) -> list[Callable[[Any], pa.Table]]:
    """Searches of an index: each answers with rows of the dataset."""
    if kind in SCALAR:
        always = {"columns": ["k"], "use_scalar_index": True}
        return [_scan(filter=text, **always) for text in _filters(_column(kind))]
    if kind in TEXTS:
        queries: list[Any] = [
            MatchQuery("word1", "t"),
            MatchQuery("word1 word2 word3", "t"),
            MatchQuery("wird1", "t", fuzziness=1),
            MatchQuery("word1 word2", "t", operator=FullTextOperator.AND),
        ]
        if "without" not in kind:
            queries.append(PhraseQuery("word1 word2", "t"))
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


_MAINTAINED: list[Callable[[Any], object]] = [
    lambda d: d.optimize.optimize_indices(),
    lambda d: d.optimize.optimize_indices(num_indices_to_merge=9),
    lambda d: d.optimize.compact_files(materialize_deletions_threshold=0.0),
    lambda d: d.stats.index_stats(d.describe_indices()[0].name),
    lambda d: d.prewarm_index(d.describe_indices()[0].name),
]


def _searched(place: Path, kind: str, rng: np.random.Generator) -> str:
    """Search the index in every way, and maintain it in one; what came of it."""
    refused = 0
    searches = _searches(kind)
    dataset = glaive.dataset(place)
    for search in searches:
        try:
            search(dataset).validate(full=True)
        except GlaiveError as error:
            refused += 1
            _check_message(error)
    try:
        _MAINTAINED[int(rng.integers(len(_MAINTAINED)))](dataset)
        glaive.dataset(place).to_table(["k"]).validate(full=True)
    except GlaiveError as error:
        _check_message(error)
        return f"{refused} of {len(searches)} searches refused, not maintained"
    return f"{refused} of {len(searches)} searches refused, maintained"


def _check_message(error: GlaiveError) -> None:
    if "_indices" not in str(error):
        raise AssertionError(f"does not name the index: {error!r}") from error


def _chosen(folder: Path, rng: np.random.Generator) -> tuple[str, Path, Path]:
    """A copy of a dataset, and one file of its index."""
    kind = sorted(KINDS)[int(rng.integers(len(KINDS)))]
    place = folder / "hurt.lance"
    shutil.copytree(indexed_dataset(kind), place)
    files = sorted(path for path in (place / "_indices").rglob("*") if path.is_file())
    return kind, place, files[int(rng.integers(len(files)))]


def an_index_file(folder: Path, rng: np.random.Generator) -> str:
    """Damage the bytes of a file of an index."""
    kind, place, file = _chosen(folder, rng)
    content = bytearray(file.read_bytes())
    if rng.random() < 0.1:
        del content[int(rng.integers(len(content))) :]
    for _ in range(int(rng.integers(1, 4))):
        if content:
            _change(content, rng)
    file.write_bytes(bytes(content))
    with force_tier("numba" if rng.random() < 0.7 else "numpy"):
        return f"bytes of {kind}: {_searched(place, kind, rng)}"


def _change(content: bytearray, rng: np.random.Generator) -> None:
    """Change one bit, or put an extreme number somewhere."""
    if rng.random() < 0.4 or len(content) < 16:
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        return
    width = int(rng.choice([1, 2, 4, 8]))
    at = int(rng.integers(len(content) // width)) * width
    number = int(rng.choice(_EXTREMES)) & ((1 << 8 * width) - 1)
    content[at : at + width] = number.to_bytes(width, "little")


# ------------------------------------------------------------------ values


def a_value_in_an_index(folder: Path, rng: np.random.Generator) -> str:
    """Change values of a file of an index, which is a sound file all the same."""
    kind, place, file = _chosen(folder, rng)
    try:
        _rewrite(place, file, rng)
    except GlaiveError:  # a file of another kind, or values that cannot be written
        return f"values of {kind}: not changed"
    with force_tier("numba" if rng.random() < 0.7 else "numpy"):
        return f"values of {kind}: {_searched(place, kind, rng)}"


def _rewrite(place: Path, file: Path, rng: np.random.Generator) -> None:
    """Write the file again with something else in one of its parts."""
    store = open_store(str(place))
    path = str(file.relative_to(place))
    opened = IndexFile(store, path)
    table, metadata, buffers = opened.read(), dict(opened.metadata), []
    while True:
        try:
            buffers.append(bytearray(opened.buffer(len(buffers) + 1).to_pybytes()))
        except GlaiveError:
            break
    part = rng.choice(["column", "rows", "metadata", "buffer"], p=[0.5, 0.1, 0.15, 0.25])
    if part == "buffer" and any(buffers):
        content = next(buffer for buffer in buffers if buffer)
        for _ in range(int(rng.integers(1, 4))):
            _change(content, rng)
    elif part == "metadata" and metadata:
        key = sorted(metadata)[int(rng.integers(len(metadata)))]
        metadata[key] = _other_text(metadata[key], rng)
    elif part == "rows" and len(table):
        kept = rng.choice(len(table), int(rng.integers(len(table) + 1)), replace=rng.random() < 0.5)
        table = table.take(pa.array(kept))
    elif table.num_columns and len(table):
        at = int(rng.integers(table.num_columns))
        changed = _other_values(table.column(at).combine_chunks(), rng)
        table = table.set_column(at, table.schema.field(at), changed)
    file.unlink()
    writer: Any = create_writer(store, path, LanceSchema.from_arrow(table.schema), "2.1")
    for one in buffers:
        writer.add_global_buffer(bytes(one))
    for key, value in metadata.items():
        writer.add_schema_metadata(key, value)
    writer.write(table)
    writer.finish()


def _other_text(text: str, rng: np.random.Generator) -> str:
    """A text with one number, or one character, changed."""
    digits = [at for at, one in enumerate(text) if one.isdecimal()]
    if digits and rng.random() < 0.8:
        at = digits[int(rng.integers(len(digits)))]
        return text[:at] + str(rng.choice(_EXTREMES)) + text[at + 1 :]
    if rng.random() < 0.3 or not text:
        return ""
    at = int(rng.integers(len(text)))
    return text[:at] + str(rng.choice(list('x{["0-é'))) + text[at + 1 :]


def _other_values(values: Any, rng: np.random.Generator) -> Any:
    """An array with a few of its numbers or bytes, or of its children's, changed."""
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lists = pa.ListArray if pa.types.is_list(kind) else pa.LargeListArray
        offsets = values.offsets
        if rng.random() < 0.4 and len(values) > 1:  # one list ends elsewhere
            numbers = offsets.to_numpy().copy()
            at = int(rng.integers(1, len(numbers)))
            numbers[at] = numbers[at - 1]
            offsets = pa.array(numbers, offsets.type)
            return lists.from_arrays(offsets, values.values, type=kind)
        return lists.from_arrays(offsets, _other_values(values.values, rng), type=kind)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(_other_values(values.values, rng), type=kind)
    if pa.types.is_struct(kind):
        children = [values.field(at) for at in range(kind.num_fields)]
        at = int(rng.integers(len(children)))
        children[at] = _other_values(children[at], rng)
        return pa.StructArray.from_arrays(children, fields=list(kind))
    items = values.to_pylist()
    if not items:
        return values
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(items)))
        items[at] = _other_item(items[at], kind, rng)
    return pa.array(items, kind)


def _other_item(item: Any, kind: pa.DataType, rng: np.random.Generator) -> Any:
    if rng.random() < 0.05:
        return None
    if isinstance(item, bytes):
        content = bytearray(item)
        if rng.random() < 0.3:
            del content[int(rng.integers(len(content) + 1)) :]
        elif content:
            _change(content, rng)
        return bytes(content)
    if isinstance(item, str):
        return _other_text(item, rng)
    if pa.types.is_floating(kind):
        return float(rng.choice([0.0, -1.0, 1e30, -1e30, np.inf, np.nan]))
    if pa.types.is_integer(kind):
        number = int(rng.choice(_EXTREMES)) & ((1 << kind.bit_width) - 1)
        signed = pa.types.is_signed_integer(kind) and number >= 1 << (kind.bit_width - 1)
        return number - (1 << kind.bit_width) if signed else number
    return item
