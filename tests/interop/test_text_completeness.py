"""Queries of texts that need more than one index in its newest version, in both libraries."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import CorruptFileError, OptionError
from glaive.index.text.postings import (
    Elements,
    decode_document_positions,
    encode_document_positions,
)

lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

INDEX = {"with_position": True, "stem": False, "remove_stop_words": False}


def found(library: Any, path: str, query: Any) -> dict[int, float]:
    """Scores by id, for a query that is made of the library's own classes."""
    made = query(import_module(f"{library.__name__}.query"))
    rows = library.dataset(path).to_table(["id", "_score"], full_text_query=made, limit=10_000)
    return dict(zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True))


def check(path: str, *queries: Any) -> None:
    for query in queries:
        mine, theirs = found(glaive, path, query), found(lance, path, query)
        assert mine.keys() == theirs.keys()
        np.testing.assert_allclose([mine[at] for at in theirs], list(theirs.values()), rtol=1e-5)


def words(start: int, count: int) -> pa.Table:
    """Texts of few words, some of which are long, in two columns."""
    random = np.random.default_rng(start)
    some = [f"w{at}" for at in range(12)]
    long = [" ".join(random.choice(some, 300 if at % 50 == 0 else at % 12)) for at in range(count)]
    texts = [None if at % 17 == 3 else text for at, text in enumerate(long)]
    short = [" ".join(random.choice(some, at % 6)) for at in range(count)]
    return pa.table({"id": range(start, start + count), "t": texts, "u": short})


def match(text: str, column: str = "t", *, every: bool = False) -> Any:
    def made(module: Any) -> Any:
        kind = module.FullTextOperator
        return module.MatchQuery(text, column, operator=kind.AND if every else kind.OR)

    return made


def phrase(text: str, slop: int = 0) -> Any:
    return lambda module: module.PhraseQuery(text, "t", slop=slop)


# ------------------------------------------------------------------ format version 1


@pytest.mark.spec("text-15")
@pytest.mark.parametrize("library", [glaive, lance])
def test_phrases_are_found_in_version_1(tmp_path: Path, library: Any) -> None:
    path = str(tmp_path / "d")
    glaive.write_dataset(words(0, 300), path, max_rows_per_file=150)
    library.dataset(path).create_scalar_index("t", "INVERTED", format_version=1, **INDEX)
    check(path, phrase("w1 w2"), phrase("w1 w2 w3"), phrase("w1 w1"))
    glaive.write_dataset(words(1000, 60), path, mode="append")
    glaive.dataset(path).delete("id % 9 = 2")
    library.dataset(path).optimize.optimize_indices()
    check(path, phrase("w1 w2"), match("w3 w4"))


def test_positions_of_documents_are_decoded_as_they_were_encoded() -> None:
    random = np.random.default_rng(0)
    frequencies = np.array([1, 127, 128, 129, 5, 256, 400, 2])
    steps = random.integers(1, 9, frequencies.sum())
    positions = np.concatenate([np.cumsum(part) for part in np.split(steps, frequencies.cumsum())])
    elements, of_document = encode_document_positions(positions, frequencies)
    decoded = decode_document_positions(elements, of_document, frequencies, "here")
    assert decoded.tolist() == positions.tolist()
    for change in (
        (elements, of_document, frequencies + 1),
        (elements, of_document[:-1], frequencies),
        (Elements(elements.offsets[:-1], elements.data), of_document, frequencies),
        (Elements(np.sort(elements.offsets // 2), elements.data), of_document, frequencies),
    ):
        with pytest.raises(CorruptFileError, match="positions of an index"):
            decode_document_positions(*change, "here")


# ------------------------------------------------------------------ rows that no index knows


LISTS = [["red apple", "green"], [], None, ["red"], ["apple pie", "red apple"], [None, "green"]]
DOCUMENTS = ['{"a": "red apple", "n": 5}', None, '{"a": ["red", "blue"], "n": 7}', '["red"]']


@pytest.mark.spec("text-search-10")
@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.large_string())], ids=str)
def test_lists_of_texts_are_searched_where_no_index_is(tmp_path: Path, kind: Any) -> None:
    path = str(tmp_path / "d")
    glaive.write_dataset(pa.table({"id": range(6), "t": pa.array(LISTS, kind)}), path)
    check(path, match("red apple"), match("red apple", every=True))
    glaive.dataset(path).create_scalar_index("t", "INVERTED", **INDEX)
    more = pa.table({"id": range(10, 16), "t": pa.array(LISTS, kind)})
    glaive.write_dataset(more, path, mode="append")
    check(path, match("red apple"), match("green"), phrase("red apple"), phrase("apple green"))


