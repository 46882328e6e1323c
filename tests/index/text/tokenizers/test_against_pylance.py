"""Tokens of glaive and of pylance are the same, positions included."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.errors import OptionError
from glaive.index.text.base_tokenizers import is_capital, is_small, lower_case
from glaive.index.text.text_format import LANGUAGES, TextParams
from glaive.index.text.tokenizers import Tokenizer, fold, stop_words

lance = pytest.importorskip("lance", reason="install the 'interop' group")
pytestmark = pytest.mark.interop

EVERY = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 16
"""Of so many characters above the alphabets one is tried."""

PLAIN = {"stem": False, "remove_stop_words": False, "ascii_folding": False, "lower_case": False}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.text(
    "aAeE sßİΣé日本-_.,'0 9\t\n\x0b\u0301\u3000𝄞", max_size=40
)
WORDS = st.lists(
    st.sampled_from(["the", "running", "Runs", "of", "CATS", "connection's", "I", "Über", "日本"])
    | st.text("abcdefghijklmnoprstuvy", max_size=44),
    max_size=8,
).map(" ".join)


def by_pylance(text: str, **options: Any) -> list[tuple[str, int]]:
    return [(token.text, token.position) for token in lance.tokenize(text, **options)]


def by_glaive(text: str, **options: Any) -> list[tuple[str, int]]:
    """Tokens with the first one at position 0, as pylance's function counts."""
    tokens = Tokenizer.of(TextParams.of(options)).tokens(text)
    return [(token, position - tokens[0][1]) for token, position in tokens]


@pytest.mark.parametrize("base", ["simple", "whitespace", "raw", "ngram"])
@given(text=TEXTS)
def test_any_text(base: str, text: str) -> None:
    assert by_glaive(text, base_tokenizer=base) == by_pylance(text, base_tokenizer=base)


@given(text=TEXTS, shortest=st.integers(1, 4), more=st.integers(0, 3), prefix=st.booleans())
def test_ngrams(text: str, shortest: int, more: int, prefix: bool) -> None:
    options: dict[str, Any] = {
        "base_tokenizer": "ngram", "min_ngram_length": shortest,
        "max_ngram_length": shortest + more, "prefix_only": prefix,
    }  # fmt: skip
    assert by_glaive(text, **options) == by_pylance(text, **options)


@given(
    text=WORDS,
    flags=st.fixed_dictionaries(dict.fromkeys(PLAIN, st.booleans())),
    longest=st.sampled_from([None, 0, 3, 40, 100]),
    words=st.sampled_from([None, ["run", "cat"], []]),
)
@pytest.mark.spec("text-26")
def test_filters(text: str, flags: dict[str, bool], longest: int | None, words: Any) -> None:
    options = {**flags, "max_token_length": longest, "custom_stop_words": words}
    assert by_glaive(text, **options) == by_pylance(text, **options)


@pytest.mark.spec("text-27", "text-30")
def test_each_character_is_a_letter_or_not_has_a_small_one_and_one_of_ascii() -> None:
    numbers = [*range(0x3000), *range(0x3000, 0xD800, EVERY), *range(0xE000, 0x110000, EVERY)]
    text = " ".join(f"a{chr(number)}b" for number in numbers)
    for change in ({}, {"lower_case": True}):
        options = {**PLAIN, **change}
        assert by_glaive(text, **options) == by_pylance(text, **options)
    text = "".join(f"a{chr(number)}b " for number in numbers if chr(number) not in "\t\n\f\r ")
    options = {**PLAIN, "lower_case": True, "ascii_folding": True, "base_tokenizer": "whitespace"}
    assert [fold(lower_case(word)) for word in text.split(" ")[:-1]] == [
        token for token, _ in by_pylance(text, **options)
    ]


CODE = st.text("aAbB_xYzZ019é日Ⅷǅ-+*/<>=!&|?:.~^% (\t", max_size=30)


@given(
    text=CODE | TEXTS,
    flags=st.fixed_dictionaries(dict.fromkeys(TextParams.CODE_FLAGS, st.booleans())),
    longest=st.sampled_from([None, 3, 40]),
)
@pytest.mark.spec("text-39", "text-40", "text-41")
def test_code(text: str, flags: dict[str, bool], longest: int | None) -> None:
    options = {"analyzer": "code", "max_token_length": longest, **flags}
    assert by_glaive(text, **options) == by_pylance(text, **options)


@pytest.mark.spec("text-39")
def test_identifiers_are_cut_at_every_capital_letter() -> None:
    letters = [chr(number) for number in range(0x80, 0x110000) if chr(number).isalnum()]
    letters = [*letters, *"\u1c89\u1c8a\ua7dc\U00010d50\U00010d70\U0001e030\u0295"]
    options = {**PLAIN, "analyzer": "code", "split_identifiers": True, "preserve_original": False}
    for pattern, cuts in (("x{}", is_capital), ("{}B", is_small)):
        text = " ".join(map(pattern.format, letters))
        tokens = [token for token, _ in by_pylance(text, **options)]
        assert len(tokens) == len(letters) + sum(map(cuts, letters))


