"""Vector indices that pylance made are searched with the same rows: kinds, distances, histories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import CorruptFileError, OptionError

lance = pytest.importorskip("lance", reason="install the 'interop' group")

ROWS, DIMENSION, CENTERS = 2400, 32, 12
PARTITIONS = 6
KINDS: dict[str, dict[str, Any]] = {
    "IVF_FLAT": {},
    "IVF_SQ": {},
    "IVF_PQ": {"num_sub_vectors": 8},
    "IVF_PQ 4 bits": {"num_sub_vectors": 8, "num_bits": 4},
    "IVF_HNSW_FLAT": {},
    "IVF_HNSW_SQ": {},
    "IVF_HNSW_PQ": {"num_sub_vectors": 8},
}
RABIT: dict[str, dict[str, Any]] = {
    "IVF_RQ": {},
    "IVF_RQ 1 bit": {"num_bits": 1},
    "IVF_RQ 3 bits": {"num_bits": 3},
    "IVF_RQ 9 bits": {"num_bits": 9},
}
METRICS = ("l2", "cosine", "dot")


def vectors(rows: int, seed: int) -> Any:
    centers = np.random.default_rng(7).normal(size=(CENTERS, DIMENSION))
    random = np.random.default_rng(seed)
    near = centers[random.integers(0, CENTERS, rows)] + random.normal(size=(rows, DIMENSION)) / 2
    return near.astype(np.float32)


def table(rows: int = ROWS, seed: int = 1, first: int = 0, kind: Any = None) -> pa.Table:
    flat = pa.array(vectors(rows, seed).reshape(-1))
    flat = flat if kind is None else flat.cast(kind)
    mask = np.zeros(rows, np.bool_)
    mask[3::50] = True
    column = pa.FixedSizeListArray.from_arrays(flat, DIMENSION, mask=pa.array(mask))
    return pa.table({"id": np.arange(first, first + rows), "v": column})


def made(path: Any, name: str, metric: str = "l2", *, kind: Any = None, **options: Any) -> Any:
    """A dataset with an index by pylance, opened by both."""
    dataset = lance.write_dataset(table(kind=kind), str(path), max_rows_per_file=900, **options)
    extra = dict((KINDS | RABIT)[name])
    index = name.split(maxsplit=1)[0]
    dataset.create_index("v", index, metric=metric, num_partitions=PARTITIONS, **extra)
    return opened(path)


def opened(path: Any) -> Any:
    return lance.dataset(str(path)), glaive.dataset(str(path))


def rows_of(dataset: Any, options: dict[str, Any], nearest: dict[str, Any]) -> Any:
    found = dataset.to_table(columns=["id"], nearest=nearest, **options)
    return found["id"].to_pylist(), found["_distance"].to_numpy()


def same(both: Any, *, rtol: float = 1e-4, options: Any = None, **nearest: Any) -> None:
    nearest = {"column": "v", "q": vectors(1, 99)[0], "k": 10, "approx_mode": "accurate"} | nearest
    (theirs, their_far), (ours, far) = (rows_of(one, options or {}, nearest) for one in both)
    np.testing.assert_allclose(far, their_far, rtol=rtol, atol=2 * rtol)
    assert len(set(ours) & set(theirs)) >= 0.85 * len(set(theirs)), (ours, theirs)


@pytest.mark.sampled(every=12)
@pytest.mark.spec("vector-28", "vector-33", "vector-34")
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", KINDS)
def test_kinds_and_distances(tmp_path: Path, name: str, metric: str) -> None:
    both = made(tmp_path / "d.lance", name, metric)
    # Graphs of pylance are searched nearly exactly at this size, ours compare every row.
    others: Any = {"ef": 200} if "HNSW" in name else {}
    for nprobes in (1, PARTITIONS):
        same(both, nprobes=nprobes, **others)
    # Codes of 4 bits leave many rows at about the same distance, and rounding decides which of
    # them are looked at again: that all are.
    refine = ROWS // 4 if "4 bits" in name else 12
    same(both, nprobes=PARTITIONS, refine_factor=refine)
    batch = np.stack([vectors(1, seed)[0] for seed in (3, 4, 5, 6, 7)])
    same(both, q=batch, k=4, nprobes=3, maximum_nprobes=3, refine_factor=refine)


@pytest.mark.sampled(every=6)
@pytest.mark.spec("vector-28", "vector-30")
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", RABIT)
def test_distances_by_bits(tmp_path: Path, name: str, metric: str) -> None:
    both = made(tmp_path / "d.lance", name, metric)
    for nprobes in (1, PARTITIONS):
        some = {"column": "v", "q": vectors(1, 99)[0], "k": 10, "approx_mode": "accurate"}
        some |= {"nprobes": nprobes, "maximum_nprobes": nprobes}
        # Of all rows: asked for ten, pylance leaves out rows that its bound of the error by signs
        # alone takes for far. One in a hundred searches by more bits lacked one of the ten nearest.
        theirs, ours = (
            dict(zip(*rows_of(one, {}, some | {"k": ROWS}), strict=True)) for one in both
        )
        assert ours.keys() == theirs.keys()
        far = [ours[row] for row in theirs]
        np.testing.assert_allclose(far, list(theirs.values()), rtol=0, atol=rounding(metric))
        few, far = rows_of(both[1], {}, some)
        np.testing.assert_allclose(far, [ours[row] for row in few], rtol=1e-4)
        np.testing.assert_allclose(far, list(ours.values())[:10], rtol=1e-4)
    # Rounding decides which rows are the last ones that are looked at again: all are.
    same(both, nprobes=PARTITIONS, refine_factor=ROWS // 10)
    batch = np.stack([vectors(1, seed)[0] for seed in (3, 4, 5, 6, 7)])
    same(both, q=batch, k=4, nprobes=3, maximum_nprobes=3, refine_factor=ROWS // 4)


def rounding(metric: str) -> float:
    """By how much a distance that pylance estimates may differ.

    It looks up sums of four numbers of the rotated query in a table, rounded to 16 bits: each of
    the eight by half a step of 2.83 / 65,535 lengths of the query, together by 1.73e-4. The factor
    that is multiplied with is at most 1.2 lengths of the residual, half of that for ``dot``: of a
    million random directions, none had sizes with a sum below 3.3. In 2,040 searches of all rows
    differences were up to 0.4 of this.
    """
    lengths = [np.linalg.norm(one, axis=1).max() for one in (vectors(1, 99), vectors(ROWS, 1))]
    known = {"l2": np.prod(lengths), "cosine": 1, "dot": np.prod(lengths) / 2}
    return 2.1e-4 * float(known[metric])


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", [pa.float16(), pa.float64()])
@pytest.mark.parametrize("name", ["IVF_FLAT", "IVF_PQ", "IVF_SQ"])
def test_other_floats(tmp_path: Path, name: str, kind: Any) -> None:
    both = made(tmp_path / "d.lance", name, kind=kind)
    # A half float has 11 bits: sums of them differ by the order in which they are added.
    same(both, nprobes=PARTITIONS, rtol=2e-3 if kind == pa.float16() else 1e-4)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", ["IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_SQ"])
def test_recall_without_options_is_not_below_that_of_pylance(tmp_path: Path, name: str) -> None:
    theirs, ours = made(tmp_path / "d.lance", name)
    queries = vectors(30, 5)
    stored = np.stack(
        [
            row if row is not None else np.full(DIMENSION, 1e9)
            for row in ours.to_table(columns=["v"])["v"].to_pylist()
        ]
    )
    hits = [0, 0]
    for query in queries:
        wanted = set(np.argsort(np.square(stored - query).sum(axis=1))[:10].tolist())
        for at, dataset in enumerate((ours, theirs)):
            found = rows_of(dataset, {}, {"column": "v", "q": query, "k": 10})
            hits[at] += len(wanted & set(found[0]))
    assert hits[0] >= hits[1] - 3, hits


@pytest.mark.spec("vector-33", "vector-35")
def test_each_segment_is_searched_by_its_own_centroids(tmp_path: Path) -> None:
    near = np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 4.0], [9.0, 9.0]], 5, axis=0)
    near = (near + np.arange(20)[:, None] / 99).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(near.ravel(), 2)
    dataset = glaive.write_dataset(
        pa.table({"id": range(20), "v": column}), tmp_path, max_rows_per_file=10
    )
    parts: list[Any] = [
        dataset.create_index_uncommitted(
            "v", "IVF_FLAT", name="i", num_partitions=2, fragment_ids=[one]
        )
        for one in (0, 1)
    ]
    dataset.commit_existing_index_segments("i", "v", parts)
    asked = {"column": "v", "k": 20, "nprobes": 1, "maximum_nprobes": 1}
    for query, expected in (
        ([0.0, 0.0], {*range(5), *range(10, 15)}),
        ([9.0, 1.0], {*range(5, 10), *range(15, 20)}),
        ([0.0, 9.0], {*range(5), *range(10, 15)}),
    ):
        for library in (lance, glaive):
            found = library.dataset(tmp_path).to_table(["id"], nearest={**asked, "q": query})
            assert set(found["id"].to_pylist()) == expected


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("name", ["IVF_FLAT", "IVF_PQ"])
def test_histories(tmp_path: Path, name: str, *, stable: bool) -> None:
    path = tmp_path / "d.lance"
    dataset, _ = made(path, name, enable_stable_row_ids=stable)
    everything = {"nprobes": PARTITIONS, "k": 60, "refine_factor": 4}
    dataset.delete("id % 7 = 2")
    same(opened(path), **everything)
    dataset.update({"id": "id + 10000"}, where="id % 13 = 1")
    same(opened(path), **everything)
    dataset.insert(table(500, seed=8, first=50_000))
    same(opened(path), **everything)
    same(opened(path), options={"fast_search": True}, **everything)
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    assert len(list(path.glob("_indices/*"))) == 2
    same(opened(path), **everything)
    dataset.optimize.compact_files(target_rows_per_fragment=5000)
    same(opened(path), **everything)
    dataset.insert(table(100, seed=9, first=90_000))
    dataset.delete("id % 7 = 3")
    same(opened(path), **everything)


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("name", ["IVF_FLAT", "IVF_SQ", "IVF_HNSW_SQ"])
@pytest.mark.parametrize("condition", ["id < 20", "id % 2 = 0", "id < 1800", "id < 0", "id >= 0"])
def test_filters_before_and_after(tmp_path: Path, name: str, condition: str) -> None:
    both = made(tmp_path / "d.lance", name)
    filtered = {"filter": condition, "prefilter": True}
    few = condition == "id < 20"  # whose vectors we compare themselves
    refine = {"refine_factor": 3} if few else {}
    same(both, options=filtered, nprobes=PARTITIONS, ef=400, k=10, **refine)
    same(both, options={"filter": condition}, nprobes=PARTITIONS, ef=400, k=10)


@pytest.mark.sampled(every=2)
@pytest.mark.spec("vector-13", "vector-14")
@pytest.mark.parametrize("metric", METRICS)
def test_indices_of_one_file(tmp_path: Path, metric: str) -> None:
    path = tmp_path / "d.lance"
    dataset = lance.write_dataset(table(), str(path), max_rows_per_file=900)
    legacy = {"index_file_version": "Legacy", "num_partitions": PARTITIONS, "num_sub_vectors": 8}
    dataset.create_index("v", "IVF_PQ", metric=metric, **legacy)
    assert [file.name for file in path.glob("_indices/*/*")] == ["index.idx"]
    for nprobes in (1, PARTITIONS):
        same(opened(path), nprobes=nprobes)
    dataset.delete("id % 5 = 1")
    same(opened(path), nprobes=PARTITIONS, refine_factor=2)
    plan = glaive.dataset(path).scanner(nearest={"column": "v", "q": vectors(1, 1)[0]})
    assert "index v_idx" in plan.explain_plan()


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("at", range(0, 120, 6))
def test_damage_of_indices_of_one_file_does_no_harm(tmp_path: Path, at: int) -> None:
    path = tmp_path / "d.lance"
    dataset = lance.write_dataset(table(600), str(path))
    legacy = {"index_file_version": "Legacy", "num_partitions": 2, "num_sub_vectors": 4}
    dataset.create_index("v", "IVF_PQ", num_bits=4, **legacy)
    (file,) = path.glob("_indices/*/*")
    damaged = bytearray(file.read_bytes())
    damaged[-1 - at] ^= 0x5A
    file.write_bytes(damaged)
    nearest = {"column": "v", "q": vectors(1, 1)[0], "k": 5}
    try:
        assert len(rows_of(glaive.dataset(path), {}, nearest)[0]) <= 5
    except CorruptFileError as error:
        refused = str(error)
        assert "use_index=False" in refused


@pytest.mark.spec("vector-33")
def test_a_search_goes_on_until_there_are_enough_rows(tmp_path: Path) -> None:
    _, ours = made(tmp_path / "d.lance", "IVF_FLAT")
    query = vectors(1, 3)[0]
    for k, options in ((1500, {}), (ROWS, {"filter": "id % 3 = 0", "prefilter": True})):
        found = rows_of(ours, options, {"column": "v", "q": query, "k": k})
        exact = rows_of(ours, options, {"column": "v", "q": query, "k": k, "use_index": False})
        assert len(found[0]) == len(exact[0])
    few = rows_of(ours, {}, {"column": "v", "q": query, "k": ROWS, "nprobes": 1})
    most = rows_of(ours, {}, {"column": "v", "q": query, "k": ROWS, "maximum_nprobes": 2})
    assert 0 < len(few[0]) < len(most[0]) < ROWS


def test_another_distance_than_that_of_the_index_is_exact(tmp_path: Path) -> None:
    both = made(tmp_path / "d.lance", "IVF_PQ")
    same(both, metric="cosine")
    plan = both[1].scanner(nearest={"column": "v", "q": vectors(1, 1)[0], "metric": "dot"})
    assert "exact search" in plan.explain_plan()
    assert "index v_idx" not in plan.explain_plan()


def test_the_distance_of_the_index_is_the_default(tmp_path: Path) -> None:
    both = made(tmp_path / "d.lance", "IVF_FLAT", "cosine")
    same(both, nprobes=PARTITIONS)
    assert (
        "metric=Cosine"
        in both[1].scanner(nearest={"column": "v", "q": vectors(1, 1)[0]}).explain_plan()
    )


def test_ranges_of_distances(tmp_path: Path) -> None:
    both = made(tmp_path / "d.lance", "IVF_SQ")
    _, far = rows_of(both[1], {}, {"column": "v", "q": vectors(1, 99)[0], "k": 30})
    bounds = (float(far[4]) + 1e-4, float(far[20]) + 1e-4)
    for more in ({}, {"refine_factor": 2}):
        same(both, distance_range=bounds, nprobes=PARTITIONS, k=8, **more)


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_HNSW_FLAT"])
def test_ranges_of_cosine_distances_are_kept_to_before_the_nearest_are_chosen(
    tmp_path: Path, kind: str
) -> None:
    both = made(tmp_path / "d.lance", kind, "cosine")
    asked = {"k": 8, "nprobes": PARTITIONS, "distance_range": (1.0, None)}
    for more in ({}, {"refine_factor": 1}):
        same(both, **asked, **more)
    both[0].insert(table(20, seed=3, first=90_000))
    both = opened(tmp_path / "d.lance")
    same(both, **asked)
    assert len(rows_of(both[1], {}, {"column": "v", "q": vectors(1, 99)[0]} | asked)[0]) == 8


def test_rows_with_several_vectors(tmp_path: Path) -> None:
    path = tmp_path / "d.lance"
    flat = vectors(1500, 2)
    rows = [flat[i : i + 1 + i % 3].tolist() for i in range(0, 1400, 2)]
    column = pa.array(rows, pa.list_(pa.list_(pa.float32(), DIMENSION)))
    data = pa.table({"id": np.arange(len(rows)), "v": column})
    dataset = lance.write_dataset(data, str(path))
    dataset.create_index("v", "IVF_FLAT", metric="cosine", num_partitions=4)
    both = opened(path)
    nearest = {"column": "v", "q": vectors(3, 4), "k": 5, "nprobes": 4, "refine_factor": 5}
    (_, theirs), (ids, ours) = (rows_of(one, {}, nearest) for one in both)
    exact = rows_of(both[1], {}, nearest | {"use_index": False, "metric": "cosine"})
    assert (ours <= theirs + 1e-5).all()
    assert len(set(ids) & set(exact[0])) >= 4


def test_plans_name_index_and_partitions(tmp_path: Path) -> None:
    path = tmp_path / "d.lance"
    dataset, _ = made(path, "IVF_FLAT")
    dataset.insert(table(100, seed=3, first=90_000))
    scanner = glaive.dataset(path).scanner(
        ["id"], nearest={"column": "v", "q": vectors(1, 1)[0], "nprobes": 2}
    )
    plan = scanner.explain_plan()
    assert f"maximum_nprobes=Some(2), deltas=1, {PARTITIONS} partitions" in plan
    assert "exact search: 100 rows of 1 fragments" in plan
    assert "true distances" in plan
    assert "partitions searched: 2" in scanner.analyze_plan()


def test_partitions_are_read_once(tmp_path: Path) -> None:
    _, ours = made(tmp_path / "d.lance", "IVF_PQ")
    nearest = {"column": "v", "q": vectors(1, 1)[0], "nprobes": 2, "k": 3}
    ours.to_table(columns=["id"], nearest=nearest)
    before = ours.session().index_cache.misses
    ours.to_table(columns=["id"], nearest=nearest)
    assert ours.session().index_cache.misses == before
    assert ours.session().index_cache_size_bytes() > 0


def test_graphs_want_as_many_candidates_as_rows(tmp_path: Path) -> None:
    _, ours = made(tmp_path / "d.lance", "IVF_HNSW_SQ")
    with pytest.raises(OptionError, match="nearest: ef: expected at least 20"):
        ours.scanner(nearest={"column": "v", "q": vectors(1, 1)[0], "k": 20, "ef": 10})


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["IVF_HNSW_FLAT", "IVF_HNSW_SQ", "IVF_HNSW_PQ"])
def test_graphs_lead_to_what_is_near(tmp_path: Path, name: str, metric: str) -> None:
    path = tmp_path / "d.lance"
    dataset = lance.write_dataset(table(8000), str(path))
    dataset.create_index("v", name, metric=metric, num_partitions=1, **KINDS[name])
    ours = glaive.dataset(path)
    hits = 0
    for query in vectors(10, 6):
        nearest = {"column": "v", "q": query, "k": 10}
        by_graph = rows_of(ours, {}, nearest | {"ef": 30})
        all_rows = rows_of(ours, {}, nearest | {"ef": 8000})  # as many are compared one by one
        hits += len(set(by_graph[0]) & set(all_rows[0]))
        some = rows_of(ours, {"filter": "id % 2 = 0", "prefilter": True}, nearest)
        assert all(row % 2 == 0 for row in some[0])
        assert len(some[0]) == 10
    assert hits >= 85
    dataset.delete("id % 3 = 0")
    kept = rows_of(glaive.dataset(path), {}, {"column": "v", "q": query, "k": 10})
    assert len(kept[0]) == 10
    assert all(row % 3 for row in kept[0])


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", ["IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_SQ"])
def test_damage_is_found_or_does_no_harm(tmp_path: Path, name: str) -> None:
    path = tmp_path / "d.lance"
    made(path, name)
    random = np.random.default_rng(11)
    wrong = 0
    for file in sorted(path.glob("_indices/*/*.idx")):
        sound = file.read_bytes()
        for _ in range(10):
            damaged = bytearray(sound)
            last = len(sound) - 1
            for at in random.integers(max(0, last - 6000), last, 4).tolist():
                damaged[at] = int(random.integers(0, 256))
            file.write_bytes(damaged)
            dataset = glaive.dataset(path, session=glaive.Session())
            try:
                found = rows_of(dataset, {}, {"column": "v", "q": vectors(1, 1)[0], "k": 5})
                assert len(found[0]) <= 5
            except glaive.errors.GlaiveError as error:
                wrong += isinstance(error, CorruptFileError) and "use_index=False" in str(error)
        file.write_bytes(sound)
    assert wrong


@pytest.mark.parametrize("metric", ["l2", "dot"])
def test_few_rows_that_pass_are_searched_in_all_fragments(tmp_path: Path, metric: str) -> None:
    path = str(tmp_path / "d")
    first, second = vectors(300, 1), vectors(60, 2)
    first[5, 0] = np.inf

    def rows(start: int, found: Any) -> pa.Table:
        column = pa.FixedSizeListArray.from_arrays(pa.array(found.reshape(-1)), DIMENSION)
        numbers = range(start, start + len(found))
        return pa.table({"id": numbers, "k": [at % 7 for at in numbers], "v": column})

    glaive.write_dataset(rows(0, first), path)
    glaive.dataset(path).create_index("v", "IVF_FLAT", metric=metric, num_partitions=3)
    glaive.write_dataset(rows(1000, second), path, mode="append")
    options: dict[str, Any] = {
        "columns": ["id", "_distance"], "filter": "k < 3 or id = 5", "prefilter": True,
        "nearest": {"column": "v", "q": second[2], "k": 20, "nprobes": 3},
    }  # fmt: skip
    mine, theirs = (one.dataset(path).to_table(**options) for one in (glaive, lance))
    assert any(number >= 1000 for number in mine["id"].to_pylist())
    assert 5 not in mine["id"].to_pylist()
    assert set(mine["id"].to_pylist()) == set(theirs["id"].to_pylist())
    np.testing.assert_allclose(mine["_distance"], theirs["_distance"], rtol=1e-3)
