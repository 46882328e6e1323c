"""Searches with the options of one before find what they would have found alone."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import CorruptFileError, OptionError
from glaive.kernels.graph_search import PartitionTable
from glaive.scan.options import ScanOptions

DIMENSION = 8
QUERIES = np.random.default_rng(2).standard_normal((4, DIMENSION)).astype(np.float32)


def rows_from(first: int, count: int) -> pa.Table:
    vectors = np.random.default_rng(first).standard_normal((count, DIMENSION)).astype(np.float32)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMENSION)
    return pa.table({"id": np.arange(first, first + count), "v": flat})


def written(path: Path, kind: str | None) -> glaive.LanceDataset:
    dataset = glaive.write_dataset(rows_from(0, 600), path)
    if kind is not None:
        options = {"num_sub_vectors": 4} if kind == "IVF_PQ" else {}
        dataset.create_index("v", kind, num_partitions=4, **options)
    return dataset


def alone(dataset: glaive.LanceDataset, nearest: dict[str, Any], **options: Any) -> pa.Table:
    """The search by a dataset that was asked nothing before."""
    fresh = glaive.dataset(dataset.uri, dataset.version, session=glaive.Session())
    return fresh.to_table(nearest=nearest, **options)


SEARCHES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "k": ({"k": 7}, {}),
    "refined": ({"k": 3, "nprobes": 2, "refine_factor": 4}, {"columns": ["id"]}),
    "prefilter": ({"k": 5, "nprobes": 4}, {"filter": "id < 90", "prefilter": True}),
    "postfilter": ({"k": 50}, {"filter": "id < 300", "limit": 4, "offset": 1}),
    "range": ({"k": 9, "metric": "l2"}, {"columns": ("_rowid", "id"), "with_row_id": True}),
    "exact": ({"k": 4, "use_index": False}, {}),
    "limit": ({}, {"limit": 3}),
    # Those above with another value of one option.
    "other k": ({"k": 12}, {}),
    "other prefilter": ({"k": 5, "nprobes": 4}, {"filter": "id >= 90", "prefilter": True}),
    "other column": ({"k": 3, "nprobes": 2, "refine_factor": 4}, {"columns": ["v"]}),
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", [None, "IVF_FLAT", "IVF_PQ"])
def test_other_queries_find_what_a_dataset_finds_that_was_asked_nothing_before(
    tmp_path: Path, kind: str | None
) -> None:
    dataset = written(tmp_path / "v.lance", kind)
    for _ in range(2):
        for nearest, options in SEARCHES.values():
            for query in QUERIES:
                asked = {"column": "v", "q": query, **nearest}
                found = dataset.to_table(nearest=asked, **options)
                assert found.equals(alone(dataset, asked, **options))


@pytest.mark.parametrize("kind", [None, "IVF_PQ"])
def test_one_query_and_several_alternate(tmp_path: Path, kind: str | None) -> None:
    dataset = written(tmp_path / "v.lance", kind)
    queries = QUERIES[0], QUERIES, QUERIES[1].tolist(), QUERIES.tolist(), QUERIES[2:].tolist()
    for query in (*queries, *reversed(queries)):
        asked = {"column": "v", "q": query, "k": 3}
        assert dataset.to_table(nearest=asked).equals(alone(dataset, asked))


def times_checked(search: Callable[[], object]) -> int:
    """How often a search checks options of scans."""
    times, code = 0, ScanOptions.of.__func__.__code__  # type: ignore[attr-defined]  # a method

    def note(frame: FrameType, event: str, _value: object) -> None:
        nonlocal times
        times += event == "call" and frame.f_code is code

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        search()
    finally:
        sys.setprofile(before)
    return times


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("columns", [[], (), ["id"], ("id", "_distance"), None])
@pytest.mark.parametrize("by_scanner", [False, True])
def test_options_are_looked_at_once(
    tmp_path: Path, columns: Sequence[str] | None, by_scanner: bool
) -> None:
    dataset = written(tmp_path / "v.lance", "IVF_FLAT")

    def search(**other: Any) -> pa.Table:
        asked = {"column": "v", "q": QUERIES[0], "k": 3, "nprobes": 2} | other
        if by_scanner:
            return dataset.scanner(columns, with_row_id=True, nearest=asked).to_table()
        return dataset.to_table(columns, with_row_id=True, nearest=asked)

    first = search()
    assert first.equals(search())
    assert times_checked(search) == 0
    # A value of another type may mean something else.
    assert times_checked(lambda: search(k=np.int64(3))) == 1


def test_a_scanner_keeps_what_it_was_made_for(tmp_path: Path) -> None:
    dataset = written(tmp_path / "v.lance", "IVF_PQ")
    asked = {"column": "v", "q": QUERIES[0], "k": 5, "nprobes": 4}
    scanners = []
    for query in (*QUERIES, *QUERIES):
        asked["q"] = query
        scanners.append(dataset.scanner(["id"], nearest=asked))
    asked |= {"q": QUERIES[0][:2], "k": -1}
    for scanner, query in zip(scanners, (*QUERIES, *QUERIES), strict=True):
        expected = alone(dataset, asked | {"q": query, "k": 5}, columns=["id"])
        assert scanner.to_table().equals(expected)
        assert scanner.to_table().equals(expected)
        assert pa.Table.from_batches(scanner.to_batches()).equals(expected)
        assert scanner.head(2).equals(expected.slice(0, 2))
        assert scanner.count_rows() == 5
        assert "index v_idx" in scanner.explain_plan()


def test_a_file_that_was_truncated_is_named_by_the_next_search(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).standard_normal((4000, DIMENSION)).astype(np.float32)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMENSION)
    numbers = np.random.default_rng(4).integers(0, 2**60, 4000)
    dataset = glaive.write_dataset(pa.table({"n": numbers, "v": flat}), tmp_path / "v.lance")
    dataset.create_index("v", "IVF_FLAT", num_partitions=4)
    asked = {"column": "v", "k": 3, "nprobes": 1}
    for number in range(5):
        found = dataset.to_table(["n"], nearest={**asked, "q": vectors[number]})
        assert found["n"][0].as_py() == numbers[number]
    (fragment,) = dataset.get_fragments()
    (file,) = fragment.data_files()
    path = Path(dataset.uri, "data", file.path)
    time.sleep(0.05)  # for so long, those who looked at it trust its size
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(CorruptFileError, match=file.path):
        dataset.to_table(["n"], nearest={**asked, "q": vectors[0]})


def test_rows_of_a_graph_that_are_as_far_as_each_other_come_by_row_id(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).integers(0, 9, (3000, DIMENSION)).astype(np.float32)
    vectors = np.concatenate([vectors, vectors])  # each is there twice
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMENSION)
    table = pa.table({"id": np.arange(6000), "v": flat})
    dataset = glaive.write_dataset(table, tmp_path / "v.lance")
    dataset.create_index("v", "IVF_HNSW_SQ", num_partitions=1)
    nearest = {"column": "v", "k": 6, "nprobes": 1, "ef": 12}
    for number in range(0, 3000, 200):
        found = dataset.to_table(["id"], nearest={**nearest, "q": vectors[number]})
        ids, distances = found["id"].to_numpy(), found["_distance"].to_numpy()
        assert {number, number + 3000} <= set(ids.tolist())
        assert ids.tolist() == ids[np.lexsort((ids, distances))].tolist()
        assert (np.diff(distances) == 0).any()


def test_rows_of_a_graph_beyond_a_distance_are_left_out(tmp_path: Path) -> None:
    table = rows_from(0, 6000)  # of fewer, all are compared
    dataset = glaive.write_dataset(table, tmp_path / "v.lance")
    dataset.create_index("v", "IVF_HNSW_SQ", num_partitions=1)
    nearest = {"column": "v", "k": 8, "nprobes": 1, "ef": 14}
    for query in QUERIES:
        every = dataset.to_table(["id"], nearest={**nearest, "q": query})
        far = every["_distance"].to_numpy()
        for low, high in ((None, far[4]), (far[2], None), (far[2], far[6]), (None, far[0])):
            found = dataset.to_table(
                ["id"], nearest={**nearest, "q": query, "distance_range": (low, high)}
            )
            kept = (far >= (low or 0)) & (far < (high or np.inf))
            wanted = every.filter(pa.array(kept))["id"].to_pylist()
            assert found["id"].to_pylist()[: len(wanted)] == wanted
            assert high is None or len(found) == len(wanted)


def test_a_batch_after_one_query_is_a_batch(tmp_path: Path) -> None:
    dataset = written(tmp_path / "v.lance", "IVF_FLAT")
    for query in (QUERIES[0], QUERIES[:1], QUERIES[1:], QUERIES[0].tolist(), pa.array(QUERIES[0])):
        asked = {"column": "v", "q": query, "k": 2}
        found = dataset.to_table(["id"], nearest=asked)
        assert found.equals(alone(dataset, asked, columns=["id"]))
        assert ("query_index" in found.schema.names) == (np.ndim(query) == 2)


def test_values_that_are_equal_but_not_allowed_are_refused_after_others(tmp_path: Path) -> None:
    dataset = written(tmp_path / "v.lance", "IVF_FLAT")
    asked = {"column": "v", "q": QUERIES[0], "k": 1}
    dataset.to_table(["id"], nearest=asked, limit=1, prefilter=True)
    with pytest.raises(OptionError, match="k: expected an integer"):
        dataset.to_table(["id"], nearest=asked | {"k": True}, limit=1, prefilter=True)
    with pytest.raises(OptionError, match="k: expected an integer"):
        dataset.to_table(["id"], nearest=asked | {"k": 1.0}, limit=1, prefilter=True)
    with pytest.raises(OptionError, match="prefilter: expected True"):
        dataset.to_table(["id"], nearest=asked, limit=1, prefilter=1)
    with pytest.raises(OptionError, match="Query vector size 3"):
        dataset.to_table(["id"], nearest=asked | {"q": [1, 2, 3]}, limit=1, prefilter=True)


def test_rows_of_a_later_version_are_found_once_the_dataset_moves_there(tmp_path: Path) -> None:
    dataset = written(tmp_path / "v.lance", "IVF_PQ")
    target = rows_from(600, 5)["v"][3].values.to_numpy()
    asked = {"column": "v", "q": target, "k": 1, "nprobes": 4, "refine_factor": 2}
    before = dataset.to_table(["id"], nearest=asked)["id"].to_pylist()
    other = glaive.dataset(dataset.uri)
    other.insert(rows_from(600, 5))
    assert dataset.to_table(["id"], nearest=asked)["id"].to_pylist() == before
    dataset.checkout_latest()
    assert dataset.to_table(["id"], nearest=asked)["id"].to_pylist() == [603]
    other.delete("id = 603")
    assert dataset.to_table(["id"], nearest=asked)["id"].to_pylist() == [603]
    dataset.checkout_latest()
    assert dataset.to_table(["id"], nearest=asked)["id"].to_pylist() != [603]


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ"])
def test_each_version_finds_its_own_rows_in_partitions_that_the_session_keeps(
    tmp_path: Path, kind: str
) -> None:
    dataset = written(tmp_path / "v.lance", kind)
    asked = {"column": "v", "q": QUERIES[0], "k": 5, "nprobes": 4}

    def ids() -> list[int]:
        return [dataset.to_table(["id"], nearest=asked)["id"].to_pylist() for _ in range(2)][1]

    first, version = ids(), dataset.version
    dataset.delete(f"id = {first[0]}")
    assert ids()[:4] == first[1:]
    dataset = dataset.checkout_version(version)
    assert ids() == first


def test_an_index_that_the_session_let_go_of_is_opened_again(tmp_path: Path) -> None:
    dataset = written(tmp_path / "v.lance", "IVF_PQ")
    asked = {"column": "v", "q": QUERIES[0], "k": 3}
    first = dataset.to_table(["id"], nearest=asked)
    held = dataset.session().index_cache_size_bytes()
    dataset.session().clear()
    assert dataset.session().index_cache_size_bytes() == 0
    assert dataset.to_table(["id"], nearest=asked).equals(first)
    assert dataset.session().index_cache_size_bytes() == held


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ"])
def test_searches_find_the_same_rows_whatever_fits_the_cache(tmp_path: Path, kind: str) -> None:
    dataset = written(tmp_path / "v.lance", kind)
    dataset.delete("id % 7 = 3")
    found = []
    for size in (0, 20_000, 100_000, 1 << 28):
        cached = glaive.dataset(dataset.uri, index_cache_size_bytes=size)
        searches = [
            {"column": "v", "q": query, "k": 5, "nprobes": nprobes}
            for nprobes in (1, 3)
            for query in QUERIES
        ]
        tables = [cached.to_table(["id"], nearest=asked) for asked in (*searches, *searches)]
        found.append([table.to_pydict() for table in tables])
        assert cached.session().index_cache_size_bytes() <= size
        entries = cached.session().index_cache._entries.values()  # noqa: SLF001  # no other door shows kinds
        sizes = [value.nbytes for value, _ in entries if isinstance(value, PartitionTable)]
        assert sum(sizes) <= size // 4
    assert len(sizes) == 1
    assert found[0][: len(found[0]) // 2] == found[0][len(found[0]) // 2 :]
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ"])
@pytest.mark.parametrize("k", [5, 400])
def test_a_large_batch_finds_what_its_queries_find(tmp_path: Path, kind: str, k: int) -> None:
    dataset = written(tmp_path / "v.lance", kind)
    queries = np.random.default_rng(8).normal(size=(70, QUERIES.shape[1])).astype(np.float32)
    for options in ({"nprobes": 2}, {"minimum_nprobes": 1}, {"distance_range": (1.0, 9.0)}):
        asked = {"column": "v", "k": k, **options}
        alone = [dataset.to_table(["id"], nearest={**asked, "q": query}) for query in queries]
        batch = dataset.to_table(["id"], nearest={**asked, "q": queries})
        assert batch["id"].to_pylist() == [id for one in alone for id in one["id"].to_pylist()]
        assert batch["query_index"].to_pylist() == [
            at for at, one in enumerate(alone) for _ in range(one.num_rows)
        ]


def test_each_query_of_a_batch_finds_rows_added_since_however_near_those_of_the_first_are(
    tmp_path: Path,
) -> None:
    """Rows without an index are looked for up to the distance of each query's own rows."""
    dataset = written(tmp_path / "v.lance", "IVF_FLAT")
    dataset.insert(rows_from(600, 40))
    near = rows_from(0, 600)["v"][5].values.to_numpy()
    for batch in (np.stack([near, QUERIES[1]]), np.stack([QUERIES[1], near])):
        asked = {"column": "v", "q": batch, "k": 9, "nprobes": 4}
        found = dataset.to_table(["id"], nearest=asked)
        exact = dataset.to_table(["id"], nearest=asked | {"use_index": False})
        assert found["id"].to_pylist() == exact["id"].to_pylist()