@pytest.mark.spec("text-35", "text-search-10")
def test_lists_that_begin_with_empty_texts_are_searched_as_they_are_indexed(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    lists = pa.array([["a", "", "b"], ["", "a"], ["a", ""], None, [""], [], [None], ["a"]])
    glaive.write_dataset(pa.table({"id": range(8), "t": lists}), path)
    raw: dict[str, Any] = {"base_tokenizer": "raw", "stem": False, "remove_stop_words": False}
    glaive.dataset(path).create_scalar_index("t", "INVERTED", **raw)
    glaive.write_dataset(pa.table({"id": range(10, 18), "t": lists}), path, mode="append")
    check(path, match("a"), match("a  b"), match(" a"), match("a "), match(""))
    assert found(glaive, path, match("a")).keys() == {1, 7, 11, 17}


@pytest.mark.spec("text-search-10")
def test_list_elements_are_documents_where_no_index_is_as_they_are_in_one(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    lists = pa.array([*LISTS, ["green pie", "red"], ["red green", ""]])
    glaive.write_dataset(pa.table({"id": range(8), "t": lists}), path)
    glaive.dataset(path).create_scalar_index(
        "t", "INVERTED", document_granularity="list_element", **INDEX
    )
    glaive.write_dataset(pa.table({"id": range(10, 18), "t": lists}), path, mode="append")
    queries = [match("apple"), match("red green"), match("red green", every=True)]
    queries += [phrase("red green"), phrase("apple green"), phrase("pie red")]
    for query in queries:
        scores = []
        for library in (lance, glaive):
            made = query(import_module(f"{library.__name__}.query"))
            rows = library.dataset(path).to_table(["id", "_score"], full_text_query=made)
            pairs = zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True)
            scores.append(sorted((number, round(score, 4)) for number, score in pairs))
        assert scores[0] == scores[1]
        ids = [number for number, _ in scores[1]]
        assert [one for one in ids if one > 9] == [one + 10 for one in ids if one < 9]
    rows = glaive.dataset(path).to_table(["id"], full_text_query=queries[2](glaive.query))
    assert sorted(rows["id"].to_pylist()) == [7, 17]


@pytest.mark.spec("text-search-10")
def test_json_documents_are_searched_where_no_index_is(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    glaive.write_dataset(
        pa.table({"id": range(4), "t": pa.array(DOCUMENTS, pa.json_())}), path
    ).create_scalar_index("t", "INVERTED", **INDEX)
    more = pa.table({"id": range(10, 14), "t": pa.array(DOCUMENTS, pa.json_())})
    glaive.write_dataset(more, path, mode="append")
    check(path, match("a,str,red apple"), match("n,number,7"), match("a,str,blue"))


# ------------------------------------------------------------------ columns that count as one


def combined(text: str, boosts: list[float] | None = None, *, every: bool = False) -> Any:
    def made(module: Any) -> Any:
        kind = module.FullTextOperator
        operator = kind.AND if every else kind.OR
        return module.CombinedFieldsQuery(text, ["t", "u"], boosts=boosts, operator=operator)

    return made


COMBINED = (
    combined("w1 w2"),
    combined("w1 w1 w2", [1.0, 3.0]),
    combined("w1 w2 w3", [2.5, 1.0], every=True),
    combined("w1 nothing"),
)


@pytest.mark.sampled(every=3)
@pytest.mark.spec("text-search-9")
@pytest.mark.parametrize("columns", ["tu", "t", "u"])
def test_columns_are_searched_as_one(tmp_path: Path, columns: str) -> None:
    path = str(tmp_path / "d")
    glaive.write_dataset(words(0, 200), path, max_rows_per_file=100)
    for column in columns:
        glaive.dataset(path).create_scalar_index(column, "INVERTED", **INDEX)
    check(path, *COMBINED)
    glaive.write_dataset(words(1000, 50), path, mode="append")
    check(path, *COMBINED)
    glaive.dataset(path).optimize.optimize_indices()
    check(path, *COMBINED)


def test_columns_that_count_as_one_have_to_have_the_same_tokens(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    dataset = glaive.write_dataset(words(0, 20), path)
    query = glaive.query.CombinedFieldsQuery("w1", ["t", "u"])
    with pytest.raises(OptionError, match="none of t, u has a full-text index"):
        dataset.to_table(full_text_query=query)
    dataset.create_scalar_index("t", "INVERTED", **INDEX)
    dataset.create_scalar_index("u", "INVERTED", stem=True)
    with pytest.raises(OptionError, match="different ways"):
        glaive.dataset(path).to_table(full_text_query=query)
