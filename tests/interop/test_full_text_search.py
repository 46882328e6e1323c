"""Full-text search finds the rows that pylance finds, with its scores, whatever their history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import glaive.query as our_queries
import numpy as np
import pyarrow as pa
import pytest

import glaive

lance = pytest.importorskip("lance", reason="install the 'interop' group")
their_queries = pytest.importorskip("lance.query")

pytestmark = pytest.mark.interop

INDEX: dict[str, Any] = {"stem": False, "remove_stop_words": False, "with_position": True}
FORMATS: dict[str, dict[str, Any]] = {
    "version-1": {"format_version": 1, "with_position": False},
    "version-2": {},
    "blocks-of-256": {"block_size": 256},
    "stems": {"stem": True, "remove_stop_words": True},
}

Query = Callable[[Any], Any]
"""A query, given the module with the classes of queries."""

MATCHES: dict[str, Query] = {
    "one word": lambda _: "w3",
    "a rare word": lambda _: "w280",
    "three words": lambda _: "w1 w7 w90",
    "a word twice": lambda _: "w4 w4 w9",
    "no such word": lambda _: "nothing",
    "no word": lambda _: "",
    "a column": lambda _: {"query": "w2 w3", "columns": ["text"]},
    "all words": lambda q: q.MatchQuery("w1 w2 w5", "text", operator=q.FullTextOperator.AND),
    "boosted": lambda q: q.MatchQuery("w8 w6", "text", boost=2.5),
    "fuzzy": lambda q: q.MatchQuery("w11", "text", fuzziness=1, max_expansions=200),
    "fuzzy, few": lambda q: q.MatchQuery("w11 w23", "text", fuzziness=1, max_expansions=7),
    "fuzzy, all": lambda q: q.MatchQuery(
        "w1 w23", "text", fuzziness=1, prefix_length=2, operator=q.FullTextOperator.AND
    ),
    "both": lambda q: q.MatchQuery("w1", "text") & q.MatchQuery("w2", "text"),
    "either": lambda q: q.MatchQuery("w30 w31", "text") | q.MatchQuery("w40", "text"),
    "not": lambda q: q.BooleanQuery(
        [
            (q.Occur.MUST, q.MatchQuery("w2 w3", "text")),
            (q.Occur.SHOULD, q.MatchQuery("w9", "text")),
            (q.Occur.MUST_NOT, q.MatchQuery("w1", "text")),
        ]
    ),
    "rather not": lambda q: q.BoostQuery(
        q.MatchQuery("w5", "text"), q.MatchQuery("w1 w2", "text"), negative_boost=0.3
    ),
    "several columns": lambda q: q.MultiMatchQuery("w5 w6", ["text"], boosts=[2.0]),
}
PHRASES: dict[str, Query] = {
    "quoted": lambda _: '"w1 w2"',
    "two words": lambda q: q.PhraseQuery("w1 w3", "text"),
    "three words": lambda q: q.PhraseQuery("w2 w1 w1", "text"),
    "apart": lambda q: q.PhraseQuery("w1 w4", "text", slop=2),
}


def texts(count: int, seed: int) -> list[str | None]:
    random = np.random.default_rng(seed)
    words = [
        " ".join(f"w{number}" for number in random.zipf(1.3, size) % 300)
        for size in random.integers(1, 40, count)
    ]
    return [None if number % 50 == 7 else text for number, text in enumerate(words)]


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": range(first, first + count), "text": texts(count, first)})


def new_dataset(path: Path, parameters: dict[str, Any], **options: Any) -> Any:
    dataset = lance.write_dataset(rows(0, 1500), path, max_rows_per_file=600, **options)
    dataset.create_scalar_index("text", "INVERTED", **{**INDEX, **parameters})
    return dataset


def appended(dataset: Any, first: int, count: int) -> Any:
    return lance.write_dataset(rows(first, count), dataset.uri, mode="append")


def deleted(dataset: Any) -> None:
    dataset.delete("id % 5 = 2")


def with_unindexed_rows(dataset: Any) -> None:
    deleted(appended(dataset, 2000, 400))


def with_two_segments(dataset: Any) -> None:
    appended(dataset, 2000, 400).optimize.optimize_indices(num_indices_to_merge=0)


def merged(dataset: Any) -> None:
    appended(dataset, 2000, 400).optimize.optimize_indices(num_indices_to_merge=1)


def updated(dataset: Any) -> None:
    dataset.update({"text": "'w3 w3 w3 new'"}, where="id >= 100 and id < 150")


def compacted(dataset: Any) -> None:
    deleted(dataset)
    dataset.optimize.compact_files(target_rows_per_fragment=5000)


def compacted_later(dataset: Any) -> None:
    deleted(dataset)
    dataset.optimize.compact_files(target_rows_per_fragment=5000, defer_index_remap=True)


HISTORIES: dict[str, Callable[[Any], None]] = {
    "new": lambda _: None,
    "deleted": deleted,
    "unindexed rows": with_unindexed_rows,
    "two segments": with_two_segments,
    "merged segments": merged,
    "updated": updated,
    "compacted": compacted,
    "compacted, indices later": compacted_later,
}


def assert_alike(path: Path, query: Query, **options: Any) -> None:
    """See that both find the same, but for the order of equal scores."""
    columns = ["id", "_score"]
    theirs = lance.dataset(path).to_table(
        columns=columns, full_text_query=query(their_queries), **options
    )
    ours = glaive.dataset(path).to_table(
        columns=columns, full_text_query=query(our_queries), **options
    )
    assert ours.schema.equals(theirs.schema)
    # Where it has no index, pylance returns rows in their own order.
    scores, their_scores = ours["_score"].to_numpy(), theirs["_score"].to_numpy()
    order = np.argsort(-their_scores, kind="stable")
    their_scores, theirs = their_scores[order], theirs.take(order)
    np.testing.assert_allclose(scores, their_scores, rtol=1e-5, atol=2e-6)
    # Of rows with the lowest score, which ones are among the best is anybody's choice.
    lowest = their_scores[-1] if options.get("limit") and len(their_scores) else -np.inf
    certain = scores > lowest * (1 + 1e-5)
    known = dict(zip(theirs["id"].to_pylist(), their_scores.tolist(), strict=True))
    found = dict(zip(ours["id"].to_numpy()[certain].tolist(), scores[certain], strict=True))
    assert set(found) <= set(known)
    np.testing.assert_allclose(
        [known[one] for one in found], list(found.values()), rtol=1e-5, atol=2e-6
    )


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize(
    ("kind", "history"),
    [
        *(("version-2", history) for history in HISTORIES),
        *((kind, "unindexed rows") for kind in FORMATS if kind != "version-2"),
    ],
)
def test_the_same_rows_are_found_with_the_same_scores(
    tmp_path: Path, kind: str, history: str
) -> None:
    HISTORIES[history](new_dataset(tmp_path / "d", FORMATS[kind]))
    positions = FORMATS[kind].get("with_position", True)
    for query in [*MATCHES.values(), *(PHRASES.values() if positions else ())]:
        assert_alike(tmp_path / "d", query)
        assert_alike(tmp_path / "d", query, limit=10)


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("history", ["new", "deleted", "unindexed rows", "updated", "compacted"])
def test_rows_with_stable_ids_are_found_where_they_are_now(tmp_path: Path, history: str) -> None:
    HISTORIES[history](new_dataset(tmp_path / "d", {}, enable_stable_row_ids=True))
    for query in [*MATCHES.values(), *PHRASES.values()]:
        assert_alike(tmp_path / "d", query)
        # After a compaction pylance takes deleted rows out of the best ten, which are fewer then.
        if history != "compacted":
            assert_alike(tmp_path / "d", query, limit=10)


@pytest.mark.sampled(every=8)
@pytest.mark.spec("text-search-8")
@pytest.mark.parametrize("history", ["new", "unindexed rows", "two segments", "compacted"])
@pytest.mark.parametrize("prefilter", [True, False])
def test_filters_come_before_or_after(tmp_path: Path, history: str, *, prefilter: bool) -> None:
    HISTORIES[history](new_dataset(tmp_path / "d", {}))
    for name in ("one word", "three words", "all words", "not", "rather not"):
        for condition in ("id < 700", "id % 3 = 0", "id > 2100", "id < 0"):
            options: dict[str, Any] = {"filter": condition, "prefilter": prefilter}
            assert_alike(tmp_path / "d", MATCHES[name], **options)
        assert_alike(tmp_path / "d", MATCHES[name], filter="id < 700", prefilter=True, limit=6)
        assert_alike(tmp_path / "d", MATCHES[name], fast_search=True, limit=20)


@pytest.mark.spec("text-search-4")
@pytest.mark.spec("text-search-6")
@pytest.mark.parametrize("operator", ["OR", "AND"])
def test_fuzzy_words_are_stems_in_rows_that_no_index_knows(tmp_path: Path, operator: str) -> None:
    indexed = ["apples", "the banana", "running apple"]
    later = ["Apples and bananas", "he was running", "the", "apple applet run"]
    dataset = lance.write_dataset(pa.table({"id": range(3), "text": indexed}), tmp_path)
    dataset.create_scalar_index("text", "INVERTED")
    dataset.insert(pa.table({"id": range(3, 7), "text": later}))

    def asked(words: str, edits: int) -> Query:
        return lambda q: q.MatchQuery(
            words, "text", fuzziness=edits, operator=q.FullTextOperator[operator]
        )

    for words in ("apples", "running", "bananas apples", "the apple", "the"):
        for edits in (1, 2):
            assert_alike(tmp_path, asked(words, edits))
    query = glaive.query.MatchQuery("apples", "text", fuzziness=1)
    found = glaive.dataset(tmp_path).to_table(["id"], full_text_query=query)
    assert {3, 6} <= set(found["id"].to_pylist())


@pytest.mark.sampled(every=3)
@pytest.mark.spec("text-search-4")
@pytest.mark.parametrize("base", ["simple", "whitespace", "raw", "ngram", "code"])
def test_fuzzy_words_are_cut_in_one_way_whatever_the_index_does(tmp_path: Path, base: str) -> None:
    texts = ["alpha", "alpha c", "a-b", "foo_bar", "fooBar x1", "word.with.dots", "beta", "abc foo"]
    dataset = lance.write_dataset(pa.table({"id": range(8), "text": texts}), tmp_path)
    dataset.create_scalar_index("text", "INVERTED", base_tokenizer=base, max_token_length=6)
    for words in ("alpho beta", "c++ foo_bar", "a-b", "fooBar", "word.with.dot", "'abd'"):
        for operator in ("OR", "AND"):

            def asked(q: Any, words: str = words, operator: str = operator) -> Any:
                chosen = q.FullTextOperator[operator]
                return q.MatchQuery(words, "text", fuzziness=1, operator=chosen)

            assert_alike(tmp_path, asked)
    query = glaive.query.MatchQuery("alpho beta", "text", fuzziness=1)
    assert glaive.dataset(tmp_path).to_table(full_text_query=query).num_rows or base == "ngram"


@pytest.mark.spec("text-search-4")
def test_similar_words_of_all_segments_are_counted_together(tmp_path: Path) -> None:
    first = ["hen and the fox", "bee", "don eel", "hen", "fen"]
    dataset = lance.write_dataset(pa.table({"id": range(5), "text": first}), tmp_path)
    dataset.create_scalar_index("text", "INVERTED", stem=False, remove_stop_words=False)
    for at, texts in enumerate((["the eel", "bye dog", "been"], ["fox dot", "ben"])):
        ids = range(10 * at + 10, 10 * at + 10 + len(texts))
        dataset.insert(pa.table({"id": ids, "text": texts}))
        dataset.optimize.optimize_indices(num_indices_to_merge=0)
    for most in (1, 2, 3, 5, 50):
        for operator in ("OR", "AND"):

            def asked(q: Any, most: int = most, operator: str = operator) -> Any:
                return q.MatchQuery(
                    "bee dog", "text", fuzziness=2, max_expansions=most,
                    operator=q.FullTextOperator[operator],
                )  # fmt: skip

            assert_alike(tmp_path, asked)


CUT = {
    "n-grams": {"base_tokenizer": "ngram"},
    "shorter n-grams": {"base_tokenizer": "ngram", "min_ngram_length": 2},
    "code": {"base_tokenizer": "code", "split_identifiers": True, "preserve_original": True},
    "words": {},
}


@pytest.mark.sampled(every=2)
@pytest.mark.spec("text-25")
@pytest.mark.spec("text-search-1")
@pytest.mark.spec("text-search-2")
@pytest.mark.parametrize("name", CUT)
def test_all_words_have_to_be_there_by_place_not_by_token(tmp_path: Path, name: str) -> None:
    texts = ["alpha tart", "alpho", "alp gamma", "gamma", "gam tar fooBar", "foo bar foo"]
    dataset = lance.write_dataset(pa.table({"id": range(6), "text": texts}), tmp_path)
    dataset.create_scalar_index("text", "INVERTED", **CUT[name])
    dataset.insert(pa.table({"id": range(6, 10), "text": ["alpha", "foo", "tart foo", "gamma"]}))
    words = ["alpho", "alpha gamma", "tart alpho", "fooBar", "foo gamma", "foo foo", "zzz foo"]
    for text in words:

        def alone(q: Any, text: str = text) -> Any:
            return q.MatchQuery(text, "text", operator=q.FullTextOperator.AND)

        def both(q: Any, text: str = text) -> Any:
            parts = (alone(q, text), alone(q, "gamma"))
            return q.BooleanQuery([(q.Occur.MUST, part) for part in parts])

        assert_alike(tmp_path, alone)
        assert_alike(tmp_path, both)


@pytest.mark.sampled(every=2)
@pytest.mark.spec("text-search-3")
@pytest.mark.parametrize("name", CUT)
def test_a_phrase_of_tokens_that_have_one_place_needs_any_of_them(
    tmp_path: Path, name: str
) -> None:
    texts = ["cat", "cat dog", "dog cat", "cat x cat", "catdog", "hello", "fooBar baz", "foobar"]
    dataset = lance.write_dataset(pa.table({"id": range(8), "text": texts}), tmp_path)
    dataset.create_scalar_index("text", "INVERTED", with_position=True, **CUT[name])
    dataset.insert(pa.table({"id": range(8, 12), "text": ["cat dog", "cat", "dog cat", "hello"]}))
    for phrase in ("cat", "cat dog", "cat cat", "catdog", "hello", "fooBar baz"):
        for slop in (0, 2):

            def asked(q: Any, phrase: str = phrase, slop: int = slop) -> Any:
                return q.PhraseQuery(phrase, "text", slop=slop)

            assert_alike(tmp_path, asked)


@pytest.mark.spec("text-search-1")
@pytest.mark.spec("text-search-6")
@pytest.mark.parametrize("segments", [1, 2])
def test_an_index_whose_rows_are_all_deleted_still_makes_tokens_and_counts_for_scores(
    tmp_path: Path, segments: int
) -> None:
    texts = ["the apple", "bananas", "apples and the pear", "a pear"] * 3
    dataset = lance.write_dataset(pa.table({"id": range(12), "text": texts}), tmp_path)
    dataset.create_scalar_index("text", "INVERTED")
    dataset.insert(pa.table({"id": range(12, 16), "text": texts[:4]}))
    if segments == 2:
        dataset.optimize.optimize_indices(num_indices_to_merge=0)
    dataset.delete("id < 12")
    dataset.insert(pa.table({"id": [20, 21], "text": ["banana apple", "the"]}))
    for words in ("apple", "the", "banana pear"):

        def asked(q: Any, words: str = words) -> Any:
            return q.MatchQuery(words, "text")

        def of_all(_: Any, words: str = words) -> Any:
            return words

        assert_alike(tmp_path, asked)
        assert_alike(tmp_path, of_all)
        assert_alike(tmp_path, of_all, fast_search=True)
    found = glaive.dataset(tmp_path).to_table(["id"], full_text_query="apple", fast_search=True)
    assert found.num_rows == (2 if segments == 2 else 0)


@pytest.mark.spec("text-search-7")
def test_columns_without_an_index_are_read(tmp_path: Path) -> None:
    lance.write_dataset(rows(0, 500), tmp_path / "d")
    for query in (
        lambda q: q.MatchQuery("w1 w9 W3", "text"),
        lambda q: q.MatchQuery("w1 w2", "text", operator=q.FullTextOperator.AND),
        lambda q: q.PhraseQuery("w1 w2", "text"),
        lambda _: {"query": "w7", "columns": ["text"]},
    ):
        assert_alike(tmp_path / "d", query)
        assert_alike(tmp_path / "d", query, limit=5)
        assert_alike(tmp_path / "d", query, fast_search=True)


@pytest.mark.spec("text-search-5")
def test_a_text_is_searched_in_all_indexed_columns_and_the_best_score_counts(
    tmp_path: Path,
) -> None:
    data = rows(0, 600).append_column("title", pa.array(texts(600, 99)))
    dataset = lance.write_dataset(data, tmp_path / "d")
    for column in ("text", "title"):
        dataset.create_scalar_index(column, "INVERTED", **INDEX)
    for query in (
        lambda _: "w3 w20",
        lambda q: q.MultiMatchQuery("w3 w20", ["text", "title"], boosts=[1.0, 3.0]),
        lambda q: q.MatchQuery("w3", "text") & q.MatchQuery("w20", "title"),
    ):
        assert_alike(tmp_path / "d", query)
        assert_alike(tmp_path / "d", query, limit=7)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"columns": ["id"]},
        {"columns": ["_score", "id"]},
        {"columns": []},
        {"columns": {"twice": "_score * 2", "next": "id + 1"}},
        {"columns": ["id"], "disable_scoring_autoprojection": True},
        {"with_row_id": True, "with_row_address": True},
        {"columns": ["id", "_rowid"]},
        {"filter": "_score > 1.5"},
        {"order_by": ["id"]},
        {"limit": 5, "offset": 3},
        {"limit": 0},
    ],
    ids=str,
)
def test_columns_and_order_are_those_of_pylance(tmp_path: Path, options: dict[str, Any]) -> None:
    new_dataset(tmp_path / "d", {})
    tables = [
        module.dataset(tmp_path / "d").to_table(full_text_query="w280 w281", **options)
        for module in (lance, glaive)
    ]
    assert tables[1].schema.names == tables[0].schema.names
    assert tables[1].schema.types == tables[0].schema.types
    assert tables[1].num_rows == tables[0].num_rows
    if "id" in tables[0].schema.names and "order_by" in options:
        assert tables[1]["id"].to_pylist() == tables[0]["id"].to_pylist()


def test_an_index_that_glaive_built_is_searched_by_both(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(rows(0, 1500), str(tmp_path / "d"))
    dataset.create_scalar_index("text", "INVERTED", **INDEX)
    for query in [*MATCHES.values(), *PHRASES.values()]:
        assert_alike(tmp_path / "d", query, limit=10)


@pytest.mark.spec("text-search-8")
def test_a_filter_takes_of_the_best_rows_or_the_best_of_its_rows(tmp_path: Path) -> None:
    texts = [" ".join(["apple"] * (8 - at) + ["x"] * at) for at in range(8)]
    dataset = lance.write_dataset(pa.table({"id": range(8), "text": texts}), tmp_path)
    dataset.create_scalar_index("text", "INVERTED")
    for prefilter, expected in ((False, [2]), (True, [2, 3, 4])):
        for library in (lance, glaive):
            options: dict[str, Any] = {
                "full_text_query": "apple", "limit": 3, "filter": "id >= 2", "prefilter": prefilter,
            }  # fmt: skip
            found = library.dataset(tmp_path).to_table(["id"], **options)
            assert found["id"].to_pylist() == expected


@pytest.mark.spec("text-search-5")
def test_scores_of_queries_within_a_query_are_added_or_the_best_counts(tmp_path: Path) -> None:
    columns = {"text": ["apple pear", "pear", "apple"], "title": ["pear", "apple plum", "plum"]}
    dataset = lance.write_dataset(pa.table({"id": range(3), **columns}), tmp_path)
    for column in columns:
        dataset.create_scalar_index(column, "INVERTED")

    def scores(library: Any, query: Any) -> list[float]:
        made = query(library.query)
        rows = library.dataset(tmp_path).to_table(["id", "_score"], full_text_query=made)
        known = dict(zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True))
        return [known.get(at, 0.0) for at in range(3)]

    for library in (lance, glaive):
        apple, pear, title = (
            np.array(scores(library, lambda q, of=of: q.MatchQuery(*of)))
            for of in (("apple", "text"), ("pear", "text"), ("pear", "title"))
        )
        assert np.count_nonzero(apple) == np.count_nonzero(pear) == 2
        some: list[tuple[Any, Any]] = [
            (lambda q: q.MultiMatchQuery("pear", ["text", "title"]), np.maximum(pear, title)),
            (
                lambda q: q.BooleanQuery(
                    [
                        (q.Occur.MUST, q.MatchQuery("apple", "text")),
                        (q.Occur.SHOULD, q.MatchQuery("pear", "text")),
                    ]
                ),
                np.where(apple > 0, apple + pear, 0),
            ),
            (
                lambda q: q.BoostQuery(
                    q.MatchQuery("apple", "text"), q.MatchQuery("pear", "text"), negative_boost=0.3
                ),
                np.where(apple > 0, apple - 0.3 * pear, 0),
            ),
        ]
        for query, expected in some:
            np.testing.assert_allclose(scores(library, query), expected, rtol=1e-5)


@pytest.mark.spec("text-search-7")
def test_texts_without_an_index_are_cut_at_what_is_no_letter_and_stay_as_they_are(
    tmp_path: Path,
) -> None:
    texts = ["Apple-pie", "apple_pie", "apples", "éclair ½", "the Apple"]
    lance.write_dataset(pa.table({"id": range(5), "text": texts}), tmp_path)
    expected: dict[str, set[int]] = {
        "Apple": {0, 4}, "apple": {1}, "apple.pie": {0, 1}, "apples": {2}, "eclair": set(),
        "éclair": {3}, "½": {3}, "the": {4},
    }  # fmt: skip
    for words, rows_found in expected.items():
        for library in (lance, glaive):
            query = library.query.MatchQuery(words, "text")
            found = library.dataset(tmp_path).to_table(["id"], full_text_query=query)
            assert set(found["id"].to_pylist()) == rows_found, (words, library)


def test_phrases_with_slop_are_all_found(tmp_path: Path) -> None:
    """pylance passes over documents where the last word also stands before the others."""
    data = pa.table({"id": range(4), "text": ["c a b c", "a b x c", "a b b b c", "c b a"]})
    dataset = lance.write_dataset(data, tmp_path / "d")
    dataset.create_scalar_index("text", "INVERTED", **INDEX)
    ours = glaive.dataset(tmp_path / "d")
    for slop, expected in ((0, [0]), (1, [0, 1, 2]), (2, [0, 1, 2])):
        phrase = our_queries.PhraseQuery("a b c", "text", slop=slop)
        found = ours.to_table(columns=["id"], full_text_query=phrase)["id"].to_pylist()
        assert sorted(found) == expected
        phrase = their_queries.PhraseQuery("a b c", "text", slop=slop)
        theirs = dataset.to_table(columns=["id"], full_text_query=phrase)["id"].to_pylist()
        assert set(theirs) <= set(found)


def test_words_in_filters_are_found_by_the_index(tmp_path: Path) -> None:
    new_dataset(tmp_path / "d", {})
    for words in ("w3", "w280 w1", "nothing", "W3"):
        condition = f"contains_tokens(text, '{words}')"
        theirs = lance.dataset(tmp_path / "d").to_table(columns=["id"], filter=condition)
        for use in (True, False):
            ours = glaive.dataset(tmp_path / "d").to_table(
                columns=["id"], filter=condition, use_scalar_index=use
            )
            assert ours["id"].to_pylist() == theirs["id"].to_pylist()


@pytest.mark.parametrize("limit", [1, 5, 40, None])
def test_rows_that_others_exclude_or_lower_leave_the_best_of_the_rest(
    tmp_path: Path, limit: int | None
) -> None:
    """The best rows of the positive part are not enough where many are excluded or lowered."""
    rng = np.random.default_rng(1)
    share = 1 / np.arange(1, 61)
    picks = rng.choice(60, size=(3000, 6), p=share / share.sum())
    rows = pa.table({"id": range(3000), "t": [" ".join(f"w{n}" for n in row) for row in picks]})
    made = lance.write_dataset(rows, str(tmp_path / "t"), max_rows_per_file=1000)
    made.create_scalar_index("t", "INVERTED", stem=False, remove_stop_words=False)
    lance.write_dataset(rows.slice(0, 50), str(tmp_path / "t"), mode="append")
    made = lance.dataset(str(tmp_path / "t"))
    made.delete("id % 13 = 5")

    def queries(kind: Any) -> list[Any]:
        def word(number: int) -> Any:
            return kind.MatchQuery(f"w{number}", "t")

        def both(*clauses: tuple[str, Any]) -> Any:
            return kind.BooleanQuery([(getattr(kind.Occur, name), one) for name, one in clauses])

        return [
            both(("MUST", word(1)), ("MUST_NOT", word(0))),
            both(("SHOULD", word(50)), ("SHOULD", word(2)), ("MUST_NOT", word(0))),
            both(("MUST", word(3)), ("MUST_NOT", word(0)), ("MUST_NOT", word(1))),
            both(("MUST", word(0)), ("MUST_NOT", kind.MatchQuery("w1 w2 w3 w4 w5", "t"))),
            kind.BoostQuery(word(0), word(1)),
            kind.BoostQuery(word(40), word(0), negative_boost=0.9),
            both(("MUST", kind.BoostQuery(word(1), word(0))), ("SHOULD", word(2))),
            kind.BoostQuery(both(("MUST", word(1)), ("MUST_NOT", word(2))), word(0)),
        ]

    pairs = zip(queries(our_queries), queries(their_queries), strict=True)
    for number, (own, other) in enumerate(pairs):
        for more in ({}, {"filter": "id > 700", "prefilter": True}):
            found, expected = (
                dataset.to_table(
                    columns=["id", "_score"], full_text_query=query, limit=limit, **more
                )
                for dataset, query in ((glaive.dataset(made.uri), own), (made, other))
            )
            scores = [np.sort(table["_score"].to_numpy()) for table in (found, expected)]
            assert np.allclose(scores[0], scores[1], rtol=1e-3), (number, more)
            if limit is None:
                assert set(found["id"].to_pylist()) == set(expected["id"].to_pylist())


@pytest.mark.parametrize("limit", [1, 6, None])
def test_rows_of_several_documents_are_enough_where_others_are_excluded(
    tmp_path: Path, limit: int | None
) -> None:
    texts = [["w1 w1"] * 12 + ["w0"] * (n % 4 == 0) if n < 20 else ["w1 x"] for n in range(60)]
    dataset = glaive.write_dataset(pa.table({"id": range(60), "t": texts}), tmp_path / "t")
    dataset.create_scalar_index("t", "INVERTED", stem=False, remove_stop_words=False)
    word, other = our_queries.MatchQuery("w1", "t"), our_queries.MatchQuery("w0", "t")
    clauses = [(our_queries.Occur.MUST, word), (our_queries.Occur.MUST_NOT, other)]
    for query in (our_queries.BooleanQuery(clauses), our_queries.BoostQuery(word, other)):
        found = dataset.to_table(["id", "_score"], full_text_query=query, limit=limit)
        every = dataset.to_table(["id", "_score"], full_text_query=query)
        assert len(set(found["id"].to_pylist())) == found.num_rows == (limit or every.num_rows)
        best = np.sort(every["_score"].to_numpy())[::-1][: limit or None]
        assert np.allclose(np.sort(found["_score"].to_numpy())[::-1], best)
