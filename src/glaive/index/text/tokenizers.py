"""Turn texts into tokens: base tokenizer, filters, and numbers of distinct tokens.

Specification: "Tokenizers" in ``docs/format/text-tokenizers.md``.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.blocks import Variable
from glaive.arrow.build import block_from_array, validity_flags
from glaive.arrow.chunked import as_numpy
from glaive.arrow.conditions import constants, scalar
from glaive.arrow.jsonb import MAX_DEPTH, decode_jsonb
from glaive.arrow.validation import refuse_half_characters
from glaive.config import USUAL_RATIO, settings
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import (
    CorruptFileError,
    LimitError,
    MissingDependencyError,
    OptionError,
    SchemaError,
)
from glaive.index.text.base_tokenizers import BaseTokenizer, Pieces, base_tokenizer_of, lower_case
from glaive.index.text.text_format import TextParams
from glaive.kernels.hashing import Vocabulary
from glaive.kernels.strings import Strings
from glaive.types import Int64s, UInt32s, as_array

# --- Stop words: words that are too frequent to index -----------------------------------
# The folder ``words`` has a file per language, with words separated by white space.
#
# Specification: "Filters" in ``docs/format/text-tokenizers.md``.


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language of ``LANGUAGES``, in lower case."""
    file = files("glaive.index.text") / "words" / f"{language.lower()}.txt"
    return frozenset(file.read_text("utf-8").split())


# --- Filter tokens, each distinct token once --------------------------------------------
# Drop if too long, lower-case, stem, drop if a stop word, fold to ASCII: in this order.
#
# Specification: "Filters" in ``docs/format/text-tokenizers.md``.

_LETTERS: Final = {
    "æ": "ae", "Æ": "AE", "ð": "d", "Ð": "D", "ø": "o", "Ø": "O", "þ": "th", "Þ": "TH",
    "ß": "ss", "ẞ": "SS", "đ": "d", "Đ": "D", "ħ": "h", "Ħ": "H",
    "\N{LATIN SMALL LETTER DOTLESS I}": "i", "ĸ": "k", "ł": "l", "Ł": "L",
    "ŋ": "n", "Ŋ": "N", "œ": "oe", "Œ": "OE", "ŧ": "t", "Ŧ": "T",
}  # fmt: skip
"""ASCII forms of letters that a decomposition by Unicode keeps whole."""

_OUTLINED: Final = {
    "\ua7f1": "S",
    **{chr(0x1CCD6 + at): chr(ord("A") + at) for at in range(26)},
    **{chr(0x1CCF0 + at): chr(ord("0") + at) for at in range(10)},
}
"""Letters and digits of Unicode 16 and 17 that decompose into ASCII."""


class _Folded(dict[int, str]):
    """ASCII replacement of each character, or the character itself, for ``str.translate``."""

    def __missing__(self, number: int) -> str:
        character = chr(number)
        parts = unicodedata.normalize("NFKD", _OUTLINED.get(character, character))
        folded = "".join(part if part.isascii() else _LETTERS.get(part, "") for part in parts)
        self[number] = folded or character
        return self[number]


_FOLDED: Final = _Folded()


def fold(token: str) -> str:
    """Replace characters that decompose into ASCII."""
    return token if token.isascii() else token.translate(_FOLDED)


class TokenFilters:
    """The token filters of an index.

    Parameters
    ----------
    params
        Choice of filters, and their words.

    Raises
    ------
    MissingDependencyError
        Stemming is on, and PyStemmer is not installed.
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
        """Filter tokens; a null in the result is a dropped token.

        Parameters
        ----------
        tokens
            Valid ``large_binary`` values; UTF-8 unless damaged.

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
            # Long tokens are dropped at the end; until then they are empty, for fast filters.
            tokens = pc.if_else(long, scalar(b"", pa.large_binary()), tokens)
        words = _decoded(tokens)
        if self._lower_case:
            words = _mapped(lower_case, pc.ascii_lower(words))
        if self._language is not None:
            # A stemmer belongs to one thread: make one per call.
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
    """Decode tokens; replace bytes of invalid UTF-8."""
    try:
        return tokens.cast(pa.large_string())
    except pa.ArrowInvalid:
        texts = [token.decode(errors="replace") for token in tokens.to_pylist()]
        return constants(texts, pa.large_string())


def _mapped(change: Callable[[str], str], words: Any) -> Any:
    """Apply a function to the words with characters beyond ASCII."""
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
    # Tokens are distinct: a cache would only cost time.
    stem.maxCacheSize = 0
    stems: Callable[[list[str]], list[str]] = stem.stemWords
    return stems


# --- Number the distinct tokens of many texts: Python handles each token once -----------
# Specification: "Tokenizers" in ``docs/format/text-tokenizers.md``.


