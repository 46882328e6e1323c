"""Datasets of many columns: time grows with their number, not with its square."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import process_time

import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import SchemaError
from glaive.format.fields import LanceSchema

LONGEST = 45
"""What a call may take, in times of :func:`_plain_work`: twice what it takes, half of what it took
where each column was compared with all."""


def _plain_work() -> float:
    """Processor seconds of some plain work, which a slow or busy machine slows down as well."""
    began = process_time()
    assert sum(len(f"column_{at}".split("_")) for at in range(400_000)) == 800_000
    return process_time() - began


def _names(columns: int) -> list[str]:
    return [f"column_{at}" for at in range(columns)]


def _rows(columns: int) -> pa.Table:
    return pa.table({name: [1, 2] for name in _names(columns)})


def _computed(at: LanceDataset, columns: int) -> None:
    found = at.to_table(columns={f"x{name}": f"{name} + 1" for name in _names(columns)})
    assert found.num_columns == columns


def _updated(at: LanceDataset, columns: int) -> None:
    at.update(dict.fromkeys(_names(columns), "5"))


def _merged(at: LanceDataset, columns: int) -> None:
    builder = at.merge_insert("column_0").when_matched_update_all()
    builder.when_not_matched_insert_all().execute(_rows(columns))


def _added(at: LanceDataset, columns: int) -> None:
    at.add_columns({f"x{name}": f"{name} + 1" for name in _names(columns)})


def _reordered(at: LanceDataset, columns: int) -> None:
    at.insert(_rows(columns).select(_names(columns)[::-1]))


def _mistaken(at: LanceDataset, columns: int) -> None:
    with pytest.raises(SchemaError, match=r"did you mean .*'xcolumn_50' is not a column"):
        at.insert(_rows(columns).rename_columns([f"x{name}" for name in _names(columns)]))


CALLS: dict[Callable[[LanceDataset, int], None], int] = {
    _computed: 6000,
    _updated: 4000,
    _merged: 4000,
    _added: 4000,
    _reordered: 8000,
    _mistaken: 2000,
}


@pytest.mark.nightly(reason="makes files of thousands of columns")
@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__.strip("_"))
def test_time_does_not_grow_with_the_square_of_columns(
    tmp_path: Path, call: Callable[[LanceDataset, int], None]
) -> None:
    for name, columns in (("first", 60), ("many", CALLS[call])):  # modules load in the first
        dataset = glaive.write_dataset(_rows(columns), tmp_path / name)
        before = _plain_work()
        began = process_time()
        call(dataset, columns)
        took = process_time() - began
    assert took < LONGEST * max(before, _plain_work())


@pytest.mark.nightly(reason="makes files of thousands of columns")
@pytest.mark.spec("rel-25")
def test_a_repeated_name_is_found_among_many_fields() -> None:
    fields = LanceSchema.from_arrow(_rows(50_000).schema).fields
    before = _plain_work()
    began = process_time()
    assert LanceSchema((*fields, fields[-1])).repeated_name == "column_49999"
    assert process_time() - began < LONGEST * max(before, _plain_work())


@pytest.mark.nightly(reason="makes files of thousands of columns")
def test_a_file_of_format_0_1_counts_its_columns_once(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(_rows(6000), tmp_path / "t", data_storage_version="legacy")
    began = process_time()
    dataset.validate()
    # They were counted for each of them: 11 seconds.
    assert process_time() - began < LONGEST * _plain_work()
