"""Queries that cannot be searched are refused when they are made, or when the scan is."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

import pyarrow as pa
import pytest
from glaive.query import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    DocumentGranularity,
    FullTextOperator,
    FullTextQueryType,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
)

import glaive
from glaive.errors import ColumnNotFoundError, CorruptFileError, OptionError

TEXTS = ["apple banana", "banana cherry", "apple apple", None, "date"]
MATCH = MatchQuery("apple", "text")
WRONG_OCCUR: Any = [("MUST", MATCH)]


@pytest.fixture
def dataset(tmp_path: Path) -> Any:
    data = pa.table({"id": range(len(TEXTS)), "text": TEXTS})
    dataset = glaive.write_dataset(data, str(tmp_path / "d"))
    dataset.create_scalar_index(
        "text", "INVERTED", stem=False, remove_stop_words=False, with_position=False
    )
    return glaive.dataset(str(tmp_path / "d"))


def ids(dataset: Any, query: object, **options: Any) -> list[int]:
    found: list[int] = dataset.to_table(full_text_query=query, **options)["id"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: MatchQuery(5, "text"), "query"),
        (lambda: MatchQuery("a", None), "column"),
        (lambda: MatchQuery("a", "text", fuzziness=-1), "fuzziness"),
        (lambda: MatchQuery("a", "text", max_expansions=1.5), "max_expansions"),
        (lambda: MatchQuery("a", "text", prefix_length=True), "prefix_length"),
        (lambda: MatchQuery("a", "text", boost=float("nan")), "boost"),
        (lambda: MatchQuery("a", "text", operator="AND"), "operator"),
        (
            lambda: MatchQuery("a", "text", document_granularity=DocumentGranularity.LIST_ELEMENT),
            "document_granularity",
        ),
        (lambda: PhraseQuery("a", "text", slop=-1), "slop"),
        (lambda: MultiMatchQuery("a", []), "columns"),
        (lambda: MultiMatchQuery("a", ["text"], boosts=[1.0, 2.0]), "boosts"),
        (lambda: CombinedFieldsQuery("a", ["text"], boosts=[0.5]), "boosts"),
        (lambda: BoostQuery(MATCH, "a"), "negative"),
        (lambda: BoostQuery(MATCH, MATCH, negative_boost="a"), "negative_boost"),
        (lambda: BooleanQuery([]), "queries"),
        (lambda: BooleanQuery([(Occur.MUST_NOT, MATCH)]), "queries"),
        (lambda: BooleanQuery(WRONG_OCCUR), "queries"),
        (lambda: BooleanQuery(5), "queries"),
    ],
    ids=range(18),
)
def test_wrong_arguments_are_named(make: Any, option: str) -> None:
    with pytest.raises(OptionError, match=f"(^|: ){option}:"):
        make()


def test_queries_say_what_they_are() -> None:
    assert MATCH.query_type() is FullTextQueryType.MATCH
    assert (MATCH & MATCH).query_type() is FullTextQueryType.BOOLEAN
    assert (MATCH | MATCH).should == [MATCH, MATCH]
    assert BoostQuery(MATCH, MATCH).query_type() is FullTextQueryType.BOOST
    assert PhraseQuery("a b", "text").query_type() is FullTextQueryType.MATCH_PHRASE


@pytest.mark.parametrize(
    "query", [5, ["apple"], {"columns": ["text"]}, {"query": "apple", "zzz": 1}, {"query": 1}]
)
def test_what_is_no_query_is_refused(dataset: Any, query: object) -> None:
    with pytest.raises(OptionError, match="full_text_query"):
        dataset.scanner(full_text_query=query)


def test_columns_that_hold_no_texts_are_refused_before_the_scan_runs(dataset: Any) -> None:
    with pytest.raises(OptionError, match=r"'id' is int64\. Name a text column"):
        dataset.scanner(full_text_query=MatchQuery("a", "id"))
    with pytest.raises(ColumnNotFoundError, match="nope"):
        dataset.scanner(full_text_query={"query": "a", "columns": ["nope"]})
    with pytest.raises(ColumnNotFoundError, match="nope"):
        dataset.scanner(full_text_query="a", order_by=["nope"])


def test_a_text_needs_a_column_with_an_index(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(pa.table({"id": [0], "text": ["a"]}), str(tmp_path / "d"))
    with pytest.raises(OptionError, match="no column has a full-text index"):
        dataset.to_table(full_text_query="a")
    assert ids(dataset, MatchQuery("a", "text")) == [0]


def test_a_search_is_not_combined_with_another(dataset: Any) -> None:
    for options in (
        {"nearest": {"column": "text", "q": [1.0]}},
        {"include_deleted_rows": True, "with_row_id": True},
    ):
        with pytest.raises(OptionError, match="cannot be combined"):
            dataset.scanner(full_text_query="a", **options)


def test_phrases_need_positions(dataset: Any) -> None:
    with pytest.raises(OptionError, match="with_position=True"):
        dataset.to_table(full_text_query=PhraseQuery("apple banana", "text"))


def test_scans_count_and_stream_and_explain_what_they_find(dataset: Any) -> None:
    scanner = dataset.scanner(full_text_query="apple", batch_size=1)
    assert scanner.count_rows() == 2
    assert [batch.num_rows for batch in scanner.to_batches()] == [1, 1]
    assert scanner.to_table()["id"].to_pylist() == [2, 0]
    plan = scanner.explain_plan()
    assert "MatchQuery: column=text, query=[apple], all rows" in plan
    assert "index text_idx of 1 fragments; 0 fragments read" in plan
    assert "rows found: 2" in scanner.analyze_plan()


def test_rows_written_later_are_found_unless_the_search_is_to_be_fast(dataset: Any) -> None:
    glaive.write_dataset(pa.table({"id": [9], "text": ["apple"]}), dataset.uri, mode="append")
    newest = glaive.dataset(dataset.uri)
    assert sorted(ids(newest, "apple")) == [0, 2, 9]
    assert sorted(ids(newest, "apple", fast_search=True)) == [0, 2]
    assert ids(newest, "apple", fragments=[1]) == [9]


def index_file(dataset: Any, part: str) -> Path:
    (path,) = Path(dataset.uri.removeprefix("file://")).glob(f"_indices/*/part_0_{part}.lance")
    return path


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("part", ["docs", "tokens", "invert"])
def test_damaged_index_files_are_named(dataset: Any, part: str) -> None:
    """Whichever byte is damaged, a search ends with rows or with an error that names a file."""
    path = index_file(dataset, part)
    sound = path.read_bytes()
    outcomes, messages = set(), []
    for place in range(0, len(sound), max(1, len(sound) // 40)):
        damaged = bytearray(sound)
        damaged[place] ^= 0xFF
        path.write_bytes(bytes(damaged))
        try:
            found = ids(glaive.dataset(dataset.uri), MatchQuery("apple banana", "text"))
        except glaive.GlaiveError as error:
            outcomes.add("error")
            messages.append(str(error))
        else:
            outcomes.add("rows")
            assert set(found) <= set(range(len(TEXTS)))
    assert outcomes == {"error", "rows"}
    assert [message for message in messages if "index" not in message] == []


def test_tokens_that_lead_outside_the_lists_are_damage(dataset: Any) -> None:
    path = index_file(dataset, "tokens")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises((CorruptFileError, glaive.GlaiveError), match="tokens"):
        ids(glaive.dataset(dataset.uri), "apple")


@pytest.mark.spec("rel-25")
def test_queries_are_nested_up_to_a_limit_and_no_stack_overflows(dataset: Any) -> None:
    deep: Any = MATCH
    for _ in range(64):
        deep = BoostQuery(BooleanQuery([(Occur.MUST, deep)]), MatchQuery("cherry", "text"))
    assert ids(dataset, deep) == ids(dataset, MATCH)
    with pytest.raises(OptionError, match="nested deeper than 128 levels"):
        BooleanQuery([(Occur.SHOULD, deep)])
    with pytest.raises(OptionError, match="nested deeper than 128 levels"):
        BoostQuery(MATCH, deep)


def test_rows_with_several_documents_are_combined_as_one(tmp_path: Path) -> None:
    """List elements that are documents have one row; an index may also claim such documents."""
    lists = [["apple pear", "apple plum"], ["apple"], ["pear", "pear plum"], ["plum"]]
    data = pa.table({"id": range(4), "texts": lists})
    dataset = glaive.write_dataset(data, tmp_path / "d")
    dataset.create_scalar_index("texts", "INVERTED", document_granularity="list_element")
    dataset = glaive.dataset(tmp_path / "d")
    apple, pear, plum = (MatchQuery(word, "texts") for word in ("apple", "pear", "plum"))
    assert sorted(ids(dataset, BoostQuery(apple, pear))) == [0, 1]
    assert ids(dataset, BoostQuery(pear, apple))[0] == 2
    assert sorted(ids(dataset, BooleanQuery([(Occur.MUST, apple), (Occur.MUST, plum)]))) == [0]
    optional = BooleanQuery([(Occur.MUST, apple), (Occur.SHOULD, pear)])
    assert ids(dataset, optional) == [0, 1]
    either = BooleanQuery([(Occur.SHOULD, BoostQuery(apple, plum)), (Occur.SHOULD, plum)])
    assert sorted(ids(dataset, either)) == [0, 1, 2, 3]


def test_numbers_that_no_float_holds_are_refused_and_scores_may_be_infinite(dataset: Any) -> None:
    with pytest.raises(OptionError, match="boost: expected a finite number"):
        MatchQuery("apple", "text", boost=10**400)
    with pytest.raises(OptionError, match="distance_range: expected a number"):
        dataset.scanner(nearest={"column": "id", "q": [1], "distance_range": (10**400, None)})
    for name, number in (("k", 10**400), ("nprobes", -(10**5000)), ("ef", 1 << 64)):
        with pytest.raises(OptionError, match=f"nearest: {name}: expected an integer"):
            dataset.scanner(nearest={"column": "id", "q": [1], name: number})
    # NumPy warned of them, which is an error here.
    assert sorted(ids(dataset, MatchQuery("apple", "text", boost=1e308))) == [0, 2]
    banana = MatchQuery("banana", "text")
    assert sorted(ids(dataset, BoostQuery(banana, banana, negative_boost=1e308))) == [0, 1]


@pytest.mark.parametrize(
    "options",
    [
        {"full_text_query": dict.fromkeys(range(9000))},
        {"full_text_query": {"query": "a", "k" * 9000: 1}},
        {"filter": dict.fromkeys(range(9000))},
        {"limit": [1] * 9000},
        {"blob_handling": ["all_binary"]},
        {"blob_handling": "x" * 9000},
    ],
    ids=range(6),
)
def test_an_error_of_an_option_shows_the_first_of_many(
    dataset: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(OptionError) as refused:
        dataset.scanner(**options)
    assert len(str(refused.value)) < 500


@pytest.mark.spec("rel-25")
@pytest.mark.parametrize("operator", FullTextOperator)
def test_a_token_that_is_repeated_in_a_query_is_compared_with_those_of_the_index_once(
    dataset: Any, operator: FullTextOperator
) -> None:
    def found(text: str) -> list[int]:
        options: dict[str, Any] = {"fuzziness": 1, "max_expansions": 1 << 30, "operator": operator}
        return sorted(ids(dataset, MatchQuery(text, "text", **options)))

    once = found("aple")
    started = process_time()
    assert found("aple " * 20_000) == once != []
    assert process_time() - started < 2


def test_a_query_with_edits_has_a_limit_of_different_tokens(dataset: Any) -> None:
    many = " ".join(f"word{number}" for number in range(1001))
    assert ids(dataset, MatchQuery(many, "text")) == []
    with pytest.raises(OptionError, match="fuzziness: a query has 1000 different tokens with"):
        ids(dataset, MatchQuery(many, "text", fuzziness=1))


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("limit", [1, 9, None])
def test_texts_of_any_number_of_words_are_searched_as_wholes_and_phrases(
    tmp_path: Path, limit: int | None
) -> None:
    words = [f"w{number}" for number in range(1_100)]
    texts = [" ".join(words), " ".join(words[:-1]), "w1 w2", " ".join(reversed(words))]
    place = str(tmp_path / "d")
    dataset = glaive.write_dataset(pa.table({"id": range(len(texts)), "text": texts}), place)
    dataset.create_scalar_index("text", "INVERTED", with_position=True)
    dataset = glaive.dataset(place)
    every = MatchQuery(" ".join(words), "text", operator=FullTextOperator.AND)
    assert ids(dataset, every, limit=limit) == [0, 3][:limit]
    assert ids(dataset, PhraseQuery(" ".join(words), "text"), limit=limit) == [0]
    assert ids(dataset, MatchQuery(" ".join(words), "text"), limit=limit)[:2] == [0, 3][:limit]