class TokenChain:
    """A base tokenizer and filters. Safe to share between threads."""

    def __init__(self, base: BaseTokenizer, filters: TokenFilters) -> None:
        self._base, self._filters = base, filters

    @classmethod
    def of(cls, params: TextParams) -> Self:
        """Return the chain of an index; raises as :meth:`Tokenizer.of` does."""
        return cls(base_tokenizer_of(params), TokenFilters(params))

    def split(self, texts: Any) -> Pieces:
        """Cut an array of texts into tokens, before filters; a null counts as empty."""
        present = texts.drop_null() if texts.null_count else texts
        block = block_from_array(present)
        if not isinstance(block, Variable):
            raise SchemaError(f"a full-text index takes text, not {texts.type}")
        strings = Strings(block.offsets, block.offset_bits, block.data)
        pieces = self._base.split(strings, len(present))
        valid = validity_flags(texts)
        if valid is None:
            return pieces
        counts = np.zeros(len(texts), np.int64)
        counts[valid] = pieces.counts
        return pieces._replace(counts=counts)

    def filter(self, tokens: Any) -> Any:
        """Filter distinct tokens; a null in the result is a dropped token."""
        return self._filters.apply(tokens)


class NumberedTokens(NamedTuple):
    """Tokens of texts, as numbers.

    Parameters
    ----------
    numbers
        Number of each token, text by text.
    positions
        Position of each token in its text.
    counts
        Number of tokens of each text.
    """

    numbers: UInt32s
    positions: UInt32s
    counts: Int64s


class TokenNumbers:
    """Distinct tokens, numbered by first occurrence. Use an object in one thread only.

    Parameters
    ----------
    chain
        Tokenizes texts.
    """

    def __init__(self, chain: TokenChain) -> None:
        self._chain = chain
        self._pieces = Vocabulary()
        self._tokens = Vocabulary()
        self._of_piece = np.zeros(0, np.int32)
        """Number of the token of each piece; -1: dropped."""

    @property
    def strings(self) -> Any:
        """Tokens by number, as ``large_binary``; a copy."""
        return self._tokens.strings()

    @property
    def tokens(self) -> list[str]:
        """Tokens by number; a copy."""
        tokens: list[str] = self.strings.cast(pa.large_string()).to_pylist()
        return tokens

    @property
    def count(self) -> int:
        """Number of distinct tokens."""
        return len(self._tokens)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._pieces.nbytes + self._tokens.nbytes + int(self._of_piece.nbytes)

    def number(self, texts: Any) -> NumberedTokens:
        """Tokenize an array of texts; a null counts as empty.

        Cost: some kernel steps per character and token, and a Python step per new token.

        Raises
        ------
        SchemaError
            The array has other values than texts.
        """
        pieces = self._chain.split(texts)
        of_text = self._pieces.number(pieces.data, pieces.starts, pieces.sizes)
        self._filter_new()
        numbers = self._of_piece[of_text]
        positions: Any = pieces.positions
        if positions is None:
            before = (np.cumsum(pieces.counts) - pieces.counts).astype(np.uint32)
            positions = np.arange(len(numbers), dtype=np.uint32)
            positions -= np.repeat(before, pieces.counts)
        kept = numbers >= 0
        counts = pieces.counts
        if not kept.all():
            ends = np.concatenate(([0], np.cumsum(kept)))[np.cumsum(counts)]
            counts = np.diff(ends, prepend=0)
            numbers, positions = numbers[kept], positions[kept]
        return NumberedTokens(numbers.astype(np.uint32), positions, counts)

    def _filter_new(self) -> None:
        known = len(self._of_piece)
        if known == len(self._pieces):
            return
        tokens = self._chain.filter(self._pieces.strings(known))
        valid = validity_flags(tokens)
        kept = slice(None) if valid is None else valid
        self._of_piece = np.concatenate((self._of_piece, np.full(len(tokens), -1, np.int32)))
        self._of_piece[known:][kept] = self._number_tokens(tokens.drop_null())

    def _number_tokens(self, tokens: Any) -> UInt32s:
        """Return the numbers of tokens, given as strings; add new tokens."""
        block: Any = block_from_array(tokens)
        ends = as_array(block.offsets, np.int64)[: len(tokens) + 1]
        return self._tokens.number(block.data, ends[:-1], np.diff(ends).astype(np.uint32))


# --- Values of JSON documents, with their paths, row by row -----------------------------
# Specification: "JSON columns" in ``docs/format/text-tokenizers.md``.


class JsonValue(NamedTuple):
    """A JSON value other than an object or an array.

    Parameters
    ----------
    path
        Names of the members that lead to the value, joined by dots.
    kind
        ``"str"``, ``"number"``, ``"bool"`` or ``"null"``.
    text
        The string, or the value as JSON.
    """

    path: str
    kind: str
    text: str


