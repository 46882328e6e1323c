"""Queries over times that no day has: DuckDB does not look, and some versions read elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.arrow.validation import check_numbers
from glaive.errors import CorruptFileError


def times(kind: Any, numbers: list[int]) -> Any:
    """Times that are these numbers."""
    make: Any = pa.Array.from_buffers
    width = np.int64 if kind.bit_width == 64 else np.int32
    return make(kind, len(numbers), [None, pa.py_buffer(np.array(numbers, width))])


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("number", [-1, 2**62])
def test_a_query_ends_over_a_time_that_no_day_has(tmp_path: Path, depth: int, number: int) -> None:
    pytest.importorskip("datafusion")
    column = times(pa.time64("us"), [7, number])
    if depth:
        column = pa.StructArray.from_arrays([column], ["at"])
    glaive.write_dataset(pa.table({"id": [0, 1], "a": column}), tmp_path / "t")
    query = "SELECT id, a FROM t WHERE id = "
    assert glaive.sql(f"{query} 0", t=tmp_path / "t").read_all().num_rows == 1
    with pytest.raises(CorruptFileError, match=r"column 'a'.*24:00.*found -?[0-9]+ us since"):
        glaive.sql(f"{query} 1", t=tmp_path / "t").read_all()
    with pytest.raises(CorruptFileError, match=r"column 'a'.*times from 00:00 to 24:00"):
        glaive.dataset(tmp_path / "t").scanner(["a"]).to_reader().read_all()
    assert glaive.dataset(tmp_path / "t").to_table().num_rows == 2, "it is handed on in a table"


@pytest.mark.parametrize(
    ("unit", "second"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)]
)
def test_the_end_of_a_day_is_a_time_and_what_follows_is_none(unit: str, second: int) -> None:
    kind = (pa.time32 if unit in ("s", "ms") else pa.time64)(unit)
    day = 86_400 * second
    batch = pa.record_batch({"a": times(kind, [0, day]), "n": pa.nulls(2, kind)})
    assert check_numbers(batch) is batch
    listed: Any = pa.ListArray.from_arrays([0, 1], times(kind, [day + 1]))
    for column in (
        times(kind, [day + 1]),
        times(kind, [-1]),
        listed,
        listed.values.dictionary_encode(),
        pa.ExtensionArray.from_storage(pa.opaque(kind, "time", "elsewhere"), listed.values),
    ):
        with pytest.raises(CorruptFileError, match="since midnight"):
            check_numbers(pa.record_batch({"a": column}))