@pytest.mark.parametrize("fragments", [1, 3])
def test_columns_of_rows_found_can_be_computed_and_come_in_their_order(
    tmp_path: Path, fragments: int
) -> None:
    dataset = written(tmp_path / "v.lance", "IVF_FLAT")
    for number in range(1, fragments):
        dataset.insert(rows_from(600 * number, 100))
    columns = {"id": "id", "twice": "id * 2", "more": "_distance + id"}
    for query in (*QUERIES, *QUERIES):  # takes join fragments that they have met
        asked = {"column": "v", "q": query, "k": 20, "nprobes": 4}
        found = dataset.to_table(columns, nearest=asked)
        ids = found["id"].to_numpy()
        assert dataset.to_table(["_rowid", "id"], nearest=asked)["id"].to_pylist() == ids.tolist()
        assert found["twice"].to_pylist() == (2 * ids).tolist()
        np.testing.assert_allclose(found["more"], ids + found["_distance"].to_numpy(), rtol=1e-5)


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_SQ"])
@pytest.mark.parametrize("metric", ["l2", "dot", "cosine"])
def test_one_query_of_a_single_partition_has_the_distances_of_a_batch(
    tmp_path: Path, kind: str, metric: str
) -> None:
    dataset = glaive.write_dataset(rows_from(0, 600), tmp_path)
    options = {"num_sub_vectors": 4} if kind == "IVF_PQ" else {}
    dataset.create_index("v", kind, num_partitions=1, metric=metric, **options)
    batch = alone(dataset, {"column": "v", "q": QUERIES, "k": 5}, columns=["_distance"])
    for number, query in enumerate(QUERIES):
        one = alone(dataset, {"column": "v", "q": query, "k": 5}, columns=["_distance"])
        assert one["_distance"].equals(batch["_distance"][5 * number : 5 * number + 5])
