"""Values that Python does not have are shown as texts, and end no command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import glaive
from glaive.arrow.conditions import python_rows, python_values
from glaive.cli.main import cli
from glaive.errors import FilterError

LARGEST = 2**63 - 1


def stored(kind: Any, number: int) -> pa.Array:
    """The number, and 0, as values of a type: 32 or 64 bits."""
    numbers = np.array([number, 0], np.int32 if kind.bit_width == 32 else np.int64)
    return pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(numbers.tobytes())])


ODD = {
    "a date after the year 9999": stored(pa.date32(), 2**31 - 1),
    "a date before the year 1": stored(pa.date32(), -(2**31)),
    "milliseconds": stored(pa.date64(), LARGEST),
    "a moment": stored(pa.timestamp("us"), LARGEST),
    "an unknown zone": stored(pa.timestamp("us", "Nope/Zone"), 0),
    "a path as a zone": stored(pa.timestamp("us", "../../etc/passwd"), 0),
    "a folder as a zone": stored(pa.timestamp("us", "Europe"), 0),
    "a long zone": stored(pa.timestamp("us", "x" * 5000), 0),
}
NESTED = {
    "in a list": pa.ListArray.from_arrays([0, 1, 2], ODD["a moment"]),
    "in a struct": pa.StructArray.from_arrays([ODD["a moment"]], ["at"]),
    "two members of a name": pa.StructArray.from_arrays(
        [pa.array([1, 2]), pa.array([3, 4])], ["a", "a"]
    ),
}


@pytest.mark.parametrize("values", [*ODD.values(), *NESTED.values()], ids=[*ODD, *NESTED])
def test_what_python_does_not_have_is_a_text(values: pa.Array) -> None:
    with pytest.raises((ArithmeticError, LookupError, OSError, ValueError)):
        values.to_pylist()
    found = python_values(values)
    assert len(found) == 2
    assert isinstance(found[0], str)
    assert python_values(pa.chunked_array([values, values])) == found * 2
    assert python_rows(pa.record_batch({"x": values}))[0] == {"x": found[0]}


def test_other_values_are_those_of_pyarrow() -> None:
    rows = pa.table({"a": [1, None], "b": [[1.5], []], "c": ["x", "y"]})
    assert python_rows(rows) == rows.to_pylist()
    assert python_rows(rows.select([])) == [{}, {}]


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("values", ODD.values(), ids=ODD)
def test_commands_show_rows_with_such_values(tmp_path: Path, values: pa.Array) -> None:
    place = str(tmp_path / "t")
    glaive.write_dataset(pa.table({"x": values, "n": [1, 2]}), place)
    for arguments in (["head", place], ["scan", place], ["take", place, "0"]):
        shown = CliRunner().invoke(cli, arguments)
        assert (shown.exception, shown.exit_code) == (None, 0), shown.output
    lines = CliRunner().invoke(cli, ["head", place, "--json"]).output.splitlines()
    assert [json.loads(line)["n"] for line in lines] == [1, 2]


@pytest.mark.parametrize("zone", ["Nope/Zone", "../../etc/passwd", "Europe", "x" * 5000])
def test_filters_name_a_zone_that_there_is_not(tmp_path: Path, zone: str) -> None:
    values = stored(pa.timestamp("us", zone), 0)
    dataset = glaive.write_dataset(pa.table({"x": values}), tmp_path / "t")
    for text in ("cast(x as string) = 'a'", "to_char(x, '%Y') = '1'"):
        with pytest.raises(FilterError, match=r"time zone .* is not known|Invalid timezone"):
            dataset.to_table(filter=text)
    with pytest.raises(FilterError, match="cannot be cast"):
        dataset.to_table(filter=f"cast('2020-01-01 00:00:00 {zone}' as timestamp) < x")


def test_statistics_of_an_index_show_bounds_that_python_does_not_have(tmp_path: Path) -> None:
    values = stored(pa.date32(), 2**31 - 1)
    dataset = glaive.write_dataset(pa.table({"x": values}), tmp_path / "t")
    dataset.create_scalar_index("x", "BTREE")
    (told,) = dataset.stats.index_stats("x_idx")["indices"]
    assert told["min"] == "1970-01-01"
    assert "out of range" in told["max"]


def test_decimals_with_a_scale_below_0_are_sorted(tmp_path: Path) -> None:
    kind = pa.decimal128(5, -30)
    numbers = b"".join(one.to_bytes(16, "little", signed=True) for one in (7, -3, 5))
    values = pa.Array.from_buffers(kind, 3, [pa.py_buffer(b"\x03"), pa.py_buffer(numbers)])
    dataset = glaive.write_dataset(pa.table({"x": values, "n": [7, -3, 0]}), tmp_path / "t")
    assert dataset.scanner(["n"], order_by=["x"]).to_table()["n"].to_pylist()[:2] == [-3, 7]
