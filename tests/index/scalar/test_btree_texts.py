"""Texts and other bytes that a BTREE finds are those that a scan finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive

_WORDS = ["", "a", "a\0", "aa", "ab", "b", "grün", "grünes", "z", "日本", "日本語", "zz" * 40]


def _table(kind: Any) -> pa.Table:
    """Words between many others, most of them several times, and nulls."""
    words: list[str | None] = [*_WORDS * 3, *(f"word {at // 2:05d}" for at in range(9_000))]
    words += [None] * 5
    order = np.random.default_rng(7).permutation(len(words))
    texts = pa.array([words[at] for at in order.tolist()]).cast(kind)
    return pa.table({"t": texts, "id": np.arange(len(words))})


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()])
def test_texts_are_found_as_by_a_scan(tmp_path: Path, kind: Any) -> None:
    dataset = glaive.write_dataset(_table(kind), tmp_path / "d")
    dataset.create_scalar_index("t", "BTREE")
    is_text = kind in (pa.string(), pa.large_string())

    def literal(word: str) -> str:
        return f"'{word}'" if is_text else f"X'{word.encode().hex()}'"

    asked = [*_WORDS, "absent", "word 00000", "word 04499", "word 04500", "word 0001"]
    filters = [f"t = {literal(word)}" for word in asked]
    filters += [
        f"t IN ({literal(word)}, {literal('word 00123')}, {literal('zzz')})" for word in asked
    ]
    filters += [f"t >= {literal(low)} AND t < {literal('word 00200')}" for low in asked[-4:]]
    filters += [f"t > {literal('word 04480')} AND t <= {literal(high)}" for high in asked[-4:]]
    found = 0
    for _ in range(2):  # once all pages were read, they are searched as one
        for one in filters:
            rows = dataset.to_table(["id"], one, use_scalar_index=True)["id"].to_pylist()
            scanned = dataset.to_table(["id"], one, use_scalar_index=False)["id"].to_pylist()
            assert sorted(rows) == sorted(scanned), one
            found += len(rows)
    assert found > 1_000
    assert "ScalarIndexQuery" in dataset.scanner(["id"], filters[0]).explain_plan()
