"""Columns that get unusual planes in format 2.3, and which planes a file has."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.file.v2.container import Container
from glaive.io.local import LocalStore
from glaive.types import Where

__all__ = ["large_items", "layouts_of", "nested", "planes_of", "sparse_lists"]


@cache
def large_items() -> dict[str, pa.Array]:
    """Columns of long or repeated values."""
    rng = np.random.default_rng(0)
    few = np.repeat(rng.normal(size=(5, 4)).astype("f4"), 100, axis=0)
    wide = [bytes(rng.integers(0, 256, 300, np.uint8)) for _ in range(100)]
    return {
        "large dictionary": pa.array(
            [f"{i % 20:02d}" * 4500 if i % 7 else None for i in range(400)]
        ),
        "large items": pa.array(
            [wide[i % 40] * 4 if i % 7 else None for i in range(700)]
        ).dictionary_encode(),
        "repeated vectors": pa.FixedSizeListArray.from_arrays(pa.array(few.reshape(-1)), 4),
        "equally long": pa.array([f"{i:08d}" for i in range(3000)]),
        "all empty": pa.array([""] * 200 + [None] * 100),
        "long text": pa.array([f"x{i}" * 100 if i % 3 else None for i in range(600)]),
        "very long text": pa.array(["y" * 40_000 + str(i) for i in range(20)] + [None]),
        "wide binary": pa.array([one if i % 3 else None for i, one in enumerate(wide)]).cast(
            pa.binary(300)
        ),
        "long runs": pa.array(np.repeat(np.arange(20), 500)),
        "short runs": pa.array(np.repeat(rng.integers(0, 1 << 20, 2000), 5).astype("i4")),
        "runs of nulls": pa.array([None if i // 500 % 2 else i // 500 for i in range(9000)]),
        "one number": pa.array([7] * 300),
        "one number or null": pa.array([7 if i % 3 else None for i in range(300)]),
        "all null": pa.nulls(100, pa.int16()),
    }


@cache
def sparse_lists() -> dict[str, pa.Array]:
    """Lists of which few have items, or none."""
    rows = range(90_000)
    texts = [["ab" * 200] * (i % 3) if i % 4 else None for i in range(300)]
    return {
        "mostly null": pa.array([[1, i] if i % 3000 == 5 else None for i in rows]),
        "mostly empty": pa.array([[1, i] if i % 3000 == 5 else [] for i in rows]),
        "one value": pa.array([[1] if i % 3000 == 5 else None for i in rows]),
        "nothing": pa.array([[] if i % 3 else None for i in range(5000)], pa.list_(pa.int32())),
        "only nulls inside": pa.array([[None] * (i % 3) for i in range(500)], pa.list_(pa.int8())),
        "lists of long text": pa.array(texts),
        "every third": pa.array([[i] if i % 3 == 0 else [] for i in range(5000)]),
    }


@cache
def nested() -> dict[str, pa.Array]:
    """Fixed-size lists of structs, maps, dictionaries."""
    rng = np.random.default_rng(2)
    count = 300
    wide = [None if i % 5 == 0 else bytes(rng.integers(0, 256, 280, np.uint8)) for i in range(1200)]
    inner = pa.StructArray.from_arrays(
        [
            pa.array([None if i % 7 == 0 else i for i in range(1200)], pa.int32()),
            pa.array(wide, pa.binary()),
        ],
        names=["x", "y"],
        mask=pa.array([i % 6 == 0 for i in range(1200)]),
    )
    pairs = pa.FixedSizeListArray.from_arrays(
        inner, 2, mask=pa.array([i % 4 == 0 for i in range(600)])
    )
    outer = pa.StructArray.from_arrays([pairs], names=["pairs"])
    maps = [
        None if i % 6 == 0 else [(f"k{j}", j if j % 2 else None) for j in range(i % 4)]
        for i in range(count)
    ]
    return {
        "fixed lists": pairs,
        "fixed lists of one": pa.FixedSizeListArray.from_arrays(inner.slice(0, count), 1),
        "fixed lists of fixed lists": pa.FixedSizeListArray.from_arrays(
            outer, 2, mask=pa.array([i % 9 == 2 for i in range(count)])
        ),
        "maps": pa.array(maps, pa.map_(pa.string(), pa.int64())),
        "dictionary": pa.array(
            [None if i % 9 == 0 else f"v{i % 5}" for i in range(count)]
        ).dictionary_encode(),
    }


def layouts_of(path: Path) -> list[Any]:
    """The layout messages of all pages."""
    container = Container(LocalStore(str(path.parent)).open(path.name))
    return [
        container.page_layout(page.encoding, Where(str(path)))
        for column in range(container.footer.columns)
        for page in container.column(column).pages
    ]


def planes_of(path: Path) -> set[tuple[str, str]]:
    """The pairs of structure and values in a 2.3 file."""
    return {
        (layout.structure.WhichOneof("structure"), layout.values.WhichOneof("values"))
        for layout in layouts_of(path)
    }