IDENTIFIERS: dict[str, tuple[str, dict[str, bool], str]] = {
    "parts": ("fooBar_baz x9", {}, "foo Bar baz x9"),
    "capitals": ("HTTPServer fooBAR IDs v2Beta", {}, "HTTP Server foo BAR I Ds v2Beta"),
    "underscores": ("_private__x _x_ _", {}, "private x _x_ _"),
    "digits": ("Server2x x9", {"split_on_numerics": True}, "Server 2 x x 9"),
    "whole": ("fooBar_baz", {"split_identifiers": False}, "fooBar_baz"),
    "with the original": ("a fooBar x9", {"preserve_original": True}, "a fooBar foo Bar x9"),
}


@pytest.mark.spec("text-39", "text-40")
@pytest.mark.parametrize("name", IDENTIFIERS)
def test_identifiers_are_cut_into_parts(name: str) -> None:
    text, change, expected = IDENTIFIERS[name]
    flags = dict.fromkeys(TextParams.CODE_FLAGS, False) | {"split_identifiers": True}
    options = {**PLAIN, "analyzer": "code", **flags, **change}
    found = by_glaive(text, **options)
    assert found == by_pylance(text, **options)
    assert [token for token, _ in found] == expected.split()
    if change.get("preserve_original"):
        assert [position for _, position in found] == [0, 1, 1, 2, 3]


OPERATORS = [
    *"!%&*+-/:<=>?^|~",
    *("!=", "!==", "%=", "&&", "&&=", "&=", "**", "**=", "*=", "++", "+=", "--", "-=", "->", "//"),
    *("//=", "/=", "::", ":=", "<-", "<<", "<<=", "<=", "<=>", "==", "===", "=>", ">=", ">>"),
    *(">>=", ">>>", ">>>=", "??", "??=", "^=", "|=", "|>", "||", "||=", "~="),
]


@pytest.mark.spec("text-41")
def test_operators_are_tokens_the_longest_first() -> None:
    options = {**PLAIN, "analyzer": "code", "index_operators": True}
    texts = [*OPERATORS, *(f"{one}<{other}" for one in OPERATORS for other in OPERATORS)]
    expected = []
    for text in texts:
        at = 0
        while at < len(text):
            size = max(size for size in range(1, 5) if text[at : at + size] in OPERATORS)
            expected.append(text[at : at + size])
            at += size
    found = by_glaive(" ".join(texts), **options)
    assert [token for token, _ in found] == expected
    assert found == by_pylance(" ".join(texts), **options)
    assert by_glaive("@ # $ ( ) , . ; [ ] { } \" ' \\ ` x", **options) == [("x", 0)]


FILTERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "bytes": ("日本 日本語 abcdefgh abcdefghi", {"max_token_length": 9}, "日本 abcdefgh"),
    "each character by itself": ("ΟΔΟΣ Σ İx", {"lower_case": True}, "οδοσ σ i\u0307x"),
    "stems before stop words": (
        "doing very flies the",
        {"stem": True, "remove_stop_words": True},
        "veri fli",
    ),
    "stop words as they stand": ("The the does", {"remove_stop_words": True}, "The"),
    "small letters before stems": ("FLIES", {"lower_case": True, "stem": True}, "fli"),
    "stop words before ASCII": (
        "même MÊME meme",
        {"language": "French", "remove_stop_words": True, "ascii_folding": True},
        "MEME meme",
    ),
    "by their look": (
        "ø Æ ß ł naïve \ufb01ne ½x 日Ж",
        {"ascii_folding": True},
        "o AE ss l naive fine 12x 日Ж",
    ),
}


@pytest.mark.spec("text-26", "text-27", "text-28", "text-29", "text-30")
@pytest.mark.parametrize("name", FILTERS)
def test_filters_come_in_one_order(name: str) -> None:
    text, change, expected = FILTERS[name]
    options = {**PLAIN, **change}
    found = by_glaive(text, **options)
    assert [token for token, _ in found] == expected.split(" ")
    assert found == by_pylance(text, **options)


@pytest.mark.sampled(every=2)
@pytest.mark.spec("text-29")
@pytest.mark.parametrize("language", LANGUAGES)
def test_stop_words_of_every_language(language: str) -> None:
    candidates = sorted(frozenset().union(*map(stop_words, LANGUAGES)))
    options = {**PLAIN, "base_tokenizer": "whitespace", "language": language}
    options["remove_stop_words"] = True
    text = " ".join(candidates)
    assert by_glaive(text, **options) == by_pylance(text, **options)


@pytest.mark.sampled(every=7)
@pytest.mark.spec("text-28")
@pytest.mark.parametrize("language", LANGUAGES)
def test_stems_of_every_language(language: str) -> None:
    words = sorted(frozenset().union(*map(stop_words, LANGUAGES)))
    text = " ".join(word + ending for word in words for ending in ("", "s", "en", "ами", "ler"))
    options = {**PLAIN, "base_tokenizer": "whitespace", "language": language, "stem": True}
    assert by_glaive(text, **options) == by_pylance(text, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"base_tokenizer": "none"},
        {"language": "english"},
        {"base_tokenizer": "ngram", "min_ngram_length": 0},
        {"base_tokenizer": "ngram", "min_ngram_length": 4},
        {"analyzer": "query"},
        {"analyzer": "code", "base_tokenizer": "simple"},
        {"index_operators": True},
    ],
    ids=str,
)
def test_what_one_refuses_the_other_does_too(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        by_glaive("text", **options)
    with pytest.raises(ValueError, match=r"unknown|must|require|only|can't"):
        by_pylance("text", **options)
