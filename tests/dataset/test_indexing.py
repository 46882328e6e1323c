"""Building, committing and bringing up to date of indices."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from glaive.progress import IndexProgress

import glaive
from glaive.dataset.indexing import optimize
from glaive.dataset.indexing.create import IndexConfig, index_task
from glaive.dataset.indexing.optimize import IndexSegments, MergeTask, StoredSegment
from glaive.dataset.indexing.task import IndexTask
from glaive.dataset.lance_operation import Index
from glaive.dataset.tasks import commit_operation
from glaive.errors import (
    ColumnNotFoundError,
    FragmentNotFoundError,
    IndexExistsError,
    IndexNotFoundError,
    OptionError,
    UnsupportedFeatureError,
)
from glaive.format.pb import table_pb2
from glaive.index.protocol import kind_of
from glaive.table.operations.create_index import CreateIndex

ROWS = 400


@pytest.fixture
def dataset(tmp_path: Path) -> glaive.LanceDataset:
    """Four fragments of 100 rows."""
    numbers = np.random.default_rng(0).permutation(ROWS)
    table = {"id": numbers, "s": pa.array([f"s{n}" for n in numbers]), "l": [[1]] * ROWS}
    return glaive.write_dataset(table, tmp_path / "t", max_rows_per_file=100)


def segments(dataset: glaive.LanceDataset, name: str = "id_idx") -> list[list[int]]:
    """Fragments of each segment."""
    found = [index for index in dataset.describe_indices() if index.name == name]
    return [sorted(segment.fragment_ids) for index in found for segment in index.segments]


def folders(dataset: glaive.LanceDataset) -> set[str]:
    return {entry.name for entry in Path(dataset.uri, "_indices").glob("*")}


def found(dataset: glaive.LanceDataset, number: int) -> int:
    """Rows that the index finds, and a scan."""
    searched = dataset.to_table(filter=f"id = {number}", use_scalar_index=True)
    assert searched.equals(dataset.to_table(filter=f"id = {number}", use_scalar_index=False))
    return searched.num_rows


def test_an_index_covers_all_fragments_and_is_named_by_its_column(
    dataset: glaive.LanceDataset,
) -> None:
    version = dataset.version
    dataset.create_scalar_index("id", "BTREE")
    assert dataset.version == version + 1
    assert segments(dataset) == [[0, 1, 2, 3]]
    (described,) = dataset.describe_indices()
    assert (described.name, described.index_type, described.num_rows_indexed) == (
        "id_idx",
        "BTree",
        ROWS,
    )
    assert described.total_size_bytes
    assert found(dataset, 7) == 1


def test_an_index_is_replaced_or_the_name_is_taken(dataset: glaive.LanceDataset) -> None:
    dataset.create_scalar_index("id", "BTREE")
    before = dataset.describe_indices()
    with pytest.raises(IndexExistsError, match="Index name 'id_idx' already exists"):
        dataset.create_scalar_index("id", "BTREE", replace=False)
    with pytest.raises(IndexExistsError, match="Index name 'id_idx' already exists"):
        dataset.create_index("id", "BTREE")
    assert dataset.describe_indices() == before
    dataset.create_scalar_index("id", "BTREE")
    assert len(dataset.describe_indices()) == 1
    assert dataset.describe_indices() != before


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (("nothing", "BTREE"), ColumnNotFoundError, "nothing"),
        (("id", "TREE"), OptionError, "BTREE"),
        (("id", 7), OptionError, "IndexConfig"),
        ((["id", "s"], "BTREE"), OptionError, "single column"),
        (("l", "BTREE"), UnsupportedFeatureError, "l"),
        (("id", IndexConfig("btree", {"pages": 3})), OptionError, "pages"),
    ],
)
def test_what_cannot_be_built_is_refused_and_leaves_nothing(
    dataset: glaive.LanceDataset, given: Any, error: type[Exception], text: str
) -> None:
    version = dataset.version
    with pytest.raises(error, match=text):
        dataset.create_scalar_index(*given)
    assert glaive.dataset(dataset.uri).version == version
    assert folders(dataset) == set()


def test_an_index_of_no_fragment_is_filled_later(dataset: glaive.LanceDataset) -> None:
    dataset.create_scalar_index("id", "BTREE", train=False)
    assert segments(dataset) == [[]]
    assert found(dataset, 7) == 1
    dataset.optimize.optimize_indices()
    assert segments(dataset) == [[0, 1, 2, 3]]
    assert found(dataset, 7) == 1


def test_segments_of_several_workers_are_one_index(dataset: glaive.LanceDataset) -> None:
    task = index_task(dataset.opened, "id", "BTREE", fragment_ids=[0, 1])
    other = index_task(dataset.opened, "id", "BTREE", fragment_ids=[2])
    sent = [pickle.loads(pickle.dumps(one)) for one in (task, other)]
    assert all(isinstance(one, IndexTask) for one in sent)
    built = [one.execute(glaive.dataset(dataset.uri)) for one in sent]
    assert segments(glaive.dataset(dataset.uri)) == []
    dataset.commit_existing_index_segments("id_idx", "id", built)
    assert segments(dataset) == [[0, 1], [2]]
    assert [found(dataset, number) for number in range(0, ROWS, 50)] == [1] * 8

    last = dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[3], replace=True)
    dataset.commit_existing_index_segments("id_idx", "id", [last])
    assert segments(dataset) == [[0, 1], [2], [3]]
    merged = dataset.merge_existing_index_segments([*built, last])
    assert sorted(merged.fragment_ids or ()) == [0, 1, 2, 3]
    dataset.commit_existing_index_segments("id_idx", "id", [merged])
    assert segments(dataset) == [[0, 1, 2, 3]]
    assert [found(dataset, number) for number in range(0, ROWS, 50)] == [1] * 8


def test_segments_that_do_not_fit_together_are_refused(dataset: glaive.LanceDataset) -> None:
    def built(column: str, *fragments: int) -> Index:
        return dataset.create_index_uncommitted(
            column, "BTREE", name=f"{column}_idx", fragment_ids=list(fragments), replace=True
        )

    with pytest.raises(OptionError, match="covered twice"):
        dataset.commit_existing_index_segments("x", "id", [built("id", 0, 1), built("id", 1)])
    with pytest.raises(OptionError, match="not over column 'id'"):
        dataset.commit_existing_index_segments("x", "id", [built("s", 0)])
    with pytest.raises(OptionError, match="at least one"):
        dataset.commit_existing_index_segments("x", "id", [])
    with pytest.raises(OptionError, match="one kind, over one column"):
        dataset.merge_existing_index_segments([built("id", 0), built("s", 1)])
    with pytest.raises(FragmentNotFoundError, match="No fragment with id 9 in version 1 of"):
        built("id", 9)
    dataset.create_scalar_index("id", "BTREE")
    with pytest.raises(OptionError, match=r"fragments \[2, 3\] .* would be in no segment"):
        dataset.commit_existing_index_segments("id_idx", "id", [built("id", 0, 1)])
    assert segments(dataset) == [[0, 1, 2, 3]]


def test_progress_is_reported_in_rows(dataset: glaive.LanceDataset) -> None:
    seen: list[IndexProgress] = []
    dataset.create_scalar_index("id", "BTREE", progress_callback=seen.append)
    assert [one.event for one in (seen[0], seen[-1])] == ["start", "complete"]
    done = [one.completed or 0 for one in seen]
    assert done == sorted(done)
    assert seen[-2].completed == seen[-1].total == ROWS
    assert seen[-1].fraction == 1.0


def test_an_interrupted_build_leaves_nothing(dataset: glaive.LanceDataset) -> None:
    def interrupt(progress: IndexProgress) -> None:
        if progress.event == "progress":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dataset.create_scalar_index("id", "BTREE", progress_callback=interrupt)
    assert folders(dataset) == set()
    assert not glaive.dataset(dataset.uri).has_index


def appended(dataset: glaive.LanceDataset, first: int, count: int) -> glaive.LanceDataset:
    table = {"id": range(first, first + count), "s": ["x"] * count, "l": [[1]] * count}
    return glaive.write_dataset(table, dataset, mode="append")


def test_new_rows_make_a_segment_that_is_merged_with_those_of_its_size(
    dataset: glaive.LanceDataset,
) -> None:
    dataset = appended(dataset, 1000, 20_000)
    dataset.create_scalar_index("id", "BTREE")
    dataset = appended(dataset, 30_000, 1)
    dataset.optimize.optimize_indices()
    assert segments(dataset) == [[0, 1, 2, 3, 4], [5]]
    dataset = appended(dataset, 30_001, 1)
    dataset.optimize.optimize_indices()
    assert segments(dataset) == [[0, 1, 2, 3, 4], [5, 6]]
    dataset = appended(dataset, 30_002, 3000)
    dataset.optimize.optimize_indices()
    assert segments(dataset) == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert [found(dataset, number) for number in (0, 399, 30_000, 30_001, 33_001)] == [1] * 5
    assert found(dataset, 33_002) == 0
    version = dataset.version
    dataset.optimize.optimize_indices()
    assert dataset.version == version


def test_small_segments_are_merged_however_few_rows_are_added(dataset: glaive.LanceDataset) -> None:
    dataset.create_scalar_index("id", "BTREE")
    dataset = appended(dataset, 1000, 1)
    dataset.optimize.optimize_indices()
    assert segments(dataset) == [[0, 1, 2, 3, 4]]
    dataset = appended(dataset, 1001, 1)
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    assert segments(dataset) == [[0, 1, 2, 3, 4], [5]]
    version = dataset.version
    dataset.optimize.optimize_indices()
    assert dataset.version == version
    assert [found(dataset, number) for number in (0, 399, 1000, 1001, 1002)] == [1] * 4 + [0]


def vectors(rows: int, seed: int) -> pa.Table:
    numbers = np.random.default_rng(seed).normal(size=rows * 8).astype(np.float32)
    return pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(numbers), 8)})


def added(dataset: glaive.LanceDataset, rows: int) -> glaive.LanceDataset:
    dataset = glaive.write_dataset(vectors(rows, rows), dataset, mode="append")
    dataset.optimize.optimize_indices()
    return dataset


@pytest.mark.spec("rel-42")
def test_partitions_of_segments_with_different_codes_are_read_without_them(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(vectors(600, 1), tmp_path / "v", max_rows_per_file=300)
    parts = [
        dataset.create_index_uncommitted(
            "v", "IVF_PQ", fragment_ids=[at], num_partitions=1, num_sub_vectors=2 << at, num_bits=4
        )
        for at in range(2)
    ]
    dataset.commit_existing_index_segments("v_idx", "v", parts)
    reader = glaive.dataset.VectorIndexReader(dataset, "v_idx")
    assert len(reader.read_partition(0)) == 600
    with pytest.raises(UnsupportedFeatureError, match=r"auxiliary\.idx.*without with_vector"):
        reader.read_partition(0, with_vector=True)


@pytest.mark.spec("vector-27")
def test_segments_with_models_of_their_own_do_not_keep_others_from_being_merged(
    tmp_path: Path,
) -> None:
    dataset = glaive.write_dataset(vectors(600, 1), tmp_path / "v", max_rows_per_file=300)
    parts: list[Any] = [
        dataset.create_index_uncommitted(
            "v", "IVF_PQ", name="v_idx", num_partitions=2, num_sub_vectors=2, fragment_ids=[one]
        )
        for one in (0, 1)
    ]
    dataset = dataset.commit_existing_index_segments("v_idx", "v", parts)
    for rows in (5, 6, 7):
        dataset = added(dataset, rows)
    assert segments(dataset, "v_idx") == [[0], [1, 2, 3, 4]]
    assert dataset.to_table(nearest={"column": "v", "q": [0.0] * 8, "k": 900}).num_rows == 618


@pytest.mark.spec("text-38")
@pytest.mark.parametrize(("merged", "left"), [(None, [[0], [1, 2]]), (2, [[0, 1, 2]])])
def test_texts_of_other_parameters_are_built_again_or_stay(
    tmp_path: Path, merged: int | None, left: list[list[int]]
) -> None:
    rows = pa.table({"t": ["an apple", "Apples"]})
    dataset = glaive.write_dataset(rows, tmp_path / "t", max_rows_per_file=1)
    parts: list[Any] = [
        dataset.create_index_uncommitted(
            "t", "INVERTED", name="i", fragment_ids=[one], stem=not one
        )
        for one in (0, 1)
    ]
    dataset = dataset.commit_existing_index_segments("i", "t", parts)
    dataset = glaive.write_dataset(rows.slice(0, 1), dataset, mode="append")
    dataset.optimize.optimize_indices(num_indices_to_merge=merged)
    assert segments(dataset, "i") == left


def test_small_segments_of_graphs_are_not_built_again_for_a_few_rows(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(vectors(400, 1), tmp_path / "v")
    dataset = dataset.create_index("v", "IVF_HNSW_FLAT", num_partitions=1)
    assert segments(added(dataset, 5), "v_idx") == [[0], [1]]


def test_the_number_of_segments_to_merge_may_be_given(dataset: glaive.LanceDataset) -> None:
    dataset.create_scalar_index("id", "BTREE")
    for first in (1000, 2000, 3000):
        dataset = appended(dataset, first, 100)
        dataset.optimize.optimize_indices(num_indices_to_merge=0, index_names=["id_idx"])
    assert segments(dataset) == [[0, 1, 2, 3], [4], [5], [6]]
    dataset.optimize.optimize_indices(num_indices_to_merge=2)
    assert segments(dataset) == [[0, 1, 2, 3], [4], [5, 6]]
    dataset.optimize.optimize_indices(retrain=True)
    assert segments(dataset) == [[0, 1, 2, 3, 4, 5, 6]]
    assert [found(dataset, number) for number in (0, 1000, 2050, 3099)] == [1] * 4
    with pytest.raises(IndexNotFoundError, match='Index "other" not found'):
        dataset.optimize.optimize_indices(index_names=["other"])
    with pytest.raises(OptionError, match="expected an integer ≥ 0"):
        dataset.optimize.optimize_indices(num_indices_to_merge=-1)


def test_a_prewarmed_index_is_in_the_cache_of_the_session(dataset: glaive.LanceDataset) -> None:
    dataset.create_scalar_index("id", "BTREE")
    opened = glaive.dataset(dataset.uri)
    assert opened.session().index_cache_size_bytes() == 0
    opened.prewarm_index("id_idx")
    assert opened.session().index_cache_size_bytes() > 0
    with pytest.raises(IndexNotFoundError, match="other"):
        opened.prewarm_index("other")
    without = glaive.dataset(dataset.uri, index_cache_size_bytes=0)
    without.prewarm_index("id_idx")
    assert without.session().index_cache_size_bytes() == 0
    assert found(without, 7) == 1


def test_a_limit_of_memory_is_checked_and_kept_to(dataset: glaive.LanceDataset) -> None:
    dataset.create_scalar_index("id", "BTREE", memory_limit="64MiB")
    assert found(dataset, 7) == 1
    with pytest.raises(OptionError, match="memory_limit"):
        dataset.create_scalar_index("id", "BTREE", memory_limit="much")


@pytest.mark.spec("vector-21")
def test_an_index_without_vectors_answers_for_no_fragment(tmp_path: Path) -> None:
    kind = pa.list_(pa.float32(), 8)
    made = glaive.write_dataset(pa.table({"v": pa.nulls(50, kind)}), tmp_path / "t")
    made.create_index("v", "IVF_FLAT", num_partitions=2)
    assert segments(made, "v_idx") == [[]]
    nearest = {"column": "v", "q": [0.5] * 8, "k": 3}
    assert made.to_table(nearest=nearest).num_rows == 0
    vectors = pa.FixedSizeListArray.from_arrays(np.arange(80, dtype=np.float32), 8)
    made = glaive.write_dataset(pa.table({"v": vectors}), made, mode="append")
    assert made.to_table(nearest=nearest).num_rows == 3
    made.optimize.optimize_indices()
    assert made.to_table(nearest=nearest).num_rows == 3


def test_segments_are_small_up_to_4096_rows_with_those_that_are_added(tmp_path: Path) -> None:
    for rows, expected in ((4095, [[0, 1]]), (4096, [[0], [1]])):
        made = glaive.write_dataset({"id": np.arange(rows)}, tmp_path / str(rows))
        made.create_scalar_index("id", "BTREE")
        made.insert({"id": [rows]})
        made.optimize.optimize_indices()
        assert segments(made) == expected


def test_a_segment_of_a_newer_kind_is_scanned_around_and_left_alone(
    dataset: glaive.LanceDataset,
) -> None:
    dataset.create_scalar_index("id", "BTREE")
    dataset = appended(dataset, 1000, 10)
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    old = tuple(dataset.manifest.indices)
    newer = table_pb2.IndexMetadata()
    newer.CopyFrom(old[1])
    newer.index_version = 9
    commit_operation(dataset, CreateIndex(new=(newer,), removed=(old[1],)))
    for scanned in (1, 0):  # The second time with a segment that glaive has built beside it.
        made = glaive.dataset(dataset.uri)
        assert [found(made, number) for number in (0, 399, 1000, 1009, 1010)] == [1] * 4 + [0]
        plan = made.scanner(filter="id = 1000", use_scalar_index=True).explain_plan()
        assert f"; {scanned} fragments scanned" in plan
        assert [one.index_version for one in made.manifest.indices].count(9) == 1
        made.optimize.optimize_indices()


@pytest.mark.spec("rel-25")
def test_segments_that_cannot_be_merged_are_tried_a_few_times_however_many_there_are(
    dataset: glaive.LanceDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def refuse(_: object, entries: tuple[object, ...], __: object) -> None:
        tried.append(len(entries))
        raise UnsupportedFeatureError("they have models of their own")

    monkeypatch.setattr(optimize, "merge_segments", refuse)
    dataset.create_scalar_index("id", "BTREE")
    (entry,), none = dataset.manifest.indices, np.zeros(0, np.int64)
    segments = (StoredSegment(entry, frozenset(), 0),) * 5000
    many = IndexSegments("id_idx", kind_of(entry), segments, (), none)
    monkeypatch.setattr(optimize, "index_segments", lambda *_: {"id_idx": many})
    for count, fewest in ((5000, 1), (3, 3), (9, 2)):
        tried.clear()
        assert MergeTask(dataset.version, "id_idx", count, fewest).execute(dataset).segment is None
        assert (tried[0], tried[-1]) == (count, fewest)
        assert sum(tried) < 9 * count
    assert tried == [9, 8, 7, 6, 5, 4, 3, 2]
