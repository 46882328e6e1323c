"""Full-text indices that glaive builds are those of pylance, list by list, and it searches them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError
from glaive.format.pb import inverted_pb2
from glaive.index.segment import IndexFile
from glaive.index.text.text_format import TextParams
from glaive.index.text.tokenizers import Tokenizer
from glaive.index.text.tokens import read_fst
from glaive.io.access import open_store

lance = pytest.importorskip("lance", reason="install the 'interop' group")
pytestmark = pytest.mark.interop

WORDS = [
    "the", "search", "searching", "of", "Index", "indices", "naïve", "Straße", "日本", "x86",
    "don't", "column", "columns", "fragment", "row", "ROW", "a", "vector", "quick", "brown",
]  # fmt: skip


def texts(count: int, seed: int = 0) -> list[str | None]:
    words = random.Random(seed)
    rare = [f"rare{number}" for number in range(60)]
    made: list[str | None] = []
    for at in range(count):
        size = words.choice([0, 1, 3, 8, 20, 40])
        chosen = words.choices(WORDS, [1 / (rank + 1) for rank in range(len(WORDS))], k=size)
        text = " ".join([*chosen, words.choice(rare)] if at % 3 else chosen)
        made.append(None if at % 37 == 5 else text)
    made[1] = "repeated " * 300 + "once"
    return made


def by_both(path: Path, column: pa.Array, **options: Any) -> tuple[Path, Path]:
    """The same rows in two datasets, indexed by pylance and by glaive; folders of the indices."""
    rows = pa.table({"id": range(len(column)), "t": column})
    for name in ("pylance", "glaive"):
        lance.write_dataset(rows, path / name, max_rows_per_file=400)
    lance.dataset(path / "pylance").create_scalar_index("t", "INVERTED", **options)
    glaive.dataset(path / "glaive").create_scalar_index("t", "INVERTED", **options)
    folders = [next((path / name / "_indices").iterdir()) for name in ("pylance", "glaive")]
    return folders[0], folders[1]


def opened(folder: Path, name: str) -> IndexFile:
    return IndexFile(open_store(str(folder)), name)


def tokens_of(folder: Path) -> dict[bytes, int]:
    rows = opened(folder, "part_0_tokens.lance").read()
    count = rows["_token_next_id"][0].as_py()
    found, numbers = read_fst(rows["_token_fst_bytes"][0].as_buffer(), count, folder)
    named: dict[Any, int] = dict(zip(found.to_pylist(), numbers.tolist(), strict=True))
    return named


def assert_same_index(folders: tuple[Path, Path]) -> None:
    """All but the numbers of tokens, which are free, and the order of metadata."""
    first, second = folders
    assert sorted(file.name for file in first.iterdir()) == sorted(
        file.name for file in second.iterdir()
    )
    for name in ("metadata.lance", "part_0_docs.lance"):
        assert opened(first, name).read().equals(opened(second, name).read(), check_metadata=True)
    numbers = [tokens_of(folder) for folder in folders]
    assert numbers[0].keys() == numbers[1].keys()
    assert [numbers[1][token] for token in sorted(numbers[1])] == list(range(len(numbers[1])))
    lists = [opened(folder, "part_0_invert.lance").read() for folder in folders]
    assert lists[0].schema.equals(lists[1].schema, check_metadata=True)
    tokens = sorted(numbers[0])
    by_token = [
        rows.take(pa.array([of[token] for token in tokens]))
        for rows, of in zip(lists, numbers, strict=True)
    ]
    for name in lists[0].column_names:
        for token, one, other in zip(
            tokens, by_token[0][name].to_pylist(), by_token[1][name].to_pylist(), strict=True
        ):
            assert one == other, (name, token)


@pytest.mark.sampled(every=2)
@pytest.mark.spec("text-1", "text-2", "text-16", "text-19", "text-32", "text-34")
@pytest.mark.parametrize("positions", [False, True], ids=["", "positions"])
@pytest.mark.parametrize(
    "options", [{"format_version": 1}, {}, {"format_version": "v3"}, {"block_size": 256}], ids=str
)
def test_every_list_is_that_of_pylance(
    tmp_path: Path, options: dict[str, Any], positions: bool
) -> None:
    column = pa.array(texts(900))
    assert_same_index(by_both(tmp_path, column, with_position=positions, **options))


@pytest.mark.parametrize(
    "options",
    [
        {"base_tokenizer": "ngram"},
        {"base_tokenizer": "whitespace", "stem": False, "custom_stop_words": ["index"]},
        {"base_tokenizer": "raw", "max_token_length": None, "remove_stop_words": False},
        {"language": "German", "ascii_folding": False, "lower_case": False},
    ],
    ids=str,
)
def test_all_tokenizers_and_filters(tmp_path: Path, options: dict[str, Any]) -> None:
    column = pa.array(texts(200, 1), pa.large_string())
    assert_same_index(by_both(tmp_path, column, with_position=True, **options))


DETAILS: dict[str, dict[str, Any]] = {
    "plain": {},
    "others": {
        "with_position": True, "language": "German", "max_token_length": None,
        "lower_case": False, "stem": False, "remove_stop_words": False, "ascii_folding": False,
    },
    "version 1": {"format_version": 1},
    "n-grams": {
        "base_tokenizer": "ngram", "min_ngram_length": 2, "max_ngram_length": 5,
        "prefix_only": True,
    },
    "blocks of 256": {"block_size": 256},
    "code": {"base_tokenizer": "code", "split_identifiers": True},
}  # fmt: skip
VERSIONS = {"version 1": 1, "blocks of 256": 3, "code": 3}


@pytest.mark.spec("text-31", "text-34")
@pytest.mark.parametrize("name", [*DETAILS, "list elements"])
def test_details_and_versions_are_those_of_pylance(tmp_path: Path, name: str) -> None:
    options, elements = DETAILS.get(name, {}), name == "list elements"
    values: Any = pa.array(["an apple"])
    if elements:
        values = pa.array([["an apple"]])
        options = {"document_granularity": lance.query.DocumentGranularity("list_element")}
    folders = by_both(tmp_path, values, **options)
    paths = [tmp_path / library for library in ("pylance", "glaive")]
    theirs, ours = (glaive.dataset(path).manifest.indices[0] for path in paths)
    assert ours.index_details == theirs.index_details
    expected = VERSIONS.get(name, 2)
    assert ours.index_version == theirs.index_version == (3 if elements else expected)
    for folder in folders:
        assert opened(folder, "metadata.lance").metadata["format_version"] == str(expected)
    said = inverted_pb2.InvertedIndexDetails.FromString(ours.index_details.value)
    given = {key: value for key, value in options.items() if key in TextParams.__slots__}
    params = TextParams.of(given)
    for field in list(said.DESCRIPTOR.fields)[:12]:
        wanted = getattr(params, field.name)
        wanted = f'"{wanted}"' if field.name == "language" else wanted
        absent = field.has_presence and not said.HasField(field.name)
        assert (field.name, None if absent else getattr(said, field.name)) == (field.name, wanted)
    assert said.HasField("code") == (name == "code")
    assert (said.document_granularity, said.posting_format_version) == (int(elements), expected)


ROWS_OF_LISTS = [
    ["quick fox", "the Dog"], None, [], ["cat", None, "quick"], [None], ["the"], [""], ["", "cat"],
]  # fmt: skip


@pytest.mark.spec("text-35", "text-36")
@pytest.mark.parametrize("granularity", ["row", "list_element"])
@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.large_string())], ids=str)
def test_lists_of_texts(tmp_path: Path, kind: pa.DataType, granularity: str) -> None:
    options = {"document_granularity": lance.query.DocumentGranularity(granularity)}
    column = pa.array(ROWS_OF_LISTS, kind)
    assert_same_index(by_both(tmp_path, column, with_position=True, **options))


@pytest.mark.spec("text-35", "text-36")
def test_texts_of_a_list_are_joined_from_the_first_that_is_not_empty(tmp_path: Path) -> None:
    rows = [["a", "", "b", None], [None, "", "a"], ["", "", "c"], None, [], [None], ["d", ""]]
    options: dict[str, Any] = dict.fromkeys(
        ("stem", "remove_stop_words", "lower_case", "ascii_folding"), False
    ) | {"base_tokenizer": "raw"}
    expected = [b"a  b", b"a", b"c", b"", b"", b"", b"d "]
    column = pa.array(rows, pa.list_(pa.string()))
    for folder in by_both(tmp_path / "rows", column, **options):
        assert tokens_of(folder).keys() == set(expected)
        assert opened(folder, "part_0_docs.lance").num_rows == len(rows)
    folders = by_both(tmp_path / "texts", pa.array([None, "", "a"]), **options)
    assert_same_index(folders)
    assert opened(folders[1], "part_0_docs.lance").read()["_rowid"].to_pylist() == [1, 2]
    elements = {"document_granularity": lance.query.DocumentGranularity("list_element")}
    folders = by_both(tmp_path / "elements", column, **options, **elements)
    assert_same_index(folders)
    found = opened(folders[1], "part_0_docs.lance").read().to_pydict()
    places = [(row, at) for row, one in enumerate(rows) for at in range(len(one or []))]
    assert list(zip(found["_rowid"], found["_doc_index_0"], strict=True)) == places


DOCUMENTS = [
    '{"b": "the quick brown FOXES", "a": "Jumps", "Z": {"y": "x y", "x": [["n"], {"k": "é"}]}}',
    '{"f": 1.0, "g": 1e20, "h": -0.5, "i": 12345678901234567890, "k": 1e-7, "m": true, "n": null}',
    '{"": "empty key", "a.b": "dotted", "Key With": "space", "x": "", "y": [], "z": {}}',
    '"just the text"', "[]", "null", "7", "[1, 2, [false]]", None,
    '{"' + "p" * 50 + '": "' + "w" * 39 + " " + "v" * 40 + '"}',
]  # fmt: skip


@pytest.mark.spec("text-42", "text-43", "text-44")
@pytest.mark.parametrize("options", [{}, {"base_tokenizer": "ngram"}], ids=str)
def test_documents_of_json(tmp_path: Path, options: dict[str, Any]) -> None:
    column = pa.array(DOCUMENTS * 3, pa.json_())
    assert_same_index(by_both(tmp_path, column, with_position=True, **options))
    tokenizer = Tokenizer.of(TextParams(lance_tokenizer="json"))
    for text in ("b,str,brown", "i,number,12345678901234567890", "m,bool,true"):
        query = lance.query.MatchQuery(text, "t")
        found = lance.dataset(tmp_path / "glaive").to_table(full_text_query=query)
        assert found.num_rows == 3
        assert tokenizer.tokens(text) == [(text, 0)]
    with pytest.raises(OptionError, match="path,type,value"):
        tokenizer.tokens("brown")


@pytest.mark.spec("text-42", "text-43", "text-44", "text-45")
def test_values_of_a_document_are_tokens_by_their_path(tmp_path: Path) -> None:
    text = '{"b": "the quick FOXES", "a": [7, "x y", {"k": null}, []], "Z": {"y": true, "e": {}}}'
    expected = (
        "Z.y,bool,true", "a,number,7", "a,str,x", "a,str,y", "a.k,null,null", "b,str,quick",
        "b,str,fox",
    )  # fmt: skip
    for folder in by_both(tmp_path, pa.array([text], pa.json_()), with_position=True):
        numbers = tokens_of(folder)
        assert {token.decode() for token in numbers} == set(expected)
        positions = opened(folder, "part_0_invert.lance").read()["_compressed_position"]
        for at, token in enumerate(expected):
            assert positions[numbers[token.encode()]].as_py() == bytes([at])
    tokenizer = Tokenizer.of(TextParams(lance_tokenizer="json"))
    asked = {"b,str,running FOXES": ["b,str,run", "b,str,fox"], "c,number,THE": ["c,number,THE"]}
    for query, tokens in asked.items():
        assert [token for token, _ in tokenizer.tokens(query)] == tokens
    found = {"b,str,Quick": 1, "a,null,null": 0, "a.k,null,null": 1, "Z.y,bool,TRUE": 0}
    for library in (lance, glaive):
        dataset = library.dataset(tmp_path / "glaive")
        for query, rows in found.items():
            match = library.query.MatchQuery(query, "t")
            assert dataset.to_table(full_text_query=match).num_rows == rows


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("positions", [False, True], ids=["", "positions"])
@pytest.mark.parametrize("options", [{"format_version": 1}, {}, {"block_size": 256}], ids=str)
def test_pylance_finds_the_same_rows_with_the_same_scores(
    tmp_path: Path, options: dict[str, Any], positions: bool
) -> None:
    by_both(tmp_path, pa.array(texts(900)), with_position=positions, **options)
    query = lance.query
    queries = [
        query.MatchQuery(text, "t")
        for text in (
            "search",
            "ROW column",
            "rare7",
            "strasse",
            "repeated once",
            "日本 rare1",
            "no",
        )
    ]
    queries.append(query.MatchQuery("serch", "t", fuzziness=1))
    queries.append(query.MatchQuery("search row", "t", operator=query.FullTextOperator.AND))
    if positions:
        queries += [query.PhraseQuery(text, "t") for text in ("search row", "repeated repeated")]
    for asked in queries:
        found = [
            lance.dataset(tmp_path / name)
            .to_table(columns=["id", "_score"], full_text_query=asked)
            .sort_by("id")
            for name in ("pylance", "glaive")
        ]
        assert found[0]["id"].to_pylist() == found[1]["id"].to_pylist()
        assert found[1]["_score"].to_pylist() == pytest.approx(
            found[0]["_score"].to_pylist(), rel=1e-5
        )
