"""Trigram indices: built, merged, searched; words that a pattern requires."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.counted_calls import counted_calls

import glaive
from glaive.arrow.conditions import HasText, IsNull, IsOneOf
from glaive.errors import IndexKindError
from glaive.index.protocol import MatchesPattern
from glaive.index.scalar.ngram import required_words

from .built import answers, build, merge, opened, segments
from .test_btree import write

WORDS = ["alpha", "Beta", "gamma42", "delta é", "ÉCOLE", "x", "", "ße", "日本", "bet0"]


def texts(count: int, seed: int) -> pa.Array:
    random = np.random.default_rng(seed)
    return pa.array(
        [
            None if at % 11 == 5 else " ".join(random.choice(WORDS, at % 5).tolist())
            for at in range(count)
        ]
    )


@pytest.mark.sampled(every=2)
@pytest.mark.spec("ngram-1")
@pytest.mark.parametrize("memory_limit", [1, 1 << 30])
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
def test_no_row_with_a_word_is_missed(tmp_path: Path, memory_limit: int, stable: bool) -> None:
    path = write(tmp_path / "d", [texts(500, seed) for seed in range(3)], stable=stable)
    build(path, "x", "ngram", fragments=[0, 1], memory_limit=memory_limit)
    for merged in (False, True):
        if merged:
            merge(path, "x", "ngram", new=[2])
        covered = 1500 if merged else 1000
        table = glaive.dataset(str(path)).to_table(with_row_id=True)[:covered]
        for word in ("alpha", "bet", "ÉCOLE", "mma4", "a B", "nothing"):
            query = HasText(word=word)
            if not all(one.answers(query) for one in opened(path)):
                assert word == "a B"
                continue
            found = answers(path, query, nulls=True)
            mask = np.asarray(query.mask(table["x"].combine_chunks()))
            wanted = np.asarray(table["_rowid"])[mask]
            assert set(wanted.tolist()) <= set(found.rows.rows().tolist())
            assert found.rows.count < 1200
            assert not found.exact
            assert found.nulls is not None
            nulls = np.asarray(table["_rowid"].filter(table["x"].is_null()))
            assert found.nulls.rows().tolist() == nulls.tolist()
            assert not any(one.answers(IsNull()) for one in opened(path))
    assert len(segments(path)) == 1


def test_patterns_are_looked_up_by_their_trigrams(tmp_path: Path) -> None:
    values = pa.array(["alpha", "beta", "alphabet", "gamma", None])
    path = write(tmp_path / "d", [values])
    build(path, "x", "ngram")
    for pattern, wanted in (("alpha.*bet", [2]), ("^gam+a$", [3]), ("alpha", [0, 2])):
        assert answers(path, MatchesPattern(pattern)).rows.rows().tolist() == wanted
    (one,) = opened(path)
    for query in (MatchesPattern("a|b"), IsOneOf(pa.array(["alpha"])), IsNull(negated=True)):
        assert not one.answers(query)


def test_only_texts_have_trigrams(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [pa.array([1])])
    with pytest.raises(IndexKindError, match="column 'x' of type int64 cannot have a NGR"):
        build(path, "x", "ngram")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("hello", ["hello"]),
        ("hello.*world", ["hello", "world"]),
        ("^abc$", ["abc"]),
        ("abc?d", ["ab", "d"]),
        ("abc+d", ["abc", "d"]),
        ("abc{0,3}d", ["ab", "d"]),
        (r"a\.b\d\dcd", ["a.b", "cd"]),
        ("x[abc]yz[^]]w", ["x", "yz", "w"]),
        ("abc+*d", ["ab", "d"]),
        ("abc+?d", ["abc", "d"]),
        (r"\<abc", []),
        ("abc|def", []),
        ("a(bc)", []),
        ("(?i)abc", []),
        (r"\x41bc", []),
        ("a{", []),
        (r"\Qabc\E", []),
        ("[[:alpha:]]abc", []),
        ("", []),
    ],
)
def test_words_are_those_that_a_match_must_have(pattern: str, words: list[str]) -> None:
    assert required_words(pattern) == words


@pytest.mark.parametrize("pattern", ["ab*c", "ab+?c", "a.b", "[ab]c", "abc", "a{2}b", "^a$"])
@pytest.mark.parametrize("text", ["ac", "abbbc", "axb", "bc", "abc", "aab", "a"])
def test_texts_that_match_have_the_words(pattern: str, text: str) -> None:
    has_all = all(word in text for word in required_words(pattern))
    assert has_all or not re.search(pattern, text)


@pytest.mark.spec("rel-25")
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
def test_a_merge_makes_a_few_calls_for_each_trigram(tmp_path: Path, stable: bool) -> None:
    """Only sets with rows that are dropped change; these rows are looked for in all at once."""
    trigrams = ["".join(one) for one in product("abcdefghijklmnopqrst", repeat=3)]
    rows = pa.table({"x": trigrams * 2})
    path = tmp_path / "d"
    dataset = glaive.write_dataset(
        rows, path, max_rows_per_file=9_000, enable_stable_row_ids=stable
    )
    dataset.create_scalar_index("x", "NGRAM")
    dataset.delete("x LIKE 'ab%' OR x = 'qrs'")
    dataset = glaive.write_dataset(rows.slice(0, 100), path, mode="append")
    with counted_calls() as calls:
        dataset.optimize.optimize_indices(num_indices_to_merge=1)
    assert calls.total() < 60 * len(trigrams)  # 90 where each row was looked up
    found = answers(path, HasText(word="abc"), nulls=True)
    table = glaive.dataset(path).to_table(with_row_id=True)
    assert (
        found.rows.rows().tolist()
        == table.filter(pc.match_substring(table["x"], "abc"))["_rowid"].to_pylist()
    )
    assert dataset.scanner(filter="contains(x, 'qrt')").count_rows() == 2
