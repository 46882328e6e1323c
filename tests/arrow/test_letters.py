"""Words of texts: vowel signs and circled letters are parts of them, as in indices of texts."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.expr.functions.calls import evaluate

import glaive
from glaive.arrow.letters import is_alphanumeric, words_of
from glaive.index.text import base_tokenizers

HINDI, OTHER = "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0939\u093f\u0928\u094d\u0926\u0942"
THAI = "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35"


def test_words_have_the_characters_that_tokens_have() -> None:
    for number in [*range(0x3000), 0x1F150, sys.maxunicode]:
        assert is_alphanumeric(chr(number)) == base_tokenizers.is_alphanumeric(chr(number))
    assert words_of(f"{THAI}, x1 \u24d0-y") == [THAI, "x1", "\u24d0", "y"]


@pytest.mark.spec("rel-12")
def test_words_with_vowel_signs_are_found_whole(tmp_path: Path) -> None:
    texts = [f"{HINDI} x", f"{OTHER} y", f"a {THAI}", "x\u24d0y", None]
    dataset = glaive.write_dataset(pa.table({"id": range(5), "s": texts}), tmp_path / "t")
    plain = {"stem": False, "remove_stop_words": False, "ascii_folding": False}
    for _ in range(2):
        for word, ids in (
            (HINDI, [0]),
            (OTHER, [1]),
            (THAI, [2]),
            (THAI[0], []),
            ("x\u24d0y", [3]),
            ("x", [0]),
        ):
            found = dataset.to_table(filter=f"contains_tokens(s, '{word}')")["id"]
            assert found.to_pylist() == ids, word
        dataset.create_scalar_index("s", "INVERTED", base_tokenizer="simple", **plain)


def test_capitals_begin_words_behind_other_characters_only() -> None:
    rows = pa.table({"s": ["\u24d0\u00c9x \u0939\u093fA a-b"]})
    assert evaluate("initcap(s)", rows).to_pylist() == ["\u24b6\u00e9x \u0939\u093fa A-B"]
