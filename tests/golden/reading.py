"""Files made of bytes read back by glaive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.golden.assemble import assemble
from tests.golden.vectors import Vector

from glaive.file.open import open_reader
from glaive.io.access import open_store

__all__ = ["check_page", "read", "take"]


def read(folder: Path, data: bytes) -> pa.Array:
    """All values of the column of a file with these bytes."""
    (folder / "one.lance").write_bytes(data)
    reader = open_reader(open_store(folder), "one.lance")
    (column,) = reader.bind(reader.schema.fields).read(0, reader.num_rows)
    return column


def take(folder: Path, rows: list[int]) -> pa.Array:
    """Some values of the file that was read last."""
    reader = open_reader(open_store(folder), "one.lance")
    (column,) = reader.bind(reader.schema.fields).take(np.array(rows))
    return column


def check_page(folder: Path, vector: Vector) -> None:
    """Compare what is read of a file with one page: all rows, and rows in another order."""
    schema = pa.schema([pa.field("c", vector.kind)])
    column = read(folder, assemble(schema, [[vector.page]], vector.version))
    expected = pa.array(vector.values, vector.kind)
    assert column.equals(expected), column.to_pylist()
    column.validate(full=True)
    rows = [*range(len(expected) - 1, -1, -1), 0]
    assert take(folder, rows).equals(expected.take(rows))
