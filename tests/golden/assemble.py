"""Put pages into a file by the rules of ``docs/format/container.md``, without glaive's writer."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from google.protobuf import text_format
from google.protobuf.any_pb2 import Any as AnyMessage

from glaive.format.fields import LanceSchema
from glaive.format.pb import encodings20_pb2, encodings21_pb2, encodings23_pb2, file2_pb2, file_pb2

FOOTERS = {"2.0": (0, 3), "2.1": (2, 1), "2.2": (2, 2), "2.3": (2, 3)}

LAYOUTS = ("/lance.encodings21.PageLayout", encodings21_pb2.PageLayout)
ENCODINGS = {
    "2.0": ("/lance.encodings.ArrayEncoding", encodings20_pb2.ArrayEncoding),
    "2.1": LAYOUTS,
    "2.2": LAYOUTS,
    "2.3": ("/lance.encodings23.PlanarLayout", encodings23_pb2.PlanarLayout),
}


@dataclass(frozen=True)
class Page:
    """A page as it stands in the specification: layout as text, buffers as bytes."""

    length: int
    layout: str
    buffers: Sequence[bytes]


def assemble(schema: pa.Schema, columns: Sequence[Sequence[Page]], version: str) -> bytes:
    """Return the bytes of a file with these pages, in the order given."""
    data = bytearray()

    def place(buffer: bytes) -> tuple[int, int]:
        data.extend(b"H" * (-len(data) % 64))
        data.extend(buffer)
        return len(data) - len(buffer), len(buffer)

    messages = []
    for pages in columns:
        column = file2_pb2.ColumnMetadata()
        column.encoding.direct.encoding = _wrap("/lance.encodings.ColumnEncoding", b"\x0a\x00")
        for page in pages:
            message = column.pages.add(length=page.length)
            for buffer in page.buffers:
                position, size = place(buffer)
                message.buffer_offsets.append(position)
                message.buffer_sizes.append(size)
            url, kind = ENCODINGS[version]
            layout = text_format.Parse(page.layout, kind())
            message.encoding.direct.encoding = _wrap(url, layout.SerializeToString())
        messages.append(column.SerializeToString())

    descriptor = file_pb2.FileDescriptor(length=sum(page.length for page in columns[0]))
    descriptor.schema.fields.extend(LanceSchema.from_arrow(schema).to_wire())
    global_buffer = place(descriptor.SerializeToString())
    metadata, table = len(data), b""
    for raw in messages:
        table += struct.pack("<QQ", len(data), len(raw))
        data += raw
    column_table = len(data)
    data += table
    global_table = len(data)
    data += struct.pack("<QQ", *global_buffer)
    data += struct.pack(
        "<QQQIIHH4s",
        *(metadata, column_table, global_table),
        *(1, len(messages), *FOOTERS[version], b"LANC"),
    )
    return bytes(data)


def _wrap(url: str, message: bytes) -> bytes:
    return AnyMessage(type_url=url, value=message).SerializeToString()
