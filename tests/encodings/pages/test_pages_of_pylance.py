"""Full-zip and constant pages that pylance wrote, read page by page without a file reader."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from google.protobuf.any_pb2 import Any as Wrapped

from glaive.arrow.build import to_array
from glaive.encodings.levels import Leaf, level_plan
from glaive.encodings.protocol import Fetch, PageBytes, PageReader
from glaive.encodings.registry import open_page
from glaive.format.pb import encodings21_pb2 as pb
from glaive.format.pb import file2_pb2
from glaive.types import ByteRange, Where

lance_file = pytest.importorskip("lance.file")

pytestmark = pytest.mark.interop

RNG = np.random.default_rng(5)
ROWS = 60
WORDS = ["lorem", "ipsum", "dolor", "sit", "amet", "consetetur", "sadipscing"]


def nulls(values: pa.Array) -> pa.Array:
    null = pa.array([at % 3 == 1 for at in range(len(values))])
    return pc.if_else(null, pa.scalar(None, values.type), values)


def floats(rows: int, dimension: int, *, inner: bool = False) -> pa.Array:
    items = pa.array(RNG.random(rows * dimension), pa.float32())
    return pa.FixedSizeListArray.from_arrays(nulls(items) if inner else items, dimension)


def text(size: int, kind: pa.DataType, rows: int = ROWS) -> pa.Array:
    pick = RNG.choice(WORDS, (rows, size // 5))
    return pa.array([f"{at}" + " ".join(row) for at, row in enumerate(pick)], pa.string()).cast(
        kind
    )


def lists(items: pa.Array, *, plain: bool = False) -> pa.Array:
    rows: list[Any] = []
    at = 0
    for row in range(ROWS):
        if row % 7 == 3 and not plain:
            rows.append(None)
        elif row % 7 == 5 and not plain:
            rows.append([])
        else:
            count = 1 + row % 3
            rows.append([items[(at + k) % len(items)].as_py() for k in range(count)])
            at += count
    return pa.array(rows, pa.list_(items.type))


def vectors_with_null_rows() -> pa.Array:
    rows = [None if at % 4 == 1 else row for at, row in enumerate(floats(ROWS, 64).to_pylist())]
    return pa.array(rows, pa.list_(pa.float32(), 64))


BLOBS = pa.array([RNG.bytes(40_000 + at) for at in range(8)] * 7 + [b""] * 4, pa.binary())
FULL_ZIP: dict[str, pa.Array] = {
    "vectors": floats(ROWS, 64),
    "vectors with null rows": vectors_with_null_rows(),
    "vectors with null items": floats(ROWS, 64, inner=True),
    "strings": text(400, pa.string()),
    "strings with nulls": nulls(text(400, pa.string())),
    "large strings with nulls": nulls(text(400, pa.large_string())),
    "text compressed with fsst": text(1200, pa.string()),
    "binary": pa.array([RNG.bytes(300 + at) for at in range(ROWS)], pa.binary()),
    "fixed binary with nulls": nulls(
        pa.array([RNG.bytes(256) for _ in range(ROWS)], pa.binary(256))
    ),
    "blobs": BLOBS,
    "blobs with nulls": nulls(BLOBS),
    "large blobs": BLOBS.cast(pa.large_binary()),
    "lists of strings": lists(nulls(text(400, pa.string()))),
    "plain lists of strings": lists(text(400, pa.string(), 2 * ROWS), plain=True),
    "lists of blobs": lists(BLOBS),
    "lists of vectors": lists(floats(ROWS, 64)),
    "forced int64": pa.array(RNG.integers(0, 1 << 40, ROWS)),
    "forced int64 with nulls": nulls(pa.array(RNG.integers(0, 1 << 40, ROWS))),
    "forced bool": pa.array(RNG.random(ROWS) < 0.5),
    "forced bool with nulls": nulls(pa.array(RNG.random(ROWS) < 0.5)),
    "forced lists of int16": lists(nulls(pa.array(np.arange(ROWS), pa.int16()))),
    "forced strings": pa.array([f"{at}" * (at % 4) for at in range(ROWS)]),
}
CONSTANT: dict[str, pa.Array] = {
    "null numbers": pa.nulls(ROWS, pa.int32()),
    "null strings": pa.nulls(ROWS, pa.string()),
    "null vectors": pa.nulls(ROWS, pa.list_(pa.float32(), 64)),
    "null lists": pa.array([None if at % 2 else [] for at in range(ROWS)], pa.list_(pa.int32())),
    "lists of nulls": pa.array([[None] * (at % 3) for at in range(ROWS)], pa.list_(pa.int32())),
}
SCALAR: dict[str, pa.Array] = {
    "one number": pa.array([7] * ROWS, pa.int16()),
    "one number and nulls": nulls(pa.array([7] * ROWS)),
    "one bool": pa.array([True] * ROWS),
    "one decimal": nulls(pa.array([7] * ROWS).cast(pa.decimal128(30, 2))),
    "one string": pa.array(["hello"] * ROWS),
    "one large string and nulls": nulls(pa.array(["hello"] * ROWS, pa.large_string())),
    "one long value": nulls(pa.array([b"x" * 40] * ROWS, pa.binary(40))),
    "lists of one number": lists(nulls(pa.array([7] * ROWS, pa.int16()))),
    "lists of one string": lists(pa.array(["hello"] * ROWS)),
}
CASES = [
    *((v, "full_zip_layout", name, a) for v in ("2.1", "2.2") for name, a in FULL_ZIP.items()),
    *((v, "constant_layout", name, a) for v in ("2.1", "2.2") for name, a in CONSTANT.items()),
    *(("2.2", "constant_layout", name, a) for name, a in SCALAR.items()),
]


def pages(path: Path, column: int) -> Iterator[tuple[pb.PageLayout, PageBytes]]:
    """Find the pages of a column with nothing but the footer and the wire messages."""
    file = path.read_bytes()
    (table,) = struct.unpack("<Q", file[-32:-24])
    at, size = struct.unpack_from("<QQ", file, table + 16 * column)
    for page in file2_pb2.ColumnMetadata.FromString(file[at : at + size]).pages:
        wrapped = Wrapped.FromString(page.encoding.direct.encoding)
        ranges = tuple(map(ByteRange, page.buffer_offsets, page.buffer_sizes))
        where = Where(str(path), column)
        yield pb.PageLayout.FromString(wrapped.value), PageBytes(ranges, None, page.length, where)


def run_fetch(file: pa.Buffer, step: Fetch[Leaf] | Leaf) -> Leaf:
    while isinstance(step, Fetch):
        step = step.resume([file.slice(*part) for part in step.ranges])
    return step


def to_rows(leaf: Leaf, kind: pa.DataType) -> list[Any]:
    """Rows of a leaf below at most one list."""
    item = kind.value_type if pa.types.is_list(kind) else kind
    plan = level_plan(leaf.layers)
    null = plan[0][0]
    definition = [0] * leaf.entries if leaf.definition is None else leaf.definition.tolist()
    if leaf.validity is not None:
        bits = np.unpackbits(np.frombuffer(leaf.validity, np.uint8), bitorder="little")
        definition = [1 - int(bit) for bit in bits[: leaf.entries]]
        assert sum(definition) == leaf.null_count
    elif leaf.values is None and leaf.definition is None:
        definition = [1] * leaf.entries
        assert leaf.null_count == leaf.entries
    values: Iterator[Any] = iter(())
    if leaf.values is not None:
        array = to_array(leaf.values, item, None, 0, Where("test"))
        array.validate(full=not pa.types.is_string(item))
        # A null has any bytes in its slot, so strings are compared as bytes.
        raw = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(item)
        values = iter((array if raw is None else array.view(raw)).to_pylist())
    rows: list[Any] = []
    rep = [1] * leaf.entries if leaf.rep is None else leaf.rep.tolist()
    for r, d in zip(rep, definition, strict=True):
        value = None
        if d <= null and leaf.values is not None:
            slot = next(values)
            value = slot if d == 0 else None
            if d == 0 and (pa.types.is_string(item) or pa.types.is_large_string(item)):
                value = slot.decode()
        if not pa.types.is_list(kind):
            rows.append(value)
        elif d and d == plan[1][0]:
            rows.append(None)
        elif d and d == plan[1][1]:
            rows.append([])
        elif r:
            rows.append([value])
        else:
            rows[-1].append(value)
    assert next(values, None) is None
    return rows


def check(page: PageReader, file: pa.Buffer, values: pa.Array) -> None:
    expected = values.to_pylist()
    for start, stop in ((0, page.rows), (7, 8), (7, 41), (20, 20), (page.rows - 3, page.rows)):
        rows = to_rows(run_fetch(file, page.read(start, stop)), values.type)
        assert rows == expected[start:stop]
    for picks in ([3], [9, 10, 11], [59, 0, 59, 13, 5], list(range(59, -1, -1))):
        rows = to_rows(run_fetch(file, page.take(np.array(picks))), values.type)
        assert rows == [expected[row] for row in picks]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("version", "layout", "name", "values"), CASES, ids=lambda part: str(part)[:40]
)
def test_pages_of_pylance_are_read(
    tmp_path: Path, version: str, layout: str, name: str, values: pa.Array
) -> None:
    metadata = {"lance-encoding:structural-encoding": "fullzip"} if "forced" in name else None
    schema = pa.schema([pa.field("c", values.type, metadata=metadata)])
    path = tmp_path / "a.lance"
    with lance_file.LanceFileWriter(str(path), schema, version=version) as writer:
        writer.write_batch(pa.table([values], schema))
    file = pa.py_buffer(path.read_bytes())
    ((message, page),) = pages(path, 0)
    assert message.WhichOneof("layout") == layout
    if "fsst" in name:
        assert message.full_zip_layout.value_compression.HasField("fsst")
    if "blobs" in name:
        assert message.full_zip_layout.value_compression.HasField("general")
    check(open_page(message, page), file, values)
    at_hand = [file.slice(*part) for part in page.ranges]
    mapped = PageBytes(page.ranges, at_hand, page.rows, page.where)
    check(open_page(message, mapped), file, values)
