"""True distances of what an index found: measured in mapped files, or of vectors that are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive

DIMENSION = 64


def written(path: Path, dtype: Any, *, with_nulls: bool = False) -> Any:
    """Two fragments of vectors."""
    random = np.random.default_rng(4)
    for part in range(2):
        vectors = random.standard_normal((300, DIMENSION)).astype(dtype)
        validity = np.arange(300) % 7 != 0 if with_nulls else np.ones(300, np.bool_)
        flat = pa.array(vectors.reshape(-1))
        lists = pa.FixedSizeListArray.from_arrays(flat, DIMENSION, mask=pa.array(~validity))
        table = pa.table({"id": np.arange(300) + 300 * part, "v": lists})
        glaive.write_dataset(table, path, mode="append")
    return glaive.dataset(str(path))


@pytest.mark.parametrize(
    ("dtype", "with_nulls", "metric"),
    [
        (np.float32, False, "l2"),
        (np.float32, False, "cosine"),
        (np.float16, False, "dot"),
        (np.float32, True, "l2"),
    ],
)
def test_every_search_has_the_distances_of_an_exact_one(
    tmp_path: Path, dtype: Any, with_nulls: bool, metric: str
) -> None:
    dataset = written(tmp_path / "v.lance", dtype, with_nulls=with_nulls)
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
