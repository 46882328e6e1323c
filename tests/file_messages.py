"""The messages of data files: what either library wrote, without a reader."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.any_pb2 import Any as Envelope
from tests.damage import PAGES, parts_of

from glaive.file import LanceFileWriter
from glaive.format.pb import file2_pb2, file_pb2

__all__ = ["BOTH", "buffers_of", "column_messages", "descriptor_of", "layout_of", "write_with"]

BOTH = pytest.mark.parametrize(
    "library", ["glaive", pytest.param("pylance", marks=pytest.mark.interop)]
)
"""Runs a test with files of either library."""


def write_with(
    library: str, path: Path, version: str, batches: Sequence[pa.Table], **options: Any
) -> bytes:
    """Write the tables as one file, a batch each, and return its bytes."""
    if library == "pylance":
        lance_file = pytest.importorskip("lance.file", reason="install the 'interop' group")
        writer = lance_file.LanceFileWriter(
            str(path), batches[0].schema, version=version, **options
        )
    else:
        writer = LanceFileWriter(path, batches[0].schema, version=version, **options)
    with writer as file:
        for batch in batches:
            file.write_batch(batch)
    return path.read_bytes()


def descriptor_of(raw: bytes) -> Any:
    """Global buffer 0: the schema and the number of rows."""
    return file_pb2.FileDescriptor.FromString(parts_of(raw)[0][0])


def column_messages(raw: bytes) -> list[Any]:
    """The metadata of each column."""
    return [file2_pb2.ColumnMetadata.FromString(column) for column in parts_of(raw)[1]]


def layout_of(page: Any) -> Any:
    """What a page says of its layout."""
    envelope = Envelope.FromString(page.encoding.direct.encoding)
    return PAGES[envelope.type_url.rsplit("/", 1)[-1]].FromString(envelope.value)


def buffers_of(raw: bytes, page: Any) -> list[bytes]:
    """The bytes of the buffers of a page."""
    places = zip(page.buffer_offsets, page.buffer_sizes, strict=True)
    return [raw[position : position + size] for position, size in places]