class JsonBudget:
    """Limit of the characters of paths, which values and tokens repeat.

    Parameters
    ----------
    stored
        Total bytes of the documents.
    """

    __slots__ = ("_left", "_limit", "_stored")

    def __init__(self, stored: int) -> None:
        self._stored = stored
        self._left = self._limit = max(settings.max_decoded_bytes_per_page, USUAL_RATIO * stored)

    def take(self, characters: int) -> None:
        """Use up some characters.

        Raises
        ------
        LimitError
            The limit is exceeded.
        """
        self._left -= characters
        if self._left < 0:
            raise LimitError(
                f"JSON documents of {self._stored} bytes have paths of long names that take more "
                f"than {self._limit} bytes with each of their values and tokens. If the dataset is "
                "trusted, allow more: set GLAIVE_MAX_DECODED_BYTES_PER_PAGE."
            )


class _Number(str):
    """A number as written in the document."""

    __slots__ = ()


def json_values(documents: Iterable[str], budget: JsonBudget) -> Iterator[list[JsonValue]]:
    """Yield the values of each document in order; items of an array have the path of the array.

    Raises
    ------
    CorruptFileError
        A document is invalid JSON, or nested too deeply.
    LimitError
        The paths exceed the budget.
    """
    for text in documents:
        try:
            document = json.loads(
                text, parse_int=_Number, parse_float=_Number, parse_constant=_Number
            )
        except (ValueError, RecursionError) as error:
            raise _no_document(text, "JSON") from error
        yield list(_values("", document, text, MAX_DEPTH, budget))


def _values(
    path: str, value: Any, text: str, levels: int, budget: JsonBudget
) -> Iterator[JsonValue]:
    if isinstance(value, dict | list):
        if not levels:
            raise _no_document(text, f"JSON of at most {MAX_DEPTH} levels")
        members = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        for name, member in members:
            below = path
            if name is not None:
                budget.take(len(path) + len(name) + 1)
                below = f"{path}.{name}" if path else name
            yield from _values(below, member, text, levels - 1, budget)
    elif isinstance(value, _Number):
        yield JsonValue(path, "number", value)
    elif isinstance(value, str):
        yield JsonValue(path, "str", value)
    elif value is None:
        yield JsonValue(path, "null", "null")
    else:
        yield JsonValue(path, "bool", "true" if value else "false")


def _no_document(text: str, expected: str) -> CorruptFileError:
    return CorruptFileError(
        "a JSON document", expected=expected, found=f"{text!r:.80}", where="the column of an index"
    )


# --- Tokens of JSON: ``path,type,value``; strings are cut and filtered like texts -------
# Documents are read row by row.
#
# Specification: "JSON columns" in ``docs/format/text-tokenizers.md``.

_KINDS = ("str", "number", "bool", "null")


def split_query(text: str) -> tuple[str, str, str]:
    """Split a query of a JSON column into path, type and value.

    Raises
    ------
    OptionError
        The query has another form, or the type is unknown.
    """
    for kind in _KINDS:
        path, found, value = text.partition(f",{kind},")
        if found:
            return path, kind, value
    raise OptionError(
        f"a query of a JSON column is 'path,type,value', with a type of {', '.join(_KINDS)}; "
        f"found {text!r}"
    )


class JsonNumbers(TokenNumbers):
    """Distinct tokens of JSON documents, numbered by first occurrence."""

    def __init__(self, chain: TokenChain) -> None:
        super().__init__(chain)
        self._words = TokenNumbers(chain)

    def number(self, texts: Any) -> NumberedTokens:
        """Tokenize an array of JSONB; a null counts as empty.

        Raises
        ------
        CorruptFileError
            A value is invalid JSONB or JSON.
        LimitError
            Many values or tokens repeat long paths.
        """
        present: Any = texts.drop_null()
        if pa.types.is_binary(present.type) or pa.types.is_large_binary(present.type):
            present = decode_jsonb(present, "the column of an index")
        budget = JsonBudget(present.nbytes)
        values = list(json_values(present.to_pylist(), budget))
        strings = [value.text for found in values for value in found if value.kind == "str"]
        words = self._words.number(constants(strings, pa.large_string()))
        names, numbers = self._words.tokens, words.numbers.tolist()
        ends = np.cumsum(words.counts).tolist()
        named: list[str] = []
        counts, at, begin = [], 0, 0
        for found in values:
            before = len(named)
            for value in found:
                tokens = [value.text]
                if value.kind == "str":
                    tokens = [names[number] for number in numbers[begin : ends[at]]]
                    begin, at = ends[at], at + 1
                budget.take(len(value.path) * len(tokens))
                named += [f"{value.path},{value.kind},{token}" for token in tokens]
            counts.append(len(named) - before)
        of_text = np.zeros(len(texts), np.int64)
        of_text[as_numpy(texts.is_valid())] = counts
        positions = np.arange(len(named)) - np.repeat(np.cumsum(of_text) - of_text, of_text)
        found_numbers = self._number_tokens(constants(named, pa.large_string()))
        return NumberedTokens(found_numbers, positions.astype(np.uint32), of_text)


