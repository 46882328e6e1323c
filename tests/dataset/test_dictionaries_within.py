"""Texts with a dictionary, within structs and lists and on both sides of a merge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive

WORD = pa.dictionary(pa.int8(), pa.string())
PAIR = pa.struct([("word", WORD), ("n", pa.int64())])
WORDS = ["ape", "bear", None, "cat"]


def words(kind: Any) -> Any:
    return pa.array(WORDS, pa.string()).dictionary_encode().cast(kind)


def rows() -> pa.Table:
    pairs: Any = pa.StructArray.from_arrays([words(WORD), pa.array(range(4))], fields=list(PAIR))
    ends: Any = pa.array(range(5), pa.int32())
    return pa.table(
        {
            "id": range(4),
            "word": words(WORD),
            "pair": pairs,
            "pairs": pa.ListArray.from_arrays(ends, pairs),
            "words": pa.ListArray.from_arrays(ends, words(WORD)),
        }
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pairs[1].word LIKE 'b%'", [1]),
        ("upper(pairs[1].word) = 'CAT'", [3]),
        ("pairs[1].word IN ('ape', 'cat')", [0, 3]),
        ("pair.word IN ('ape', 'cat')", [0, 3]),
        ("words[1] LIKE 'b%'", [1]),
        ("words[1] IN ('ape', 'cat')", [0, 3]),
        ("array_has_any(words, ['ape', 'bear'])", [0, 1]),
        ("array_has_any(words, [NULL, 'ape'])", [0, 2]),
    ],
)
def test_filters_see_the_texts_of_members_and_items(
    tmp_path: Path, text: str, found: list[int]
) -> None:
    made = glaive.write_dataset(rows(), tmp_path / "t")
    assert made.to_table(["id"], text)["id"].to_pylist() == found


@pytest.mark.parametrize(
    ("condition", "updated"),
    [
        ("source.word IN ('ape', 'cat')", 2),
        ("target.word LIKE 'b%'", 1),
        ("source.word = target.word", 3),
        ("upper(target.pair.word) = 'APE'", 1),
    ],
)
def test_conditions_of_merges_see_the_texts(tmp_path: Path, condition: str, updated: int) -> None:
    made = glaive.write_dataset(rows(), tmp_path / "t")
    merge = made.merge_insert("id").when_matched_update_all(condition)
    assert merge.execute(rows())["num_updated_rows"] == updated
