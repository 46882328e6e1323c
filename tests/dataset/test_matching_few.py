"""Rows with a key of the source: the quick way finds what looking each row up finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from glaive.dataset.merging.matching import SourceKeys

KINDS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]


def check(source: list[pa.Array], target: list[pa.Array]) -> None:
    keys = SourceKeys([f"k{at}" for at in range(len(source))], source)
    wanted = keys.find(target)
    hits, rows = keys.matches(target)
    assert hits.tolist() == np.flatnonzero(wanted >= 0).tolist()
    assert rows.tolist() == wanted[wanted >= 0].tolist()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_whole_numbers_at_all_ends_of_their_type(kind: pa.DataType) -> None:
    rng = np.random.default_rng(3)
    limits = np.iinfo(kind.to_pandas_dtype())
    ends = [limits.min, limits.min + 1, limits.max - 1, limits.max]
    around = rng.integers(0, 100, 50, limits.dtype)
    target: Any = pa.array(np.concatenate([np.array(ends, limits.dtype), around]), kind)
    for some in ([*ends[:2]], [*ends[2:]], list(range(20, 60)), [5, 5, None]):
        check([pa.array(some, kind)], [target])
        nulls = pa.array([*target.to_pylist()[:-1], None], kind)
        check([pa.array(some, kind)], [nulls])


def test_texts_and_keys_of_two_columns() -> None:
    numbers, texts = pa.array([1, 2, 2, None]), pa.array(["a", "b", "c", "d"])
    check([texts], [pa.array(["c", None, "x", "a"])])
    check([numbers, texts], [pa.array([2, 2, None, 1]), pa.array(["c", "x", "d", "a"])])