class Tokenizer:
    """Tokenizes texts with the parameters of an index. Safe to share between threads."""

    def __init__(self, chain: TokenChain, *, is_json: bool) -> None:
        self._chain, self._is_json = chain, is_json

    @classmethod
    def of(cls, params: TextParams) -> Self:
        """Return the tokenizer of an index.

        Raises
        ------
        OptionError
            The tokenizer is unsupported.
        MissingDependencyError
            A required package is not installed.
        """
        return cls(TokenChain.of(params), is_json=params.lance_tokenizer == "json")

    def tokens(self, text: str) -> list[tuple[str, int]]:
        """Return the tokens of a query with their positions; a dropped token leaves a gap.

        Raises
        ------
        OptionError
            A query of a JSON column has another form than ``path,type,value``.
        """
        if not self._is_json:
            return self._words(text)

        path, kind, value = split_query(text)
        if kind != "str":
            return [(text, 0)]
        return [(f"{path},{kind},{token}", position) for token, position in self._words(value)]

    def numbers(self) -> TokenNumbers:
        """Return an object that tokenizes many texts, with a Python step per distinct token only.

        For a JSON column, it takes some Python steps per value of a document.
        """
        if not self._is_json:
            return TokenNumbers(self._chain)

        return JsonNumbers(self._chain)

    def _words(self, text: str) -> list[tuple[str, int]]:
        numbers = TokenNumbers(self._chain)
        with refuse_half_characters("text"):
            given = constants([text], pa.large_string())
        found = numbers.number(given)
        named = numbers.tokens
        pairs = zip(found.numbers.tolist(), found.positions.tolist(), strict=True)
        return [(named[number], position) for number, position in pairs]


# --- Tokenize a query for callers who lack an index -------------------------------------
# Specification: "Tokenizers" in ``docs/format/text-tokenizers.md``.


@dataclass(frozen=True, slots=True)
class FtsToken:
    """A token of a query.

    Parameters
    ----------
    text
        Text of the token after all filters.
    position
        Number of tokens after the first token, including dropped tokens.
    """

    text: str
    position: int


def tokenize(  # noqa: PLR0913  # the options of pylance's
    query: str,
    *,
    analyzer: Literal["text", "code"] | None = None,
    base_tokenizer: str | None = None,
    language: str | None = None,
    max_token_length: int | None = 40,
    lower_case: bool | None = None,
    stem: bool | None = None,
    remove_stop_words: bool | None = None,
    custom_stop_words: list[str] | None = None,
    ascii_folding: bool | None = None,
    min_ngram_length: int | None = None,
    max_ngram_length: int | None = None,
    prefix_only: bool | None = None,
    split_identifiers: bool | None = None,
    split_on_numerics: bool | None = None,
    preserve_original: bool | None = None,
    index_operators: bool | None = None,
) -> list[FtsToken]:
    """Return the tokens of a query for an index with these options.

    Parameters
    ----------
    query
        Text to tokenize.
    max_token_length
        Drop tokens of this many bytes or more; ``None``: keep all.
    analyzer, base_tokenizer, language, lower_case, stem, remove_stop_words, custom_stop_words
        As for ``create_scalar_index(..., "INVERTED")``; ``None``: the default.
    ascii_folding, min_ngram_length, max_ngram_length, prefix_only
        As for ``create_scalar_index``.
    split_identifiers, split_on_numerics, preserve_original, index_operators
        As for ``create_scalar_index``.

    Raises
    ------
    OptionError
        An option has a wrong value, or does not fit another option.
    MissingDependencyError
        The tokenizer needs a package that is not installed.
    """
    if not isinstance(query, str):
        raise OptionError(f"query: expected a text, found {query!r:.80}")
    options = {
        "analyzer": analyzer, "base_tokenizer": base_tokenizer, "language": language,
        "lower_case": lower_case, "stem": stem, "remove_stop_words": remove_stop_words,
        "custom_stop_words": custom_stop_words, "ascii_folding": ascii_folding,
        "min_ngram_length": min_ngram_length, "max_ngram_length": max_ngram_length,
        "prefix_only": prefix_only, "split_identifiers": split_identifiers,
        "split_on_numerics": split_on_numerics, "preserve_original": preserve_original,
        "index_operators": index_operators,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None}
    params = TextParams.of({**given, "max_token_length": max_token_length})
    tokens = Tokenizer.of(params).tokens(query)
    first = tokens[0][1] if tokens else 0
    return [FtsToken(text, position - first) for text, position in tokens]
