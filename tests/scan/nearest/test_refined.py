"""True distances of what an index found: measured in mapped files, or of vectors that are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.io.local import LocalStore
from glaive.kernels.distances import Queries
from glaive.scan.metrics import Meter
from glaive.scan.nearest.rescore import rescore
from glaive.scan.nearest.top import Found
from glaive.scan.nearest.vector_query import VectorQuery
from glaive.scan.nearest.vectors import vector_type
from glaive.scan.session import Session
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import Views

DIMENSION = 64


def written(path: Path, dtype: Any, *, with_nulls: bool = False, fragments: int = 2) -> Any:
    """Fragments of vectors."""
    random = np.random.default_rng(4)
    for part in range(fragments):
        vectors = random.standard_normal((300, DIMENSION)).astype(dtype)
        validity = np.arange(300) % 7 != 0 if with_nulls else np.ones(300, np.bool_)
        flat = pa.array(vectors.reshape(-1))
        lists = pa.FixedSizeListArray.from_arrays(flat, DIMENSION, mask=pa.array(~validity))
        table = pa.table({"id": np.arange(300) + 300 * part, "v": lists})
        glaive.write_dataset(table, path, mode="append")
    return glaive.dataset(str(path))


@pytest.mark.parametrize(
    ("dtype", "with_nulls", "metric", "fragments"),
    [
        (np.float32, False, "l2", 2),
        (np.float32, False, "cosine", 2),
        (np.float16, False, "dot", 2),
        (np.float32, True, "l2", 2),
        (np.float32, False, "l2", 1),
        (np.float32, True, "l2", 1),
    ],
)
def test_every_search_has_the_distances_of_an_exact_one(
    tmp_path: Path, dtype: Any, with_nulls: bool, metric: str, fragments: int
) -> None:
    dataset = written(tmp_path / "v.lance", dtype, with_nulls=with_nulls, fragments=fragments)
    queries = np.random.default_rng(5).standard_normal((4, DIMENSION)).astype(np.float32)
    dataset.create_index("v", "IVF_SQ", metric=metric, num_partitions=2)
    for query in (*queries, queries[:2]):
        asked = {"column": "v", "q": query, "k": 5, "metric": metric}
        exact = dataset.to_table(["id"], nearest={**asked, "use_index": False})
        # The first ones take vectors; later ones have the pages of all fragments at hand.
        for _ in range(3):
            found = dataset.to_table(["id"], nearest={**asked, "refine_factor": 20, "nprobes": 2})
            assert found["id"].to_pylist() == exact["id"].to_pylist()
            np.testing.assert_allclose(found["_distance"], exact["_distance"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("with_nulls", [False, True])
def test_vectors_that_lie_plain_in_mapped_files_are_not_taken(
    tmp_path: Path, *, with_nulls: bool
) -> None:
    dataset = written(tmp_path / "v.lance", np.float32, with_nulls=with_nulls)
    rows = np.arange(1, 300, 7)
    fragment = np.arange(len(rows)) % 2
    queries = Queries(np.random.default_rng(5).standard_normal((2, DIMENSION)).astype(np.float32))
    query = VectorQuery(vector_type(dataset.schema.field("v"), "v"), queries, "l2", len(rows))
    number = (np.arange(len(rows)) % 3 == 0).astype(np.int32)
    far = np.zeros(len(rows), np.float32)
    found = Found(number, far, np.arange(len(rows), dtype=np.uint64), fragment, rows)
    source = Views(Snapshot(LocalStore(dataset.uri), dataset.manifest, Session())).scan(("v",))

    taken = []
    for _ in range(2):  # the first one joins the fragments
        meter, top = Meter(), query.top()
        rescore(source, query, found, top, meter)
        taken.append(meter.counts["fragments_taken_joined"])
        vectors = dataset.take(fragment * 300 + rows, ["v"])["v"].combine_chunks()
        matrix = vectors.flatten().to_numpy().reshape(-1, DIMENSION)
        true = np.square(matrix - queries.matrix[number]).sum(axis=1)
        best = top.result()
        np.testing.assert_allclose(best.distance, true[best.key.astype(np.int64)], rtol=1e-4)
        assert len(best.key) == len(rows)

    assert taken == [2, 2 if with_nulls else 0]
