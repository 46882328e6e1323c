"""Daft reads and writes datasets of glaive."""

from __future__ import annotations

import sys

import glaive.compat

glaive.compat.install()

import daft  # noqa: E402  # after the alias
import pyarrow as pa  # noqa: E402  # after the alias


def main(folder: str) -> None:
    """Read, filter, limit, count, write, append."""
    place = f"{folder}/made.lance"
    rows = pa.table({"id": range(100), "name": [f"n{at}" for at in range(100)]})
    glaive.write_dataset(rows, place, max_rows_per_file=30)
    frame = daft.read_lance(place)
    assert frame.count_rows() == 100
    few = frame.where(daft.col("id") < 5).select("name").to_pydict()
    assert sorted(few["name"]) == [f"n{at}" for at in range(5)]
    assert len(frame.limit(7).to_pydict()["id"]) == 7

    frame.write_lance(f"{folder}/copied.lance", mode="create")
    frame.write_lance(f"{folder}/copied.lance", mode="append")
    assert glaive.dataset(f"{folder}/copied.lance").count_rows() == 200
    frame.limit(3).write_lance(f"{folder}/copied.lance", mode="overwrite")
    assert glaive.dataset(f"{folder}/copied.lance").count_rows() == 3


if __name__ == "__main__":
    main(sys.argv[1])
