"""N-grams by the parameters of a stranger's index."""

from __future__ import annotations

import tracemalloc

import pytest

from glaive.errors import UnsupportedFeatureError
from glaive.index.text.text_format import TextParams
from glaive.index.text.tokenizers import Tokenizer


def ngrams(text: str, **options: object) -> list[str]:
    """The tokens of a text."""
    params = TextParams.of({"base_tokenizer": "ngram", "lower_case": False, **options})
    return [token for token, _ in Tokenizer.of(params).tokens(text)]


@pytest.mark.spec("rel-24")
def test_ngrams_longer_than_a_token_may_be_take_no_memory() -> None:
    text = "abcdefghij" * 2_000
    ngrams("abc", min_ngram_length=1)
    tracemalloc.start()
    found = ngrams(text, min_ngram_length=1, max_ngram_length=2**32 - 1, max_token_length=4)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 3 * len(text) - 3
    assert found[:4] == ["a", "ab", "abc", "b"]
    assert most < 50 << 20


@pytest.mark.nightly(reason="makes ngrams of a long text")
@pytest.mark.spec("rel-25")
def test_ngrams_of_a_text_are_not_as_many_as_the_square_of_its_characters() -> None:
    options = {"min_ngram_length": 1, "max_ngram_length": 2**32 - 1, "max_token_length": None}
    assert len(ngrams("a" * 100, **options)) == 5050
    with pytest.raises(UnsupportedFeatureError, match="=4294967295 make 200010000 tokens"):
        ngrams("ab" * 10_000, **options)
    assert len(ngrams("ab" * 30_000, **{**options, "max_ngram_length": 64})) == 64 * 60_000 - 2016


def test_a_text_shorter_than_its_ngrams_has_none() -> None:
    assert ngrams("ab", min_ngram_length=3) == []
    assert ngrams("abcdef", min_ngram_length=5, max_ngram_length=6, max_token_length=5) == []
