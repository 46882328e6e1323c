"""A page of blobs that pylance wrote: read back, and written the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import text_format
from tests.golden.assemble import Page, assemble

from glaive.file.open import create_writer, open_reader
from glaive.format.blobs import described
from glaive.format.fields import LanceSchema
from glaive.format.pb import encodings21_pb2
from glaive.io.access import open_store

FIELD = pa.field("c", pa.large_binary(), metadata={"lance-encoding:blob": "true"})

LAYOUT = (
    "blob_layout { inner_layout { mini_block_layout { value_compression { packed_struct {"
    " bits_per_value: 64 bits_per_value: 64 values { flat { bits_per_value: 128 } } } }"
    " layers: REPDEF_ALL_VALID_ITEM num_buffers: 1 num_items: 3 } } layers: REPDEF_NULLABLE_ITEM }"
)
BUFFERS = [
    bytes.fromhex("6000"),
    bytes.fromhex(
        "00003000fefefefe000000000000000064000000000000000000010000000000"
        "000000000000000000000000000000000000000000000000"
    ),
]


@pytest.mark.spec("blob-page-1", "blob-page-2", "blob-page-4", "blob-view-2")
def test_a_page_of_pylance(tmp_path: Path) -> None:
    data = assemble(pa.schema([FIELD]), [[Page(3, LAYOUT, BUFFERS)]], "2.1")
    (tmp_path / "one.lance").write_bytes(data)
    reader = open_reader(open_store(tmp_path), "one.lance")
    (values,) = reader.bind(reader.schema.fields).read(0, 3)
    assert values.to_pylist() == [data[:100], None, b""]
    (places,) = reader.bind([described(field) for field in reader.schema.fields]).read(0, 3)
    expected: list[Any] = [{"position": 0, "size": 100}, None, {"position": 0, "size": 0}]
    assert places.to_pylist() == expected


@pytest.mark.spec("blob-page-2", "blob-page-3")
def test_a_page_as_pylance_writes_it(tmp_path: Path) -> None:
    rows = pa.table([pa.array([b"x" * 100, None, b""], FIELD.type)], schema=pa.schema([FIELD]))
    store = open_store(tmp_path)
    writer = create_writer(store, "one.lance", LanceSchema.from_arrow(rows.schema), "2.1")
    writer.write(rows)
    writer.finish()
    reader: Any = open_reader(store, "one.lance")
    (page,) = reader.container.column(0).pages
    assert list(page.buffer_offsets) == [128, 192]
    layout = reader.container.page_layout(page.encoding, "one.lance")
    assert layout == text_format.Parse(LAYOUT, encodings21_pb2.PageLayout())
    whole = (tmp_path / "one.lance").read_bytes()
    places = zip(page.buffer_offsets, page.buffer_sizes, strict=True)
    assert [whole[at : at + size] for at, size in places] == BUFFERS
