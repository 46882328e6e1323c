"""Near duplicates in vector indices: pairs and groups are those that pylance finds."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive import vector as ours
from glaive.errors import ColumnNotFoundError, OptionError

lance = pytest.importorskip("lance", reason="install the 'interop' group")

ROWS, WIDTH = 288, 16


def _vectors_of_pylance() -> Any:
    """``lance.vector``, which imports progress bars that nothing here shows."""
    bars: Any = ModuleType("tqdm.auto")
    bars.tqdm = iter
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "tqdm", ModuleType("tqdm"))
        patch.setitem(sys.modules, "tqdm.auto", bars)
        return import_module("lance.vector")


pylance = _vectors_of_pylance()


def near_vectors() -> np.ndarray[Any, Any]:
    """Each of 48 vectors six times, a little changed."""
    random = np.random.default_rng(0)
    base = random.normal(size=(48, WIDTH))
    noise = random.normal(size=(ROWS, WIDTH)) * 0.02
    return (base[np.arange(ROWS) % 48] + noise).astype(np.float32)


def near_hashes() -> np.ndarray[Any, Any]:
    """Each of 24 hashes twelve times, with up to four bits changed."""
    random = np.random.default_rng(1)
    hashes = random.integers(0, 256, (24, 8), dtype=np.uint8)[np.arange(ROWS) % 24]
    for row in range(ROWS):
        for bit in random.integers(0, 64, row % 5).tolist():
            hashes[row, bit // 8] ^= 1 << (bit % 8)
    return hashes


def written(path: Path, values: np.ndarray[Any, Any], **options: Any) -> str:
    kind = pa.list_(pa.from_numpy_dtype(values.dtype), values.shape[1])
    vectors: Any = pa.FixedSizeListArray
    column = vectors.from_arrays(pa.array(values.ravel()), type=kind)
    table = pa.table({"id": range(len(values)), "v": column})
    lance.write_dataset(table, str(path), max_rows_per_file=100, **options)
    return str(path)


def exact_pairs(values: np.ndarray[Any, Any], metric: str, limit: float) -> set[tuple[int, int]]:
    wide = values.astype(float)
    if metric == "l2":
        far = ((wide[:, None] - wide[None]) ** 2).sum(axis=2)
    else:
        unit = wide / np.linalg.norm(wide, axis=1)[:, None] if metric == "cosine" else wide
        far = 1 - unit @ unit.T
    first, second = np.nonzero(np.triu(far <= limit, 1))
    return set(zip(first.tolist(), second.tolist(), strict=True))


def pairs_of(reader: pa.RecordBatchReader, uri: str) -> set[tuple[int, int]]:
    """Pairs by their column ``id``."""
    table = reader.read_all()
    dataset = glaive.dataset(uri)
    rows = dataset.to_table(["id"], with_row_id=True).to_pydict()
    ids = dict(zip(rows["_rowid"], rows["id"], strict=True))
    sides = [[ids[row] for row in table[name].to_pylist()] for name in ("row_id_a", "row_id_b")]
    found = [(min(pair), max(pair)) for pair in zip(*sides, strict=True)]
    assert len(found) == len(set(found))
    return set(found)


KINDS = ["IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_SQ"]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("metric", "limit"), [("l2", 1.0), ("cosine", 0.08), ("dot", -6.0)])
def test_pairs_are_those_that_pylance_finds_in_its_index(
    tmp_path: Path, kind: str, metric: str, limit: float
) -> None:
    uri = written(tmp_path / "d", near_vectors())
    parts = {"num_sub_vectors": 4, "sample_rate": 2} if "PQ" in kind else {}
    dataset = lance.dataset(uri).create_index("v", kind, metric=metric, num_partitions=2, **parts)
    glaive.dataset(uri).delete("id % 7 = 3")
    dataset = lance.dataset(uri)
    theirs = pylance.find_duplicate_pairs(dataset, "v", limit).read_all()
    found = ours.find_duplicate_pairs(glaive.dataset(uri), "v", limit, memory_limit=0).read_all()
    assert found.schema == theirs.schema
    assert found.num_rows > 250
    assert found.drop(["distance"]).equals(theirs.drop(["distance"]))
    distances = [table["distance"].to_numpy() for table in (found, theirs)]
    np.testing.assert_allclose(distances[0], distances[1], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("metric", "limit"), [("l2", 1.0), ("cosine", 0.08), ("dot", -6.0)])
def test_pairs_of_one_partition_are_the_exact_ones(
    tmp_path: Path, metric: str, limit: float
) -> None:
    uri = written(tmp_path / "d", near_vectors(), enable_stable_row_ids=True)
    dataset = glaive.dataset(uri).create_index("v", "IVF_FLAT", metric=metric, num_partitions=1)
    expected = exact_pairs(near_vectors(), metric, limit)
    found = ours.find_duplicate_pairs(dataset, "v", limit, max_concurrency=1)
    assert pairs_of(found, uri) == expected
    assert len(expected) > 350
    segment = dataset.describe_indices()[0].segments[0].uuid
    scoped = ours.find_duplicate_pairs_in_partition(dataset, "v", segment, 0, limit)
    assert pairs_of(scoped, uri) == expected
    dataset.delete("id < 50")
    left = {pair for pair in expected if pair[0] >= 50}
    assert pairs_of(ours.find_duplicate_pairs(dataset, "v", limit), uri) == left
    glaive.write_dataset(dataset.take([0, 1]), uri, mode="append")
    dataset = glaive.dataset(uri)
    with pytest.raises(OptionError, match="does not cover all fragments; optimize"):
        ours.find_duplicate_pairs(dataset, "v", limit)
    scoped = ours.find_duplicate_pairs_in_partition(dataset, "v", segment, 0, limit)
    assert pairs_of(scoped, uri) == left


@pytest.mark.nightly(reason="pairs many rows")
def test_partitions_of_several_batches_give_every_pair_once(tmp_path: Path) -> None:
    values = np.repeat(np.arange(8300, dtype=np.float32)[:, None], 8, axis=1)
    values[8299] = values[5]
    uri = written(tmp_path / "d", values)
    dataset = glaive.dataset(uri).create_index("v", "IVF_FLAT", metric="l2", num_partitions=1)
    expected = {(row, row + 1) for row in range(8298)} | {(4, 8299), (5, 8299), (6, 8299)}
    for limit in (0, None):
        found = ours.find_duplicate_pairs(dataset, "v", 8.0, memory_limit=limit)
        assert pairs_of(found, uri) == expected


def groups_of(table: pa.Table) -> list[tuple[int, list[int]]]:
    columns = table.to_pydict()
    return list(zip(columns["representative"], columns["duplicates"], strict=True))


def exact_groups(hashes: np.ndarray[Any, Any], ids: list[int], bits: int) -> list[Any]:
    """Groups by a search from row to row."""
    far = np.bitwise_count(hashes[:, None] ^ hashes[None]).sum(axis=2, dtype=int)
    left, groups = set(range(len(ids))), []
    while left:
        reached = [min(left)]
        left.discard(reached[0])
        for row in reached:
            near = [other for other in left if far[row, other] <= bits]
            left.difference_update(near)
            reached += near
        if len(reached) > 1:
            first, *others = sorted(ids[row] for row in reached)
            groups.append((first, others))
    return groups


@pytest.mark.parametrize("bits", [0, 3, 9, 20])
def test_groups_of_hashes_are_the_rows_that_pairs_connect(tmp_path: Path, bits: int) -> None:
    hashes = near_hashes()
    uri = written(tmp_path / "d", hashes)
    glaive.dataset(uri).delete("id % 5 = 2")
    rows = glaive.dataset(uri).to_table(["id", "v"], with_row_id=True)
    ids = rows["_rowid"].to_pylist()
    expected = exact_groups(hashes[rows["id"].to_numpy()], ids, bits)
    sample = ours.hamming_clustering_for_sample(glaive.dataset(uri), "v", None, bits)
    assert groups_of(sample.read_all()) == expected
    theirs = pylance.hamming_clustering_for_sample(lance.dataset(uri), "v", None, bits).read_all()
    assert groups_of(theirs) == expected
    assert theirs.schema == sample.schema
    part = ours.hamming_clustering_for_range(glaive.dataset(uri), "v", 1, 10, 40, bits)
    theirs = pylance.hamming_clustering_for_range(lance.dataset(uri), "v", 1, 10, 40, bits)
    assert groups_of(part.read_all()) == groups_of(theirs.read_all())
    some = groups_of(
        ours.hamming_clustering_for_sample(glaive.dataset(uri), "v", 50, bits).read_all()
    )
    assert sum(1 + len(others) for _, others in some) <= 50


def test_hashes_with_a_null_among_their_bytes_are_in_no_group(tmp_path: Path) -> None:
    whole, holed = list(range(8)), [None, *range(1, 8)]
    values = pa.array([holed, whole, None, holed, whole], pa.list_(pa.uint8(), 8))
    dataset = glaive.write_dataset(pa.table({"v": values}), tmp_path / "d")
    sample = ours.hamming_clustering_for_sample(dataset, "v", None, 0)
    assert groups_of(sample.read_all()) == [(1, [4])]
    part = ours.hamming_clustering_for_range(dataset, "v", 0, 0, 4, 0)
    assert groups_of(part.read_all()) == []
    nothing = ours.hamming_clustering_for_range(dataset, "v", 0, 0, 0, 0)
    assert groups_of(nothing.read_all()) == []


def test_groups_and_sizes_of_partitions_count_all_segments(tmp_path: Path) -> None:
    uri = written(tmp_path / "d", near_hashes())
    dataset = glaive.dataset(uri)
    dataset.create_index("v", "IVF_FLAT", metric="hamming", num_partitions=3)
    more = dataset.to_table(["id", "v"]).slice(0, 60)
    dataset = glaive.write_dataset(more, uri, mode="append")
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    dataset = glaive.dataset(uri)
    segments = [segment.uuid for segment in dataset.describe_indices()[0].segments]
    assert len(segments) == 2
    theirs = lance.dataset(uri)
    for chosen in (None, segments[:1], segments):
        sizes = ours.get_ivf_partition_info(dataset, "v_idx", index_segments=chosen)
        assert sizes == pylance.get_ivf_partition_info(theirs, "v_idx", index_segments=chosen)
        found = 0
        for number in range(3):
            got, wanted = (
                groups_of(
                    library.hamming_clustering_for_ivf_partition(
                        opened, "v_idx", number, 3, index_segments=chosen
                    ).read_all()
                )
                for library, opened in ((ours, dataset), (pylance, theirs))
            )
            assert got == wanted
            found += sum(1 + len(others) for _, others in got)
        assert found > (180 if chosen == segments[:1] else 240)
    assert sum(one["size"] for one in sizes) == 348
    dataset.delete("id = 3")
    rows = {
        row
        for number in range(3)
        for first, others in groups_of(
            ours.hamming_clustering_for_ivf_partition(dataset, "v_idx", number, 3).read_all()
        )
        for row in (first, *others)
    }
    assert 3 not in rows
    assert len(rows) == found - 2


def test_what_has_no_pairs_or_groups_is_refused_by_name(tmp_path: Path) -> None:
    uri = written(tmp_path / "d", near_hashes())
    dataset = glaive.dataset(uri)
    with pytest.raises(OptionError, match="requires exactly one vector index, found 0"):
        ours.find_duplicate_pairs(dataset, "v", 1)
    with pytest.raises(ColumnNotFoundError, match="none"):
        ours.find_duplicate_pairs(dataset, "none", 1)
    with pytest.raises(OptionError, match="not found on dataset"):
        ours.get_ivf_partition_info(dataset, "v_idx")
    dataset.create_index("v", "IVF_FLAT", metric="hamming", num_partitions=2)
    with pytest.raises(OptionError, match="must be finite, got nan"):
        ours.find_duplicate_pairs(dataset, "v", float("nan"))
    with pytest.raises(OptionError, match="max_concurrency must be positive, got 0"):
        ours.find_duplicate_pairs(dataset, "v", 1, max_concurrency=0)
    with pytest.raises(OptionError, match="memory_limit must not be negative"):
        ours.find_duplicate_pairs(dataset, "v", 1, memory_limit=-1)
    with pytest.raises(OptionError, match="is not an active segment of column 'v'"):
        ours.find_duplicate_pairs_in_partition(dataset, "v", uuid4(), 0, 1)
    segment = dataset.describe_indices()[0].segments[0].uuid
    with pytest.raises(OptionError, match=r"partition_id=2 out of range 0\.\.2"):
        ours.find_duplicate_pairs_in_partition(dataset, "v", segment, 2, 1)
    with pytest.raises(OptionError, match=r"Partition ID -1 is out of range \(0\.\.2\)"):
        ours.hamming_clustering_for_ivf_partition(dataset, "v_idx", -1, 1)
    with pytest.raises(OptionError, match="must not be empty; omit index_segments"):
        ours.get_ivf_partition_info(dataset, "v_idx", index_segments=[])
    with pytest.raises(OptionError, match="index_segments: Lance index not found: name=v_idx"):
        ours.get_ivf_partition_info(dataset, "v_idx", index_segments=[uuid4()])
    with pytest.raises(OptionError, match="must be FixedSizeList<UInt8, N>"):
        ours.hamming_clustering_for_sample(dataset, "id")
    with pytest.raises(OptionError, match="must not be negative"):
        ours.hamming_clustering_for_sample(dataset, "v", None, -1)
    with pytest.raises(OptionError, match="Fragment with ID 9 not found"):
        ours.hamming_clustering_for_range(dataset, "v", 9, 0, 1)
    with pytest.raises(OptionError, match="start_row 100 is out of range for fragment with 100"):
        ours.hamming_clustering_for_range(dataset, "v", 0, 100, 1)
    dataset.create_index("v", "IVF_FLAT", metric="hamming", num_partitions=2, name="second")
    with pytest.raises(OptionError, match="requires exactly one vector index, found 2"):
        ours.find_duplicate_pairs(dataset, "v", 1)
