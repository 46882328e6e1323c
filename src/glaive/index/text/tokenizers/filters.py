"""What is done to tokens: each distinct one once.

Dropped if too long, lower-cased, stemmed, dropped if a stop word, folded to ASCII: in this order.

Specification: "Filters" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.scalars import constants, scalar
from glaive.arrow.utf8 import refuse_half_characters
from glaive.errors import MissingDependencyError
from glaive.index.text.params import TextParams
from glaive.index.text.tokenizers.case import lower_case
from glaive.index.text.tokenizers.stop_words import stop_words

__all__ = ["TokenFilters", "fold"]


_LETTERS: Final = {
    "æ": "ae", "Æ": "AE", "ð": "d", "Ð": "D", "ø": "o", "Ø": "O", "þ": "th", "Þ": "TH",
    "ß": "ss", "ẞ": "SS", "đ": "d", "Đ": "D", "ħ": "h", "Ħ": "H",
    "\N{LATIN SMALL LETTER DOTLESS I}": "i", "ĸ": "k", "ł": "l", "Ł": "L",
    "ŋ": "n", "Ŋ": "N", "œ": "oe", "Œ": "OE", "ŧ": "t", "Ŧ": "T",
}  # fmt: skip
"""Letters that do not decompose."""

_OUTLINED: Final = {
    "\ua7f1": "S",
    **{chr(0x1CCD6 + at): chr(ord("A") + at) for at in range(26)},
    **{chr(0x1CCF0 + at): chr(ord("0") + at) for at in range(10)},
}
"""Letters and digits of Unicode 16 and 17 that decompose into those of ASCII."""


class _Folded(dict[int, str]):
    """What stands for a character in ASCII, or itself: for ``str.translate``."""

    def __missing__(self, number: int) -> str:
        character = chr(number)
        parts = unicodedata.normalize("NFKD", _OUTLINED.get(character, character))
        folded = "".join(part if part.isascii() else _LETTERS.get(part, "") for part in parts)
        self[number] = folded or character
        return self[number]


_FOLDED: Final = _Folded()


def fold(token: str) -> str:
    """The token with characters of ASCII where its own decompose into such."""
    return token if token.isascii() else token.translate(_FOLDED)


class TokenFilters:
    """The filters of an index.

    Parameters
    ----------
    params
        Which, and with which words.

    Raises
    ------
    MissingDependencyError
        Tokens are to be stemmed, and PyStemmer is not installed.
    """

    def __init__(self, params: TextParams) -> None:
        self._max_bytes = params.max_token_length
        self._lower_case, self._fold = params.lower_case, params.ascii_folding
        self._stop_words: Any = None
        if params.remove_stop_words:
            words = params.custom_stop_words
            chosen = stop_words(params.language) if words is None else frozenset(words)
            with refuse_half_characters("custom_stop_words"):
                self._stop_words = constants(sorted(chosen), pa.large_string())
        self._language = params.language.lower() if params.stem else None
        if params.stem:
            _stemmer(params.language.lower())

    def apply(self, tokens: Any) -> Any:
        """What becomes of each token; null: it is dropped.

        Parameters
        ----------
        tokens
            ``large_binary`` without nulls, UTF-8 as far as it is not damaged.

        Returns
        -------
        pyarrow.Array
            ``large_string``.
        """
        none: Any = scalar(None, pa.large_string())
        long = None
        if self._max_bytes is not None:
            sizes: Any = pc.binary_length(tokens)
            limit: Any = scalar(self._max_bytes, pa.int64())
            long = pc.greater_equal(sizes, limit)
            # They are dropped in the end: until then they are empty, and cost nothing.
            tokens = pc.if_else(long, scalar(b"", pa.large_binary()), tokens)
        words = _decoded(tokens)
        if self._lower_case:
            words = _mapped(lower_case, pc.ascii_lower(words))
        if self._language is not None:
            # Stemmers are not safe to share between threads.
            words = constants(_stemmer(self._language)(words.to_pylist()), pa.large_string())
        stopped = None
        if self._stop_words is not None and len(self._stop_words):
            stopped = pc.is_in(words, value_set=self._stop_words)
        if self._fold:
            words = _mapped(fold, words)
        for dropped in (long, stopped):
            if dropped is not None:
                words = pc.if_else(dropped, none, words)
        return words


def _decoded(tokens: Any) -> Any:
    """Tokens as text; damaged ones with characters that stand for what cannot be decoded."""
    try:
        return tokens.cast(pa.large_string())
    except pa.ArrowInvalid:
        texts = [token.decode(errors="replace") for token in tokens.to_pylist()]
        return pa.array(texts, pa.large_string())


def _mapped(change: Callable[[str], str], words: Any) -> Any:
    """Words of which those with characters beyond ASCII are changed."""
    wide = pc.invert(pc.string_is_ascii(words))
    changed = [change(word) for word in words.filter(wide).to_pylist()]
    if not changed:
        return words
    return pc.replace_with_mask(words, wide, constants(changed, pa.large_string()))


def _stemmer(language: str) -> Callable[[list[str]], list[str]]:
    try:
        from Stemmer import Stemmer
    except ImportError as error:
        raise MissingDependencyError(
            "stemming needs PyStemmer: pip install 'PyStemmer>=3.1', or set stem=False"
        ) from error
    stem: Any = Stemmer(language)
    # Tokens are distinct: a cache of them is only in the way.
    stem.maxCacheSize = 0
    stems: Callable[[list[str]], list[str]] = stem.stemWords
    return stems
