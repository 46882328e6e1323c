"""Hugging Face's datasets are written with their types, and read and streamed by it."""

from __future__ import annotations

import sys

import glaive.compat

glaive.compat.install()

import datasets  # noqa: E402  # after the alias
import pyarrow as pa  # noqa: E402  # after the alias
import pytest  # noqa: E402  # after the alias


def main(folder: str) -> None:
    """Load, stream, write."""
    place = f"{folder}/made.lance"
    rows = pa.table(
        {"id": pa.array(range(100), pa.int32()), "name": [f"n{at}" for at in range(100)]}
    )
    glaive.write_dataset(rows, place, max_rows_per_file=30)
    cache = f"{folder}/cache"
    loaded = datasets.load_dataset(place, split="train", cache_dir=cache)
    assert loaded.num_rows == 100
    assert loaded.features["id"].dtype == "int32"
    streamed = datasets.load_dataset(place, split="train", streaming=True, cache_dir=cache)
    assert [row["id"] for row in streamed.take(3)] == [0, 1, 2]

    features = datasets.Features(
        id=datasets.Value("int32"), v=datasets.Sequence(datasets.Value("float32"), length=3)
    )
    made = datasets.Dataset.from_dict({"id": [1, 2], "v": [[1, 2, 3], [4, 5, 6]]}, features)
    written = glaive.write_dataset(made, f"{folder}/written.lance")
    assert written.schema.field("id").type == pa.int32()
    assert written.schema.field("v").type == pa.list_(pa.float32(), 3)
    assert b"huggingface" in (written.schema.metadata or {})
    with pytest.raises(glaive.errors.GlaiveError, match="train"):
        glaive.write_dataset(datasets.DatasetDict(train=made), f"{folder}/none.lance")


if __name__ == "__main__":
    main(sys.argv[1])
