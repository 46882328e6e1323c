"""How the texts of an index become tokens, and how its postings are stored: what users choose.

Specification: "Parameters" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Final, Self

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, OptionError

__all__ = ["BASE_TOKENIZERS", "LANGUAGES", "TextParams"]

LANGUAGES: Final = (
    "Arabic", "Danish", "Dutch", "English", "Finnish", "French", "German", "Greek", "Hungarian",
    "Italian", "Norwegian", "Portuguese", "Romanian", "Russian", "Spanish", "Swedish", "Tamil",
    "Turkish",
)  # fmt: skip
"""Languages that have stems."""

BASE_TOKENIZERS: Final = ("simple", "whitespace", "raw", "ngram", "icu", "icu/split", "code")
"""Names of tokenizers, besides those with a dictionary."""

DICTIONARY_TOKENIZERS: Final = ("jieba", "lindera")
"""Names, or their parts before a slash, of tokenizers with a dictionary."""

_CODE_FLAGS: Final = (
    "split_identifiers", "split_on_numerics", "preserve_original", "index_operators",
)  # fmt: skip
_NUMBERS: Final = ("max_token_length", "min_ngram_length", "max_ngram_length")
_FLAGS: Final = {
    *_CODE_FLAGS,
    "with_position", "lower_case", "stem", "remove_stop_words", "ascii_folding", "prefix_only",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TextParams:
    """Parameters of an index, by the names and in the order in which they are stored.

    Parameters
    ----------
    lance_tokenizer
        ``"text"``, or ``"json"`` for columns of JSON.
    base_tokenizer
        How a text is cut into tokens.
    language
        Of stems and stop words.
    with_position
        Whether positions are stored, which phrases need.
    max_token_length
        Tokens of so many bytes of UTF-8, or more, are dropped; None: none are.
    lower_case, stem, remove_stop_words, ascii_folding
        What is done to tokens.
    custom_stop_words
        Words that are removed instead of those of the language.
    min_ngram_length, max_ngram_length, prefix_only
        Characters of n-grams, and whether only those at the start of a text count.
    block_size
        Documents of a posting block: 128 or 256.
    split_identifiers, split_on_numerics, preserve_original, index_operators
        Of the tokenizer of program code.
    """

    lance_tokenizer: str = "text"
    base_tokenizer: str = "simple"
    language: str = "English"
    with_position: bool = False
    max_token_length: int | None = 40
    lower_case: bool = True
    stem: bool = True
    remove_stop_words: bool = True
    custom_stop_words: tuple[str, ...] | None = None
    ascii_folding: bool = True
    min_ngram_length: int = 3
    max_ngram_length: int = 3
    prefix_only: bool = False
    block_size: int = 128
    split_identifiers: bool = False
    split_on_numerics: bool = False
    preserve_original: bool = False
    index_operators: bool = False

    CODE_FLAGS: ClassVar[tuple[str, ...]] = _CODE_FLAGS
    """Parameters of the tokenizer of program code."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The parameters that users ask for; what they leave out has the tokenizer's default.

        Parameters
        ----------
        options
            ``analyzer`` (``"text"`` or ``"code"``) and the parameters, but for ``lance_tokenizer``.

        Raises
        ------
        OptionError
            An option does not exist, has a value that it cannot have, or does not fit another.
        """
        known = {field.name for field in fields(cls)} - {"lance_tokenizer"}
        for name in options:
            if name not in known and name != "analyzer":
                raise OptionError(
                    f"unknown FTS index parameter {name!r}; known: {', '.join(sorted(known))}"
                )
        given = {name: value for name, value in options.items() if name != "analyzer"}
        base = _base_tokenizer(options.get("analyzer"), given)
        flags = given.keys() & set(_CODE_FLAGS)
        if flags and base != "code":
            raise OptionError(f"{min(flags)} is an option of base_tokenizer='code' only")
        if base == "code" and options.get("analyzer") == "text":
            raise OptionError("base_tokenizer='code' needs analyzer='code', or none")
        plain = base in ("ngram", "code")
        code = base == "code"
        params = cls(
            base_tokenizer=base, stem=not plain, remove_stop_words=not plain,
            split_on_numerics=code, preserve_original=code,
        )  # fmt: skip
        if isinstance(given.get("custom_stop_words"), list | set | frozenset):
            given["custom_stop_words"] = tuple(given["custom_stop_words"])
        # None stands for the default, but for the options that can be None.
        nullable = ("max_token_length", "custom_stop_words")
        params = replace(
            params,
            **{key: value for key, value in given.items() if value is not None or key in nullable},
        )
        problem = params.problem()
        if problem is not None:
            raise OptionError(problem)
        return params

    @property
    def tokenizing(self) -> Self:
        """The same without what does not change tokens: how postings are stored."""
        return replace(self, with_position=False, block_size=128)

    @classmethod
    def from_json(cls, text: str, where: object) -> Self:
        """The parameters that an index stores; missing ones have their defaults.

        Raises
        ------
        CorruptFileError
            It is not JSON, or not of such parameters.
        """
        try:
            stored = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _corrupt(str(error), where) from error
        if not isinstance(stored, dict):
            raise _corrupt(text[:80], where)
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in stored.items() if name in known}
        if isinstance(values.get("custom_stop_words"), list):
            values["custom_stop_words"] = tuple(values["custom_stop_words"])
        params = cls(**values)
        problem = params.problem()
        if problem is not None:
            raise _corrupt(problem, where)
        return params

    def to_json(self) -> str:
        """As the index stores them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False)

    def problem(self) -> str | None:
        """What is wrong with a value, if anything: the name, the value, and what is possible.

        Values come from users and from files: they can have any type.
        """
        for name in sorted(_FLAGS):
            if not isinstance(getattr(self, name), bool):
                return f"{name} is True or False, not {getattr(self, name)!r}"
        for name in _NUMBERS:
            number = getattr(self, name)
            missing = name == "max_token_length" and number is None
            if not missing and not (type(number) is int and 0 <= number < 1 << 32):
                return f"{name} is a number of characters, not {number!r}"
        words: Any = self.custom_stop_words
        if words is not None and not (
            isinstance(words, tuple) and all(isinstance(word, str) for word in words)
        ):
            return f"custom_stop_words is a list of words, not {words!r}"
        base: Any = self.base_tokenizer
        if not isinstance(base, str) or (
            base not in BASE_TOKENIZERS and base.partition("/")[0] not in DICTIONARY_TOKENIZERS
        ):
            names = ", ".join((*BASE_TOKENIZERS, "jieba", "lindera/<dictionary>"))
            # In a file it may be half of a surrogate pair, with which no message is printed.
            shown = repr(str(base))[1:-1]
            return (
                f"unknown base tokenizer {shown}: base_tokenizer {base!r} is not known; there are "
                f"{names}"
            )
        if self.language not in LANGUAGES:
            return f"language {self.language!r} is not known; there are {', '.join(LANGUAGES)}"
        # As JSON a file may say 128.0, which is equal, but is no count of documents.
        if type(self.block_size) is not int or self.block_size not in (128, 256):
            return f"block_size is 128 or 256, not {self.block_size!r}"
        if self.lance_tokenizer not in ("text", "json"):
            return f"lance_tokenizer {self.lance_tokenizer!r} is not known; there are text, json"
        shortest, longest = self.min_ngram_length, self.max_ngram_length
        if base == "ngram" and not 0 < shortest <= longest:
            return f"min_ngram_length {shortest} is not from 1 to max_ngram_length {longest}"
        return None


def _base_tokenizer(analyzer: object, given: Mapping[str, Any]) -> Any:
    """The tokenizer that options name, or that of their analyzer."""
    if analyzer not in (None, "text", "code"):
        raise OptionError(f"analyzer {analyzer!r} is not known; there are 'text' and 'code'")
    base = given.get("base_tokenizer")
    if analyzer == "code" and base not in (None, "code"):
        raise OptionError(f"analyzer='code' needs base_tokenizer='code', not {base!r}")
    if base is None:
        return "code" if analyzer == "code" else "simple"
    return base


def _corrupt(found: str, where: object) -> CorruptFileError:
    expected = "parameters of a full-text index as JSON"
    return CorruptFileError("metadata 'params'", expected=expected, found=found, where=where)
