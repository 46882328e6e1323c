"""Requests of the interface, by the names of their methods."""

from __future__ import annotations

from typing import Any

import lance_namespace as interface
import pyarrow as pa

from glaive.namespace.operations import OPERATIONS

ROWS = pa.table({"a": [1, 2, 3], "s": ["red shoes", "blue hat", "red"]})


def ipc(rows: pa.Table = ROWS) -> bytes:
    """The rows as a stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def call(
    catalogue: Any, method: str, path: list[str], data: bytes | None = None, **fields: Any
) -> Any:
    """Call a method with a request made of an id and other fields."""
    request = getattr(interface, OPERATIONS[method].classes(method)[0])(id=path, **fields)
    return getattr(catalogue, method)(*([request] if data is None else [request, data]))


def rows_of(answer: Any) -> list[dict[str, Any]]:
    """The rows of a query's answer, which pylance's client gives as bytes in a model."""
    return pa.ipc.open_file(answer.data).read_all().to_pylist()
