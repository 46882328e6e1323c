"""Few lists of mapped files are taken as a scan reads them, in whatever order, kind and file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import CorruptFileError, RowIndexError
from glaive.file.open import create_writer, open_reader
from glaive.file.v2.reader import FieldColumns
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore

_ROWS = 3_000


def _lists(values: Callable[[int], pa.Array], kind: Callable[[Any], pa.DataType]) -> pa.Array:
    """Lists of none to four items; each ninth is null."""
    sizes = np.arange(_ROWS) % 5
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    items = values(int(offsets[-1]))
    lists = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), items, mask=pa.array(np.arange(_ROWS) % 9 == 0)
    )
    return lists.cast(kind(items.type))


def _numbers(count: int) -> pa.Array:
    return pa.array(np.arange(count) * 37 % 1000)


def _wide_numbers(count: int) -> pa.Array:
    return pa.array(np.random.default_rng(2).integers(-(1 << 62), 1 << 62, count))


def _with_nulls(count: int) -> pa.Array:
    return pa.array([None if at % 7 == 0 else at for at in range(count)], pa.int32())


def _labels(count: int) -> pa.Array:
    return pa.array([f"label {at % 50}" for at in range(count)])


def _texts(count: int) -> pa.Array:
    return pa.array(
        [f"the text number {at} of many, unlike {at * 7919 % 65_537}" for at in range(count)]
    )


def _members(count: int) -> pa.Array:
    return pa.StructArray.from_arrays([_numbers(count), _labels(count)], ["a", "b"])


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("values", [_numbers, _with_nulls, _labels, _texts, _members])
@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
@pytest.mark.parametrize("beside", [True, False], ids=["beside numbers", "alone"])
def test_lists_are_taken_as_they_were_written(
    values: Callable[[int], pa.Array],
    kind: Callable[[Any], pa.DataType],
    beside: bool,
    tmp_path: Path,
) -> None:
    columns: dict[str, Any] = {"lists": _lists(values, kind)}
    if beside:
        columns["number"] = pa.array(np.arange(_ROWS))
    table = pa.table(columns)
    dataset = glaive.write_dataset(table.slice(0, 1_800), tmp_path / "few")
    dataset = glaive.write_dataset(table.slice(1_800), dataset, mode="append")
    rng = np.random.default_rng(5)
    mixed = rng.integers(0, _ROWS, 40)
    for rows in ([7], [0], [_ROWS - 1], [1_799, 1_800], [3, 9, 20, 500], mixed, np.sort(mixed)):
        for _ in range(2):  # takes join fragments after a while
            assert dataset.take(list(map(int, rows))).equals(table.take(pa.array(rows)))
    for row in range(300, 310):
        assert dataset.take([row]).equals(table.slice(row, 1))


def _column(folder: Path, *lists: pa.Array, **options: Any) -> FieldColumns:
    """A column of a mapped file, given as one array or several."""
    store = LocalStore(str(folder))
    schema = LanceSchema.from_arrow(pa.schema([("lists", lists[0].type)]))
    writer = create_writer(store, "few.lance", schema, "2.2", **options)
    for array in lists:
        writer.write(pa.table({"lists": array}))
    writer.finish()
    reader = open_reader(store, "few.lance")
    (column,) = reader.bind(reader.schema.fields).columns
    assert isinstance(column, FieldColumns)
    return column


def test_lists_of_several_pages_are_taken_each_from_its_own(tmp_path: Path) -> None:
    # Pages of one encoding are read as one: numbers of the first rows are packed, others are not.
    parts = [_lists(_numbers, pa.list_).slice(0, 900), _lists(_wide_numbers, pa.list_)]
    column = _column(tmp_path, *parts, page_bytes=4_096)
    table = pa.concat_arrays(parts)
    *firsts, rows = column.segments
    assert len(firsts) > 1
    rng = np.random.default_rng(3)
    for first, end in zip(firsts, [*firsts[1:], rows], strict=True):
        for wanted in (
            np.array([first]),
            np.array([end - 1]),
            np.arange(first, end),
            rng.integers(first, end, 50),
            rng.integers(first, first + 50, 20),
        ):
            assert column.take(wanted).equals(table.take(pa.array(wanted)))


def test_rows_that_a_page_of_lists_does_not_have_are_reported_with_the_file(tmp_path: Path) -> None:
    column = _column(tmp_path, _lists(_numbers, pa.list_))
    for wanted in ([_ROWS], [3, _ROWS], [_ROWS, 3], [-1]):
        with pytest.raises(RowIndexError, match=r"few\.lance"):
            column.take(np.array(wanted))


def test_a_damaged_list_is_reported_with_its_file(tmp_path: Path) -> None:
    table = pa.table({"lists": _lists(_numbers, pa.list_), "number": np.arange(_ROWS)})
    glaive.write_dataset(table, tmp_path / "few")
    (file,) = (tmp_path / "few" / "data").glob("*.lance")
    whole = file.read_bytes()
    file.write_bytes(b"\xff" * (len(whole) // 3) + whole[len(whole) // 3 :])
    dataset = glaive.dataset(tmp_path / "few")
    with pytest.raises(CorruptFileError, match=file.name):
        dataset.take([3])
