"""Segments of one name: over one column, of one kind, each fragment in one of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from tests.proof.wire_mutations import section_of, with_section

import glaive
from glaive.dataset.lance_operation import Index
from glaive.errors import CorruptFileError, IndexExistsError, OptionError
from glaive.format.pb import table_pb2

ROWS = 40


@pytest.fixture
def dataset(tmp_path: Path) -> glaive.LanceDataset:
    """Four fragments of ten rows."""
    numbers = list(range(ROWS))
    columns = {"a": numbers, "b": [one * 7 % ROWS for one in numbers]}
    table = pa.table({**columns, "t": [f"word{one % 5} running" for one in numbers]})
    return glaive.write_dataset(table, tmp_path / "t", max_rows_per_file=10)


def built(dataset: glaive.LanceDataset, column: str, kind: str, *fragments: int) -> Index:
    return dataset.create_index_uncommitted(column, kind, name="new", fragment_ids=list(fragments))


def found(dataset: glaive.LanceDataset, column: str) -> list[int]:
    return [
        dataset.to_table(filter=f"{column} = {number}", use_scalar_index=True).num_rows
        for number in range(ROWS)
    ]


@pytest.mark.spec("rel-12", "segment-5")
def test_segments_over_another_column_are_none_of_an_index(dataset: glaive.LanceDataset) -> None:
    dataset.commit_existing_index_segments("x", "a", [built(dataset, "a", "BTREE", 0, 1)])
    other = built(dataset, "b", "BTREE", 2, 3)
    with pytest.raises(IndexExistsError, match="already exists with different fields"):
        dataset.commit_existing_index_segments("x", "b", [other])
    operation = glaive.LanceOperation.CreateIndex([replace(other, name="x")], [])
    with pytest.raises(IndexExistsError, match="already exists with different fields"):
        glaive.LanceDataset.commit(dataset, operation, read_version=dataset.version)
    assert found(dataset, "a") == found(dataset, "b") == [1] * ROWS


def test_segments_of_another_kind_replace_all_of_an_index_or_none(
    dataset: glaive.LanceDataset,
) -> None:
    dataset.commit_existing_index_segments("x", "a", [built(dataset, "a", "BTREE", 0, 1)])
    with pytest.raises(IndexExistsError, match="of btree, those to be added of bitmap"):
        dataset.commit_existing_index_segments("x", "a", [built(dataset, "a", "BITMAP", 2, 3)])
    dataset.commit_existing_index_segments("x", "a", [built(dataset, "a", "BITMAP", 0, 1, 2)])
    assert [one.index_type for one in dataset.describe_indices()] == ["Bitmap"]
    assert found(dataset, "a") == [1] * ROWS


@pytest.mark.parametrize("kind", ["INVERTED", "NGRAM"])
def test_segments_that_cover_a_fragment_twice_are_not_merged(
    dataset: glaive.LanceDataset, kind: str
) -> None:
    first, second = built(dataset, "t", kind, 0, 1), built(dataset, "t", kind, 1, 2)
    for given, twice in (([first, second], r"\[1\]"), ([first, first], r"\[0, 1\]")):
        with pytest.raises(OptionError, match=f"fragments {twice} are covered twice"):
            dataset.merge_existing_index_segments(given)


@pytest.mark.spec("rel-12")
def test_rows_of_which_two_segments_tell_are_found_once_after_these_are_merged(
    dataset: glaive.LanceDataset,
) -> None:
    for fragments in ((0, 1, 2), (1, 2, 3)):
        segment = replace(built(dataset, "t", "INVERTED", *fragments), name="x")
        operation = glaive.LanceOperation.CreateIndex([segment], [])
        dataset = glaive.LanceDataset.commit(dataset, operation, read_version=dataset.version)

    def rows() -> list[int]:
        found = glaive.dataset(dataset.uri).to_table(["a"], full_text_query="word3", limit=ROWS)
        return sorted(found["a"].to_pylist())

    assert rows() == list(range(3, ROWS, 5))
    glaive.dataset(dataset.uri).optimize.optimize_indices(num_indices_to_merge=2)
    assert len(glaive.dataset(dataset.uri).describe_indices()[0].segments) == 1
    assert rows() == list(range(3, ROWS, 5))


@pytest.mark.spec("text-search-6")
@pytest.mark.parametrize("stem", [True, False])
def test_rows_of_text_segments_with_other_parameters_are_read(
    dataset: glaive.LanceDataset, stem: bool
) -> None:
    for fragments, stems in (([0, 1], stem), ([2], not stem)):
        options: dict[str, Any] = {"fragment_ids": fragments, "stem": stems}
        segment = dataset.create_index_uncommitted("t", "INVERTED", name="new", **options)
        dataset.commit_existing_index_segments("x", "t", [segment])
    found = {
        query: dataset.to_table(["a"], full_text_query=query, limit=ROWS).num_rows
        for query in ("running", "runs", "word3")
    }
    assert found == {"running": ROWS, "runs": ROWS if stem else 0, "word3": ROWS // 5}


@pytest.mark.spec("text-parts-2")
def test_parts_that_have_rows_in_common_are_not_merged(dataset: glaive.LanceDataset) -> None:
    uuid = str(uuid4())
    for fragments in ([0, 1], [1, 2]):
        dataset.create_scalar_index("t", "INVERTED", fragment_ids=fragments, index_uuid=uuid)
    with pytest.raises(OptionError, match=r"several parts of .* have the same rows"):
        dataset.merge_index_metadata(uuid, "INVERTED")
    dataset.create_scalar_index("t", "INVERTED", fragment_ids=[0], index_uuid=uuid)
    dataset.merge_index_metadata(uuid, "INVERTED")
    assert not list(Path(dataset.uri, "_indices", uuid).glob("staging/*"))


def of_one_name(dataset: glaive.LanceDataset) -> glaive.LanceDataset:
    """The dataset with the name of the first segment at all, which cover a part of the rows."""
    place = Path(dataset.uri) / "_versions" / Path(dataset.manifest.where).name
    section = table_pb2.IndexSection.FromString(section_of(place.read_bytes()))
    for entry in section.indices:
        entry.name = section.indices[0].name
    place.write_bytes(with_section(place.read_bytes(), section.SerializeToString()))
    return glaive.dataset(dataset.uri)


@pytest.mark.spec("rel-42", "segment-5")
@pytest.mark.parametrize("order", [1, -1])
def test_damaged_entries_of_one_name_answer_each_for_its_own_column_and_kind(
    dataset: glaive.LanceDataset, order: int
) -> None:
    kinds = [("a", "BTREE", 0, 1), ("b", "BTREE", 2, 3), ("t", "INVERTED", 0, 1), ("t", "FM", 2, 3)]
    for column, kind, *fragments in kinds[::order]:
        name = f"{column}_{kind}"
        segment = built(dataset, column, kind, *fragments)
        dataset.commit_existing_index_segments(name, column, [segment])
    damaged = of_one_name(dataset)
    assert found(damaged, "a") == found(damaged, "b") == [1] * ROWS
    assert damaged.to_table(["a"], full_text_query="word3").num_rows == ROWS // 5
    assert damaged.count_rows("contains(t, 'ord3')") == ROWS // 5
    with pytest.raises(CorruptFileError, match="of one kind, over one column; drop the index"):
        damaged.optimize.optimize_indices()
    (index,) = damaged.describe_indices()
    damaged.drop_index(index.name)
    assert not damaged.has_index


@pytest.mark.spec("segment-6")
@pytest.mark.parametrize("kind", ["BTREE", "NGRAM", "IVF_FLAT"])
def test_segments_that_name_one_folder_answer_for_no_fragment(tmp_path: Path, kind: str) -> None:
    """Rows of one were missed, or found twice: its fragments are scanned."""
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(range(2 * ROWS), pa.float32()), 2)
    table = pa.table({"a": range(ROWS), "t": [f"word{one}" for one in range(ROWS)], "v": vectors})
    dataset = glaive.write_dataset(table, tmp_path / "t", max_rows_per_file=20)
    if kind == "IVF_FLAT":
        dataset.create_index("v", kind, num_partitions=1, name="x", fragment_ids=[0])
    else:
        column = "a" if kind == "BTREE" else "t"
        dataset.create_scalar_index(column, kind, name="x", fragment_ids=[0])
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    path = Path(dataset.manifest.where)
    section = table_pb2.IndexSection.FromString(section_of(path.read_bytes()))
    first, second = section.indices
    first.uuid.CopyFrom(second.uuid)
    path.write_bytes(with_section(path.read_bytes(), section.SerializeToString()))

    opened = glaive.dataset(tmp_path / "t")
    if kind == "IVF_FLAT":
        search: dict[str, Any] = {"nearest": {"column": "v", "q": [0.0, 0.0], "k": ROWS}}
    else:
        search = {"filter": "a >= 0" if kind == "BTREE" else "contains(t, 'word')"}
    assert sorted(opened.to_table(["a"], **search)["a"].to_pylist()) == list(range(ROWS))
