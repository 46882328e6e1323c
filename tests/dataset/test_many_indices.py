"""Thousands of indices of a stranger: what is done with one does not look at all the others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyroaring import BitMap
from tests.damaged_tables import with_indices

import glaive
from glaive.dataset.indexing.optimize import index_segments
from glaive.errors import CorruptFileError


@pytest.mark.spec("rel-25")
def test_the_segments_of_one_index_are_found_without_those_of_others(tmp_path: Path) -> None:
    place = tmp_path / "t"
    dataset = glaive.write_dataset(pa.table({"id": range(10)}), place)
    dataset.create_scalar_index("id", "ZONEMAP", name="few")
    dataset.create_scalar_index("id", "BTREE", name="many")
    dataset.insert(pa.table({"id": range(3)}))
    few, many = glaive.dataset(place).manifest.indices
    runs = BitMap(range(2**20 + 1))
    runs.run_optimize()
    many.fragment_bitmap = runs.serialize()
    path = place / "_versions" / Path(glaive.dataset(place).manifest.where).name
    path.write_bytes(with_indices(path.read_bytes(), [few, many]))

    opened = glaive.dataset(place).opened
    found = index_segments(opened, ["few"])
    assert list(found) == ["few"]
    assert found["few"].missing == (1,)
    with pytest.raises(CorruptFileError, match=r"'many'.*at most"):
        index_segments(opened)


@pytest.mark.spec("rel-25")
def test_indices_that_share_a_folder_are_not_merged_one_after_the_other(tmp_path: Path) -> None:
    """A few bytes of each of thousands of names would stand for a merge of all its files."""
    place = tmp_path / "t"
    dataset = glaive.write_dataset(pa.table({"id": range(10)}), place)
    dataset.create_scalar_index("id", "BTREE", name="first")
    dataset.insert(pa.table({"id": range(3)}))
    manifest = glaive.dataset(place).manifest
    (first,) = manifest.indices
    copy = type(first)()
    copy.CopyFrom(first)
    copy.name = "second"
    path = place / "_versions" / Path(manifest.where).name
    path.write_bytes(with_indices(path.read_bytes(), [first, copy]))
    opened = glaive.dataset(place)
    assert opened.to_table(filter="id = 7").num_rows == 1
    with pytest.raises(
        CorruptFileError, match=r"index 'second'.*found the folder of index 'first'"
    ):
        opened.optimize.optimize_indices()
    opened.drop_index("second")
    opened.optimize.optimize_indices()
    assert opened.to_table(filter="id = 2").num_rows == 2
