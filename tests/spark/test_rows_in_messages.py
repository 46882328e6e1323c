"""Messages with rows whose values Python does not have, or that are long; without a session."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.dataset.rows import RowsByFragment
from glaive.dataset.tasks import Job
from glaive.errors import SchemaError
from glaive.format.fragment import FragmentList
from glaive.spark.merging import MergedRows, RowClause, commit_merge
from glaive.spark.stream_sink import refuse_repeated

FOREIGN = {
    "a text that is not UTF-8": pa.array([b"\xff\xfe"] * 2, pa.binary()).view(pa.string()),
    "a time after the year 9999": pa.array([2**60] * 2).view(pa.timestamp("us")),
    "a long text": pa.array(["x" * 100_000] * 2),
}


def dataset_of(place: Path, column: pa.Array) -> glaive.LanceDataset:
    return glaive.write_dataset(pa.table({"key": column, "w": [1, 2]}), place)


@pytest.mark.parametrize("values", FOREIGN)
def test_a_row_that_a_merge_changes_twice_is_named(tmp_path: Path, values: str) -> None:
    dataset = dataset_of(tmp_path, FOREIGN[values])
    parts = [
        MergedRows(
            updated=FragmentList(),
            inserted=FragmentList(),
            old=RowsByFragment(),
            counts={},
            repeated=1,
        )
    ]
    with pytest.raises(SchemaError, match=r"change the row with key = .*, w = 2\. ") as refused:
        commit_merge(dataset.opened, parts, [RowClause("update", ("w",))], Job())
    assert len(str(refused.value)) < 400
    assert dataset.version == 1


@pytest.mark.parametrize("values", FOREIGN)
def test_a_key_that_a_batch_of_a_stream_repeats_is_named(tmp_path: Path, values: str) -> None:
    staged = dataset_of(tmp_path / "a", FOREIGN[values]).opened.views
    with pytest.raises(SchemaError, match="several rows of one batch have key = ") as refused:
        refuse_repeated(staged, ["key"])
    assert len(str(refused.value)) < 400
