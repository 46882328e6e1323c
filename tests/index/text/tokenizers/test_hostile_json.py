"""JSON documents of few bytes whose tokens take much memory, and texts that are no JSON."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from glaive.arrow.jsonb import encode_jsonb
from glaive.errors import CorruptFileError, LimitError
from glaive.index.text.text_format import TextParams
from glaive.index.text.tokenizers import JsonNumbers, TokenChain

NAME = "n" * 300_000


def numbered(documents: list[str], *, stored: bool = False) -> Any:
    """Number the tokens of documents; ``stored`` as JSONB."""
    texts: Any = pa.array(documents, pa.string())
    return JsonNumbers(TokenChain.of(TextParams.of({}))).number(
        encode_jsonb(texts) if stored else texts
    )


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    "document",
    [
        f'{{"{NAME}": {{{", ".join(f"{chr(34)}{i}{chr(34)}: {{}}" for i in range(4_000))}}}}}',
        f'{{"{NAME}": "{" ".join(f"w{i}" for i in range(4_000))}"}}',
    ],
    ids=["members", "words"],
)
def test_long_names_above_many_values_take_no_more_than_a_limit(
    document: str, stored: bool
) -> None:
    with pytest.raises(LimitError, match=r"paths of long names.*GLAIVE_MAX_DECODED_BYTES_PER_PAGE"):
        numbered([document], stored=stored)


@pytest.mark.parametrize(
    "document", ["", "{", "nope", "[" * 100_000, '{"a":' * 200 + "1" + "}" * 200, "1 2"]
)
def test_texts_that_are_no_json_are_damage(document: str) -> None:
    with pytest.raises(CorruptFileError, match="a JSON document"):
        numbered(['{"a": "b"}', document])


def test_items_of_a_list_share_the_path_of_the_list() -> None:
    found = numbered([f'{{"{NAME}": [1, 1, 2]}}', '{"a": {"b": "c d"}}'])
    assert found.counts.tolist() == [3, 2]
    assert found.numbers.tolist() == [0, 0, 1, 2, 3]
