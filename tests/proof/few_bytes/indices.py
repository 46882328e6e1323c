"""Index files of few bytes: rows that equal each other, as many as a trial says."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap
from tests.proof.few_bytes.draws import Draws, Impossible
from tests.proof.index_kinds import KINDS, indexed_dataset, searches_of

import glaive
from glaive.errors import GlaiveError
from glaive.file.open import create_writer
from glaive.format.fields import LanceSchema
from glaive.format.pb import index_pb2
from glaive.index.index_file import IndexFile
from glaive.index.scalar.rowsets import encode_rowset
from glaive.io.uri import open_store

__all__ = ["index_ways"]

MOST = 1 << 28
"""Bytes of rows that are made."""

_ODD = encode_rowset(np.array(BitMap(range(1, 1 << 16, 2)), np.uint64))
"""A set of 8 KB, no bytes of which are runs, for 32,768 rows."""

_MAINTAINED: list[tuple[str, Callable[[Any], object]]] = [
    ("optimize", lambda d: d.optimize.optimize_indices(num_indices_to_merge=9)),
    ("statistics", lambda d: [d.stats.index_stats(one.name) for one in d.describe_indices()]),
    ("prewarm", lambda d: [d.prewarm_index(one.name) for one in d.describe_indices()]),
]


def index_ways(folder: Path, draw: Draws) -> tuple[str, int, Iterator[Any]]:
    """What the index is, the bytes of its file, and the searches of it by name."""
    kind = draw.of(sorted(KINDS))
    place = folder / "few.lance"
    shutil.copytree(indexed_dataset(kind), place)
    file = draw.of(sorted(path for path in (place / "_indices").rglob("*") if path.is_file()))
    rows = draw.many(10, 18)
    try:
        how = _grown(draw, place, file, rows)
    except GlaiveError:  # not a file that can be written anew
        raise Impossible from None
    size = file.stat().st_size
    story = f"{kind}, {file.name}, {how}, {rows} rows in {size} bytes"

    def opened() -> Any:
        return glaive.dataset(place, session=glaive.Session())

    def searches() -> Iterator[Any]:
        for at, search in enumerate(searches_of(kind)):
            yield f"search {at}", lambda search=search: search(opened())
        for name, work in _MAINTAINED:
            yield name, lambda work=work: work(opened()) and None

    return story, size, searches()


def _grown(draw: Draws, place: Path, file: Path, rows: int) -> str:
    """Write the file anew, with so many rows."""
    store, path = open_store(str(place)), str(file.relative_to(place))
    opened = IndexFile(store, path)
    table, metadata, buffers = opened.read(), dict(opened.metadata), []
    try:
        while True:
            buffers.append(opened.buffer(len(buffers) + 1).to_pybytes())
    except GlaiveError:
        pass
    if not len(table):
        raise Impossible
    how = draw.of(["each row", "the first row", "the last row"])
    at = np.zeros(rows, np.int64)
    if how == "each row":
        at = np.arange(rows) * len(table) // rows
    elif how == "the last row":
        at = np.minimum(np.arange(rows), len(table) - 1)
    odd = "bitmaps" in table.column_names and draw.chance(0.5)
    wide = len(_ODD) if odd else table.nbytes // len(table)
    if rows * wide > MOST:
        raise Impossible
    table = table.take(pa.array(at))
    if odd:
        equal = pa.array([_ODD]).take(pa.array(np.zeros(rows, np.int64)))
        table = table.set_column(table.column_names.index("bitmaps"), "bitmaps", equal)
        how += ", dense sets"
    for name in ("keys", "tokens", "page_idx"):
        if name in table.column_names and pa.types.is_integer(table.schema.field(name).type):
            ascending = pa.array(np.arange(rows)).cast(table.schema.field(name).type)
            table = table.set_column(table.column_names.index(name), name, ascending)
    if file.name == "auxiliary.idx":
        number = int(metadata["lance:ivf"]) - 1
        partitions = index_pb2.IVF.FromString(buffers[number])
        count = len(partitions.lengths)
        partitions.lengths[:] = [rows] + [0] * (count - 1)
        partitions.offsets[:] = [0] + [rows] * (count - 1)
        buffers[number] = partitions.SerializeToString()
    file.unlink()
    writer: Any = create_writer(
        store, path, LanceSchema.from_arrow(table.schema), draw.of(["2.1", "2.3"])
    )
    for one in buffers:
        writer.add_global_buffer(one)
    for key, value in metadata.items():
        writer.add_schema_metadata(key, value)
    writer.write(table)
    writer.finish()
    return how
