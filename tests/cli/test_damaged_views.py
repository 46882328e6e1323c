"""Files of Arrow with views that are null: validating does not look at them, casts do."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import glaive
from glaive.cli.main import cli


def views(kind: pa.DataType, length: int) -> pa.Array:
    """A null of a stated length between two texts."""
    parts = [(20, b"xxxx", 0), (length, b"", 0), (20, b"yyyy", 20)]
    words = b"".join(struct.pack("<i4sii", size, start, 0, at) for size, start, at in parts)
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(words), pa.py_buffer(b"x" * 20 + b"y" * 20)]
    return pa.Array.from_buffers(kind, 3, buffers, 1)


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
@pytest.mark.parametrize("nested", [False, True])
def test_a_null_of_a_length_below_0_ends_no_process(
    tmp_path: Path, kind: pa.DataType, nested: bool
) -> None:
    column = views(kind, -(2**31))
    column.validate(full=True)
    if nested:
        column = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1, 3], column)], ["m"])
    rows = pa.table({"a": column})
    with pa.ipc.new_file(tmp_path / "a.arrow", rows.schema) as out:
        out.write_table(rows)
    result = CliRunner().invoke(cli, ["convert", f"{tmp_path}/a.arrow", f"{tmp_path}/t.lance"])
    assert result.exit_code == 1
    assert "a.arrow is damaged: a view has a length below 0" in result.output


@pytest.mark.parametrize("length", [0, 7, 100])
def test_nulls_of_other_lengths_are_nulls(tmp_path: Path, length: int) -> None:
    column = views(pa.string_view(), length)
    rows = pa.table({"a": pa.chunked_array([column, column.slice(1), column.slice(0, 0)])})
    with pa.ipc.new_file(tmp_path / "a.arrow", rows.schema) as out:
        out.write_table(rows)
    result = CliRunner().invoke(cli, ["convert", f"{tmp_path}/a.arrow", f"{tmp_path}/t.lance"])
    assert result.exit_code == 0, result.output
    x, y = "x" * 20, "y" * 20
    assert glaive.dataset(tmp_path / "t.lance").to_table()["a"].to_pylist() == [x, None, y, None, y]
