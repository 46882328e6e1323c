"""Full-text indices that glaive builds are those of pylance, list by list, and it searches them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError
from glaive.index.index_file import IndexFile
from glaive.index.text.fst_read import read_fst
from glaive.index.text.params import TextParams
from glaive.index.text.tokenizers.tokenizer import Tokenizer
from glaive.io.uri import open_store

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


@pytest.mark.parametrize("positions", [False, True], ids=["", "positions"])
@pytest.mark.parametrize(
    "options",
    [{"format_version": 1}, {}, {"format_version": "v3"}, {"block_size": 256}],
    ids=str,
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


def details(dataset: Any) -> list[Any]:
    return [
        (entry.index_details.type_url, entry.index_details.value, entry.index_version)
        for entry in dataset._snapshot.manifest.indices  # noqa: SLF001  # as it is stored
    ]


ROWS_OF_LISTS = [
    ["quick fox", "the Dog"], None, [], ["cat", None, "quick"], [None], ["the"], [""], ["", "cat"],
]  # fmt: skip


@pytest.mark.parametrize("granularity", ["row", "list_element"])
@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.large_string())], ids=str)
def test_lists_of_texts(tmp_path: Path, kind: pa.DataType, granularity: str) -> None:
    options = {"document_granularity": lance.query.DocumentGranularity(granularity)}
    column = pa.array(ROWS_OF_LISTS, kind)
    assert_same_index(by_both(tmp_path, column, with_position=True, **options))


DOCUMENTS = [
    '{"b": "the quick brown FOXES", "a": "Jumps", "Z": {"y": "x y", "x": [["n"], {"k": "é"}]}}',
    '{"f": 1.0, "g": 1e20, "h": -0.5, "i": 12345678901234567890, "k": 1e-7, "m": true, "n": null}',
    '{"": "empty key", "a.b": "dotted", "Key With": "space", "x": "", "y": [], "z": {}}',
    '"just the text"', "[]", "null", "7", "[1, 2, [false]]", None,
    '{"' + "p" * 50 + '": "' + "w" * 39 + " " + "v" * 40 + '"}',
]  # fmt: skip


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
