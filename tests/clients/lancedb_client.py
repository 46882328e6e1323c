"""Tables of LanceDB and of glaive: what one writes, the other reads, appends to and searches.

LanceDB has a library of its own; it is given datasets of glaive where it takes pylance's.
"""

from __future__ import annotations

import sys

import glaive.compat

glaive.compat.install()

import lancedb  # noqa: E402  # after the alias
import numpy as np  # noqa: E402  # after the alias
import pyarrow as pa  # noqa: E402  # after the alias

ROWS = 600


def rows(first: int, count: int) -> pa.Table:
    vectors = np.random.default_rng(first).random(count * 8, dtype=np.float32)
    return pa.table(
        {
            "id": range(first, first + count),
            "text": [f"word{at % 7} of a text" for at in range(first, first + count)],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors), 8),
        }
    )


def main(folder: str) -> None:
    """A table of each, with indices, changed and searched by the other."""
    base = lancedb.connect(folder)
    table = base.create_table("theirs", rows(0, ROWS))
    table.create_scalar_index("id", index_type="BTREE")
    table.create_fts_index("text")
    table.create_index(metric="l2", num_partitions=2, num_sub_vectors=2)
    mine = glaive.dataset(f"{folder}/theirs.lance")
    assert {one.index_type for one in mine.describe_indices()} == {"BTree", "Inverted", "IVF_PQ"}
    mine.insert(rows(ROWS, 50))
    mine.delete("id = 3")
    mine.optimize.optimize_indices()
    table.checkout_latest()
    assert table.count_rows() == ROWS + 49
    assert len(table.search().where("id between 595 and 604").to_list()) == 10
    assert len(table.search("word3", query_type="fts").limit(1000).to_list()) == 92

    query = rows(ROWS, 50)["vector"][7].as_py()
    nearest = {"column": "vector", "q": query, "k": 1, "refine_factor": 20, "nprobes": 2}
    found = glaive.dataset(mine.uri).to_table(columns=["id"], nearest=nearest)
    theirs = table.search(query).limit(1).refine_factor(20).nprobes(2).to_list()
    assert found["id"].to_pylist() == [ROWS + 7] == [one["id"] for one in theirs]

    glaive.write_dataset(rows(0, ROWS), f"{folder}/mine.lance")
    made = base.open_table("mine")
    made.add(glaive.dataset(f"{folder}/theirs.lance").to_table(limit=5))
    assert glaive.dataset(f"{folder}/mine.lance").count_rows() == ROWS + 5
    copied = base.create_table("copied", glaive.dataset(f"{folder}/mine.lance"))
    assert copied.count_rows() == ROWS + 5
    assert table.to_lance().count_rows() == ROWS + 49


if __name__ == "__main__":
    main(sys.argv[1])
