"""Pages packed out of several arrays: the same bytes as of the arrays joined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from glaive.encodings.levels import flat_levels
from glaive.encodings.options import AUTOMATIC, EncodingOptions
from glaive.encodings.protocol import EncodedPage
from glaive.encodings.writing.page import can_be_windows, encode_page, encode_windows
from glaive.file.open import create_writer, open_reader
from glaive.file.versions import PROFILES
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore

WINDOW = 16 * 1024


def profile(version: str) -> Any:
    return PROFILES[version]


def cut(array: pa.Array) -> list[pa.Array]:
    return [array.slice(first, WINDOW) for first in range(0, len(array), WINDOW)]


def contents(page: EncodedPage | None) -> tuple[object, ...]:
    assert page is not None
    parts = [each if isinstance(each, tuple) else (each,) for each in page.buffers]
    raw = [b"".join(memoryview(part).tobytes() for part in each) for each in parts]
    return page.layout.SerializeToString(), raw, page.rows


def numbers(kind: Any, count: int = 2 * WINDOW + 700) -> pa.Array:
    values = np.random.default_rng(5).integers(0, 900, count) + np.arange(count) * 997
    return pa.array(values).cast(kind)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint32(), pa.timestamp("us")])
def test_windows_become_the_page_that_their_join_does(version: str, kind: Any) -> None:
    array = numbers(kind)
    windows = cut(array)
    assert can_be_windows(windows)
    joined = encode_page(array, flat_levels(None), len(array), profile(version))
    found = encode_windows(windows, profile(version), AUTOMATIC)
    assert contents(found) == contents(joined)
    assert found is not None
    assert len(found.buffers[1]) == len(windows)


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(pa.array(np.full(2 * WINDOW, 2**50)), id="one value"),
        pytest.param(pa.array(np.arange(2 * WINDOW) % 900 << 30), id="a dictionary"),
        pytest.param(pa.array(np.repeat(np.arange(WINDOW // 16, dtype="i4"), 32)), id="runs"),
        pytest.param(
            pa.array(np.random.default_rng(6).integers(-(2**62), 2**62, 2 * WINDOW)), id="wide"
        ),
    ],
)
def test_values_that_may_be_stored_in_another_way_are_left_to_be_joined(array: pa.Array) -> None:
    assert encode_windows(cut(array), profile("2.2"), AUTOMATIC) is None


def test_options_are_followed_by_joining() -> None:
    wanted = EncodingOptions(compression="zstd")
    assert encode_windows(cut(numbers(pa.int64())), profile("2.2"), wanted) is None


def test_nulls_text_other_types_and_parts_of_chunks_are_no_windows() -> None:
    array = numbers(pa.int64())
    assert not can_be_windows([array])
    assert not can_be_windows([array, array])
    assert not can_be_windows([array.slice(0, 1024), pa.array([None, 1])])
    assert not can_be_windows([array.slice(0, 1024), numbers(pa.int32())])
    assert not can_be_windows([pa.array(["a"] * 1024)] * 2)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_a_file_has_the_same_bytes_whether_rows_come_in_windows_or_at_once(
    tmp_path: Path, version: str
) -> None:
    table = pa.table({"a": numbers(pa.int64()), "b": numbers(pa.int32())}).combine_chunks()
    store = LocalStore(tmp_path)
    for name, step in (("whole", table.num_rows), ("windows", WINDOW)):
        writer = create_writer(store, name, LanceSchema.from_arrow(table.schema), version)
        for first in range(0, table.num_rows, step):
            writer.write(table.slice(first, step))
        writer.finish()
    assert (tmp_path / "windows").read_bytes() == (tmp_path / "whole").read_bytes()
    file = open_reader(store, "windows", verify="never")
    arrays = file.bind(file.schema.fields).read(0, table.num_rows)
    assert pa.Table.from_arrays(arrays, schema=table.schema) == table
