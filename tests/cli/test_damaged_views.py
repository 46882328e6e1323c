"""Files of Arrow with views that are null: validating does not look at them, casts do."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.damaged_views import views

import glaive
from glaive.cli.main import cli


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


@pytest.mark.spec("rel-24")
def test_a_null_that_is_longer_than_all_bytes_takes_no_memory(tmp_path: Path) -> None:
    rows = pa.table({"a": views(pa.string_view(), 2**31 - 1)})
    with pa.ipc.new_file(tmp_path / "a.arrow", rows.schema) as out:
        out.write_table(rows)
    result = CliRunner().invoke(cli, ["convert", f"{tmp_path}/a.arrow", f"{tmp_path}/t.lance"])
    assert result.exit_code == 1
    assert "a.arrow is damaged: a view is longer than 4096 bytes" in result.output


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


@pytest.mark.spec("rel-23")
def test_a_view_in_a_buffer_that_is_not_there_is_damage_of_the_file(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array(["x" * 20]).cast(pa.string_view())})
    with pa.ipc.new_file(tmp_path / "a.arrow", rows.schema) as out:
        out.write_table(rows)
    raw = (tmp_path / "a.arrow").read_bytes()
    view = (20).to_bytes(4, "little") + b"xxxx"
    assert raw.count(view + bytes(8)) == 1
    (tmp_path / "a.arrow").write_bytes(raw.replace(view + bytes(8), view + b"\7" + bytes(7)))
    result = CliRunner().invoke(cli, ["convert", f"{tmp_path}/a.arrow", f"{tmp_path}/t.lance"])
    assert result.exit_code == 1
    assert "a.arrow is damaged: View at slot 0 references buffer 7" in result.output
