"""Data files with pages made for a trial."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf.any_pb2 import Any as Envelope
from tests.damage import assembled, parts_of
from tests.proof.few_bytes.arrays import array_pages
from tests.proof.few_bytes.chunks import Kind
from tests.proof.few_bytes.columns import Column, column_of
from tests.proof.few_bytes.draws import Draws, Impossible
from tests.proof.few_bytes.pages import Page, Shape, page_of
from tests.proof.few_bytes.planes import planar_page_of

from glaive.errors import GlaiveError
from glaive.file.open import create_writer
from glaive.format.fields import LanceSchema
from glaive.format.pb import encodings21_pb2, file2_pb2, file_pb2
from glaive.format.wire import seal
from glaive.io.local import LocalStore

__all__ = ["FewBytes", "constant_file", "few_bytes"]

MOST = 150_000
"""Bytes of a file."""


class FewBytes(NamedTuple):
    """A file, and what it is said to have."""

    raw: bytes
    rows: int
    story: str
    schema: pa.Schema
    fragment: dict[str, Any]


class _Base(NamedTuple):
    """A whole file with one row: the parts that a trial does not make."""

    globals: list[bytes]
    columns: list[bytes]
    version: tuple[int, int]
    url: str
    fields: list[int]
    column_indices: list[int]


@cache
def _base(kind: pa.DataType, version: str, columns: int) -> _Base | None:
    array = pa.nulls(1, kind)
    schema = pa.schema([pa.field(f"c{at}", kind) for at in range(columns)])
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = LocalStore(folder)
        try:
            writer = create_writer(store, "a.lance", LanceSchema.from_arrow(schema), version)
            writer.write(pa.Table.from_arrays([array] * columns, schema=schema))
            written = writer.finish()
        except GlaiveError:
            return None
        raw = (Path(folder) / "a.lance").read_bytes()
    parts, found, version_read = parts_of(raw)
    url = "type.googleapis.com/lance.encodings21.PageLayout"
    for one in found:
        for page in file2_pb2.ColumnMetadata.FromString(one).pages:
            url = Envelope.FromString(page.encoding.direct.encoding).type_url
    fields, numbers = list(written.fields), list(written.column_indices)
    return _Base(parts, found, version_read, url, fields, numbers)


def few_bytes(*seed: int) -> FewBytes:
    """The file of a seed."""
    for attempt in range(10_000):
        draw = Draws(*seed, attempt)
        try:
            made = _file(draw)
        except (Impossible, OverflowError, ValueError):
            continue
        if len(made.raw) <= MOST:
            return made
    raise Impossible


def constant_file(rows: int, columns: int, pages: int) -> FewBytes:
    """A file of 2.1 with columns of ``int64`` that are all 1, in so many pages or in one."""
    base = _base(pa.int64(), "2.1", columns)
    if base is None or rows % pages:
        raise Impossible
    layout = encodings21_pb2.PageLayout()
    layout.constant_layout.layers.append(1)
    layout.constant_layout.inline_value = (1).to_bytes(8, "little")
    each = rows // pages
    page = Page(layout, [], each, each)
    column = Column("long", pa.int64(), Shape(Kind(64)))
    raw = _written(base, column, [page] * columns, pages, rows)
    schema = pa.schema([pa.field(f"c{at}", pa.int64()) for at in range(columns)])
    return FewBytes(raw, rows, "constant", schema, _fragment(base, len(raw), rows))


def _file(draw: Draws) -> FewBytes:
    column, version = column_of(draw), draw.of(["2.0", "2.1", "2.2", "2.3", "2.3"])
    if version != "2.0" and version not in column.versions:
        raise Impossible
    columns = draw.of([1, 1, 1, 1, 4])
    base = _base(column.kind, version, columns)
    if base is None:
        raise Impossible
    if version == "2.0":
        leaves = array_pages(draw, _sized(column.kind, column.size))
    else:
        shape = column.shape
        page = planar_page_of(draw, shape) if version == "2.3" else page_of(draw, shape, version)
        leaves = [page] * (len(base.columns) // columns)
    if len(leaves) * columns != len(base.columns):
        raise Impossible
    pages = draw.of([1, 1, 1, 3, 300])
    rows = leaves[0].rows * pages
    if not 0 < rows < 1 << 62:
        raise Impossible
    story = f"{version} {column.name}[{column.size}] x{columns}, "
    story += f"{pages} pages of {leaves[0].rows} rows: "
    story += str(leaves[0].message).replace("\n", " ")
    raw = _written(base, column, leaves * columns, pages, rows)
    kind = _sized(column.kind, column.size)
    schema = pa.schema([pa.field(f"c{at}", kind) for at in range(columns)])
    return FewBytes(raw, rows, " ".join(story.split()), schema, _fragment(base, len(raw), rows))


def _fragment(base: _Base, size: int, rows: int) -> dict[str, Any]:
    """The fragment of a dataset that has the file, as JSON has it."""
    major, minor = base.version if base.version != (0, 3) else (2, 0)  # as footers of 2.0 say it
    file = {
        "path": "a.lance",
        "fields": base.fields,
        "column_indices": base.column_indices,
        "file_major_version": major,
        "file_minor_version": minor,
        "file_size_bytes": size,
        "base_id": None,
    }
    return {
        "id": 0,
        "files": [file],
        "deletion_file": None,
        "row_id_meta": None,
        "physical_rows": rows,
    }


def _sized(kind: pa.DataType, size: int) -> pa.DataType:
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(
            _sized(kind.value_type, size), size if kind.list_size == 4 else kind.list_size
        )
    return kind


def _written(base: _Base, column: Column, leaves: list[Page], pages: int, rows: int) -> bytes:
    descriptor = file_pb2.FileDescriptor.FromString(base.globals[0])
    descriptor.length = rows
    for field in descriptor.schema.fields:
        if field.logical_type.startswith("fixed_size_list:") and field.logical_type.endswith(":4"):
            field.logical_type = field.logical_type[:-1] + str(column.size)
    out = bytearray()
    messages: list[bytes] = []
    for raw, page in zip(base.columns, leaves, strict=True):
        metadata = file2_pb2.ColumnMetadata.FromString(raw)
        del metadata.pages[:]
        sealed = seal(base.url, page.message.SerializeToString())
        for at in range(pages):
            one = metadata.pages.add(length=page.length, priority=at * page.rows)
            one.encoding.direct.encoding = sealed
            for buffer in page.buffers:  # bytes of its own: pages that share them are damaged
                out += bytes(-len(out) % 64)
                one.buffer_offsets.append(len(out))
                one.buffer_sizes.append(len(buffer))
                out += buffer
        messages.append(metadata.SerializeToString())
    return assembled(
        out, [descriptor.SerializeToString(), *base.globals[1:]], messages, base.version
    )
