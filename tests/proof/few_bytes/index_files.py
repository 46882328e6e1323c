"""A file of an index, written anew with many rows, or long ones, that take few bytes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap
from tests.proof.few_bytes.draws import Draws, Impossible

from glaive.errors import GlaiveError
from glaive.file.open import create_writer
from glaive.format.fields import LanceSchema
from glaive.format.pb import index_pb2
from glaive.index.row_sets import ROWSETS, TREEMAPS
from glaive.index.segment import IndexFile
from glaive.io.access import open_store

__all__ = ["GrownFile"]

MOST = 1 << 28
"""Bytes of rows that are made."""

_EVERY_OTHER = BitMap(range(1, 1 << 16, 2))
"""A bitmap of 8 KB, no bytes of which are runs, for 32,768 rows."""

_MOST_SETS = 1 << 23
"""Bytes of sets of different rows: where they are not compressed, each byte stands for 64."""

_ASCENDING = ("keys", "tokens", "page_idx")
"""Columns in which no value comes twice."""

_PAGE_ROWS = 4096


class GrownFile:
    """A file that is written anew.

    Parameters
    ----------
    draw
        Choices: how many rows there are, which they equal, and how long texts and sets are.
    place
        The dataset.
    file
        The file, of one of its indices.
    """

    def __init__(self, draw: Draws, place: Path, file: Path) -> None:
        self._draw, self._file = draw, file
        self._store, self._path = open_store(str(place)), str(file.relative_to(place))
        self._rows = draw.many(0, 18)
        self._said: list[str] = [f"{self._rows} rows"]

    def write(self) -> str:
        """Replace the file, and that of the bounds of its pages; says what it has now."""
        opened = IndexFile(self._store, self._path)
        table, metadata, buffers = opened.read(), dict(opened.metadata), _buffers(opened)
        if not len(table):
            raise Impossible
        grown = self._sets(self._values(self._repeated(table)))
        if self._file.name == "auxiliary.idx":
            number = int(metadata["lance:ivf"]) - 1
            buffers[number] = _one_partition(buffers[number], len(grown))
        self._put(self._file.name, grown, metadata, buffers)
        if self._file.name == "page_data.lance" and "values" in grown.column_names:
            self._put_bounds(grown["values"].combine_chunks())
        return ", ".join(self._said)

    def _repeated(self, table: pa.Table) -> pa.Table:
        how = self._draw.of(["each row", "the first row", "the last row"])
        self._said.append(how)
        at = np.zeros(self._rows, np.int64)
        if how == "each row":
            at = np.arange(self._rows) * len(table) // self._rows
        elif how == "the last row":
            at = np.minimum(np.arange(self._rows), len(table) - 1)
        self._check(table.nbytes // len(table))
        return table.take(pa.array(at))

    def _check(self, row_bytes: int, most: int = MOST) -> None:
        if self._rows * row_bytes > most:
            raise Impossible

    def _values(self, table: pa.Table) -> pa.Table:
        """Texts and bytes may be long; keys ascend."""
        types = pa.types
        long = self._draw.of([0, 0, 100, self._draw.many(7, 20)])
        for at, field in enumerate(table.schema):
            kind: Any = field.type
            ascends = field.name in _ASCENDING
            texts = types.is_string(kind) or types.is_large_string(kind)
            values: Any = None
            if texts and ascends:
                self._check(8 + long)
                values = pa.array([f"{row:08}" + "x" * long for row in range(self._rows)], kind)
            elif types.is_integer(kind) and ascends:
                values = pa.array(np.arange(self._rows)).cast(kind)
            elif long and (texts or types.is_binary(kind) or types.is_large_binary(kind)):
                self._check(long)
                equal = pa.array(["x" * long if texts else b"\xff" * long], kind)
                values = equal.take(pa.array(np.zeros(self._rows, np.int64)))
            if values is not None:
                table = table.set_column(at, field, values)
        if long:
            self._said.append(f"of {long} bytes")
        return table

    def _sets(self, table: pa.Table) -> pa.Table:
        """Sets of rows may be dense, and each in a fragment of its own, or in many fragments."""
        name = next((n for n in ("bitmaps", "posting_list") if n in table.column_names), None)
        if name is None or self._draw.chance(0.2):
            return table
        how = self._draw.of(["dense", "in fragments", "wide"])
        count = self._draw.many(0, 11) if how == "wide" else 1
        self._check(8_300 * count, MOST if how == "dense" else _MOST_SETS)
        self._said.append(f"sets that are {how} ({count})")
        first = np.arange(self._rows) if how == "in fragments" else np.zeros(1, np.int64)
        encode = _row_set if name == "bitmaps" else _treemap
        sets = pa.array([encode(start, count) for start in first.tolist()], pa.binary())
        if how != "in fragments":
            sets = sets.take(pa.array(np.zeros(self._rows, np.int64)))
        at = table.schema.get_field_index(name)
        return table.set_column(at, table.schema.field(at), sets)

    def _put_bounds(self, values: Any) -> None:
        """The bounds of pages of such values; nulls are not among them."""
        path = str(Path(self._path).with_name("page_lookup.lance"))
        opened = IndexFile(self._store, path)
        metadata, schema = dict(opened.metadata), opened.schema
        starts = np.arange(0, len(values), _PAGE_ROWS)
        stops = np.minimum(starts + _PAGE_ROWS, len(values)) - 1
        none = np.zeros(len(starts), np.uint32)
        if values.null_count:
            none = np.add.reduceat(values.is_null().to_numpy(False), starts).astype(np.uint32)
        columns = {
            "min": values.take(pa.array(starts)),
            "max": values.take(pa.array(stops)),
            "null_count": pa.array(none),
            "page_idx": pa.array(np.arange(len(starts), dtype=np.uint32)),
        }
        fields = [schema.field(name) for name in columns]
        bounds = pa.table(list(columns.values()), schema=pa.schema(fields))
        self._put("page_lookup.lance", bounds, metadata, [])

    def _put(
        self, name: str, table: pa.Table, metadata: dict[str, str], buffers: list[bytes]
    ) -> None:
        path = str(Path(self._path).with_name(name))
        self._store.delete([path])
        packed = self._draw.chance(0.5)
        fields = [
            field.with_metadata({"lance-encoding:compression": "zstd"}) if packed else field
            for field in table.schema
        ]
        schema = pa.schema(fields)
        version = self._draw.of(["2.0", "2.1", "2.2", "2.3"])
        self._said.append(f"{version}{' zstd' * packed}")
        writer: Any = create_writer(self._store, path, LanceSchema.from_arrow(schema), version)
        for one in buffers:
            writer.add_global_buffer(one)
        for key, value in metadata.items():
            writer.add_schema_metadata(key, value)
        writer.write(pa.Table.from_arrays(table.columns, schema=schema))
        writer.finish()


def _buffers(opened: IndexFile) -> list[bytes]:
    found: list[bytes] = []
    try:
        while True:
            found.append(opened.buffer(len(found) + 1).to_pybytes())
    except GlaiveError:
        return found


def _one_partition(message: bytes, rows: int) -> bytes:
    """The partitions of a file, the first of which has all rows."""
    partitions = index_pb2.IVF.FromString(message)
    count = len(partitions.lengths)
    partitions.lengths[:] = [rows] + [0] * (count - 1)
    partitions.offsets[:] = [0] + [rows] * (count - 1)
    return partitions.SerializeToString()


def _row_set(first: int, count: int) -> bytes:
    """A dense bitmap in each of so many fragments."""
    entry = ROWSETS.of(np.array(_EVERY_OTHER, np.uint64))[8:]
    parts = [struct.pack("<I", at) + entry for at in range(first, first + count)]
    return struct.pack("<I", count) + b"".join(parts)


def _treemap(first: int, count: int) -> bytes:
    return TREEMAPS.join(dict.fromkeys(range(first, first + count), _EVERY_OTHER))
