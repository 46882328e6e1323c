"""Segments that several workers build: built, merged and committed by either library, for both."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive

lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

LIBRARIES: dict[str, Any] = {"glaive": glaive, "pylance": lance}
ROWS, DIMENSION = 600, 16
CENTERS = np.random.default_rng(1).standard_normal((4, DIMENSION)).astype(np.float32)
CODEBOOK = np.random.default_rng(2).standard_normal((4, 256, 4)).astype(np.float32)
COLUMNS = {
    "BTREE": "x",
    "BITMAP": "x",
    "LABEL_LIST": "tags",
    "ZONEMAP": "x",
    "BLOOMFILTER": "x",
    "NGRAM": "text",
    "INVERTED": "text",
}
FILTERS = {
    "x": ["x = 7", "x between 10 and 12", "x is null", "x = 5000"],
    "tags": ["array_has_any(tags, ['t1'])", "array_has_all(tags, ['t1', 't2'])"],
    "text": ["contains(text, 'word 1')", "contains(text, 'absent')"],
}
SHARED: dict[str, dict[str, Any]] = {
    kind: {"num_partitions": 4, "ivf_centroids": CENTERS}
    for kind in (
        "IVF_FLAT",
        "IVF_SQ",
        "IVF_PQ",
        "IVF_RQ",
        "IVF_HNSW_FLAT",
        "IVF_HNSW_SQ",
        "IVF_HNSW_PQ",
    )
}
for _kind, _given in SHARED.items():
    if "PQ" in _kind:
        _given |= {"num_sub_vectors": 4, "pq_codebook": CODEBOOK}
MODEL = lance.lance.indices.build_rq_model(DIMENSION, 1)
SHARED["IVF_RQ"] |= {"rabitq_model": MODEL, "num_bits": 1}


def rows() -> pa.Table:
    random = np.random.default_rng(3)
    near = CENTERS[np.arange(ROWS) % 4] + random.standard_normal((ROWS, DIMENSION)) * 0.3
    # The second half is wider, so that bounds of segments differ.
    near[ROWS // 2 :] *= 3
    flat = pa.array(near.astype(np.float32).ravel())
    numbers = range(ROWS)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "x": [None if at % 9 == 0 else at // 3 for at in numbers],
            "tags": [[f"t{at % 5}", f"t{at % 7}"] for at in numbers],
            "text": [f"word {at % 13} of {at}" for at in numbers],
            "v": pa.FixedSizeListArray.from_arrays(flat, DIMENSION),
        }
    )


def built(path: str, kind: str, builders: tuple[str, ...], merger: str, committer: str) -> None:
    column = COLUMNS.get(kind, "v")
    segments = []
    for at, builder in enumerate(builders):
        segments.append(
            LIBRARIES[builder]
            .dataset(path)
            .create_index_uncommitted(
                column, kind, name="i", fragment_ids=[at], **SHARED.get(kind, {})
            )
        )
    if merger != "nobody":
        library = LIBRARIES[merger]
        merged = library.dataset(path).merge_existing_index_segments(segments)
        segments = [merged]
    library = LIBRARIES[committer]
    library.dataset(path).commit_existing_index_segments("i", column, segments)


CASES = [
    (kind, builders, merger, committer)
    for kind, builders, merger, committer in product(
        [*COLUMNS, *SHARED],
        [("glaive", "glaive"), ("pylance", "pylance"), ("glaive", "pylance")],
        ["nobody", "glaive", "pylance"],
        LIBRARIES,
    )
]


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize(
    ("kind", "builders", "merger", "committer"),
    CASES,
    ids=lambda one: "-".join([one] if isinstance(one, str) else one),
)
def test_segments_of_workers_are_found(
    tmp_path: Path, kind: str, builders: tuple[str, ...], merger: str, committer: str
) -> None:
    path = str(tmp_path / "d")
    table = rows()
    glaive.write_dataset(table, path, max_rows_per_file=ROWS // 2)
    built(path, kind, builders, merger, committer)
    (index,) = glaive.dataset(path).describe_indices()
    covered = [sorted(one.fragment_ids) for one in index.segments]
    assert sorted(covered) == ([[0], [1]] if merger == "nobody" else [[0, 1]])
    for library in LIBRARIES.values():
        dataset = library.dataset(path)
        if kind in SHARED:
            check_nearest(dataset, table, refine_factor=10)
            if "SQ" in kind and merger == "glaive":  # else codes are within bounds of a half
                check_nearest(dataset, table)
        elif kind == "INVERTED":
            found = dataset.to_table(["id"], full_text_query="1", limit=ROWS)["id"].to_pylist()
            wanted = [at for at in range(ROWS) if at % 13 == 1 or at == 1]
            assert sorted(found) == wanted
        else:
            for text in FILTERS[COLUMNS[kind]]:
                plain = glaive.dataset(path).to_table(["id"], text, use_scalar_index=False)
                found = dataset.to_table(["id"], text)["id"].to_pylist()
                assert sorted(found) == plain["id"].to_pylist(), text


def check_nearest(dataset: Any, table: pa.Table, **options: Any) -> None:
    vectors = np.stack(table["v"].to_numpy(zero_copy_only=False))
    for at in (5, ROWS - 7):
        nearest = {"column": "v", "q": vectors[at], "k": 20, "nprobes": 4, **options}
        found = set(dataset.to_table(["id"], nearest=nearest)["id"].to_pylist())
        exact = np.argsort(((vectors - vectors[at]) ** 2).sum(axis=1), kind="stable")[:20]
        assert len(found & set(exact.tolist())) >= 17


def test_a_commit_of_parts_that_ended_in_a_conflict_is_repeated(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    lance.write_dataset(rows(), path, max_rows_per_file=ROWS // 2)
    mine = glaive.dataset(path)
    parts = [
        lance.dataset(path).create_index_uncommitted(
            "text", "INVERTED", name="i", fragment_ids=[at]
        )
        for at in (0, 1)
    ]
    lance.dataset(path).create_scalar_index("x", "BTREE", name="i")
    for _ in range(2):
        with pytest.raises((glaive.errors.CommitConflictError, glaive.errors.IndexExistsError)):
            mine.commit_existing_index_segments("i", "text", parts)
    mine.commit_existing_index_segments("texts", "text", parts)
    for library in LIBRARIES.values():
        found = library.dataset(path).to_table(["id"], full_text_query="12", limit=ROWS)
        assert len(found) == sum(at % 13 == 12 or at == 12 for at in range(ROWS))


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("last", ["compaction", "optimize"])
@pytest.mark.parametrize("kind", [*COLUMNS, "IVF_FLAT", "IVF_HNSW_SQ"])
def test_indices_are_optimised_beside_a_compaction_that_defers_them(
    tmp_path: Path, kind: str, last: str
) -> None:
    path, table, column = str(tmp_path / "d"), rows(), COLUMNS.get(kind, "v")
    glaive.write_dataset(table.slice(0, 450), path, max_rows_per_file=150)
    glaive.dataset(path).delete("id % 10 = 3")
    glaive.dataset(path).create_index(column, kind, name="i", **SHARED.get(kind, {}))
    glaive.write_dataset(table.slice(450), path, mode="append")
    handles = [glaive.dataset(path), glaive.dataset(path)]
    changes: list[Any] = [
        lambda one: one.optimize.optimize_indices(num_indices_to_merge=9),
        lambda one: one.optimize.compact_files(defer_index_remap=True),
    ]
    for handle, change in zip(
        handles, changes if last == "compaction" else changes[::-1], strict=True
    ):
        change(handle)
    for again in (False, True):
        if again:
            glaive.dataset(path).optimize.optimize_indices(num_indices_to_merge=9)
        live = glaive.dataset(path).to_table(["id"])["id"].to_pylist()
        for library in LIBRARIES.values():
            dataset = library.dataset(path)
            if kind in SHARED:
                nearest = {"column": "v", "q": table["v"][5].values, "k": 5, "nprobes": 4}
                found = dataset.to_table(["id"], nearest=nearest)["id"].to_pylist()
                assert 5 in found
                assert set(found) <= set(live)
            elif kind == "INVERTED":
                found = dataset.to_table(["id"], full_text_query="1", limit=ROWS)["id"].to_pylist()
                assert sorted(found) == sorted(at for at in live if at is not None and at % 13 == 1)
            else:
                for text in FILTERS[column]:
                    plain = glaive.dataset(path).to_table(["id"], text, use_scalar_index=False)
                    found = dataset.to_table(["id"], text)["id"].to_pylist()
                    assert sorted(found) == sorted(plain["id"].to_pylist()), text
