"""Parameters of MinHash indices: what users choose, and what the entry in the manifest says.

Specification: "MINHASHLSH" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Final, Self

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, OptionError, UnsupportedFeatureError
from glaive.format.pb import minhash_details_pb2
from glaive.format.wire import field_numbers, parse
from glaive.index.scalar.parameters import integer, known_parameters
from glaive.index.text.params import DICTIONARY_TOKENIZERS, TextParams
from glaive.index.text.text_format import TextFormat, details_by_name

__all__ = ["MAX_HASHES", "MinHashParams"]

MAX_HASHES: Final = 4096
MAX_BANDS: Final = 256
_HASHES, _BANDS, _SHINGLE = "num_hashes", "num_bands", "shingle_size"
_TOKENIZER: Final = "tokenizer"
_DETAILS: Final = "details of a MinHash index"
_KNOWN_FIELDS: Final = 5
_POSTING_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class MinHashParams:
    """How texts become signatures.

    Parameters
    ----------
    num_hashes
        Values of a signature, from 1 to 4,096; a multiple of ``num_bands``.
    num_bands
        Stretches of a signature by which candidates are found, from 1 to 256.
    shingle_size
        Neighbouring tokens that are hashed together.
    tokenizer
        How a text becomes tokens.
    """

    num_hashes: int = 128
    num_bands: int = 16
    shingle_size: int = 3
    tokenizer: TextParams = field(
        default_factory=lambda: TextParams(stem=False, remove_stop_words=False)
    )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The parameters that users ask for; ``tokenizer``: options of full-text indices.

        Raises
        ------
        OptionError
            An option is unknown, or has a value that it cannot have.
        """
        known_parameters("MINHASHLSH", options, (_HASHES, _BANDS, _SHINGLE, _TOKENIZER))
        given = options.get(_TOKENIZER)
        if given is not None and not isinstance(given, Mapping):
            raise OptionError(f"{_TOKENIZER}: expected a mapping of options, found {given!r:.80}")
        plain = {"stem": False, "remove_stop_words": False}
        params = cls(
            integer(options, _HASHES, 128),
            integer(options, _BANDS, 16),
            integer(options, _SHINGLE, 3),
            TextParams.of(plain | dict(given or {})),
        )
        problem = params.problem()
        if problem is not None:
            raise OptionError(problem)
        return params

    @classmethod
    def read(cls, content: bytes, where: object) -> Self:
        """What a details message says.

        Raises
        ------
        CorruptFileError
            It cannot be parsed, or says what cannot be.
        UnsupportedFeatureError
            Signatures are made in a way that is not known.
        """
        message = minhash_details_pb2.MinHashLshIndexDetails()
        parse(message, content, _DETAILS, where)
        known = max(field_numbers(content, _DETAILS, where), default=0) <= _KNOWN_FIELDS
        if message.signature_version or not known:
            raise UnsupportedFeatureError(
                f"{where}: signatures of version {message.signature_version}"
            )
        said = details_by_name(message.tokenizer.SerializeToString(), where)
        names = TextParams.__slots__
        tokenizer = replace(
            TextParams(lance_tokenizer="text"),
            **{key: value for key, value in said.items() if key in names and key not in _ABSENT},
        )
        params = cls(message.num_hashes, message.num_bands, message.shingle_size, tokenizer)
        problem = params.problem() or tokenizer.problem()
        if problem is not None:
            raise CorruptFileError(
                _DETAILS, expected="parameters that can be", found=problem, where=where
            )
        return params

    def encoded(self) -> bytes:
        """The details message."""
        message = minhash_details_pb2.MinHashLshIndexDetails(
            num_hashes=self.num_hashes, num_bands=self.num_bands, shingle_size=self.shingle_size
        )
        form = TextFormat(self.tokenizer, _POSTING_VERSION)
        parse(message.tokenizer, form.built().details, _DETAILS, "the parameters")
        return message.SerializeToString()

    def options(self) -> dict[str, Any]:
        """Options with which an index like this one is built."""
        tokenizer = TextFormat(self.tokenizer, _POSTING_VERSION).options()
        for name in ("format_version", "document_granularity"):
            del tokenizer[name]
        return {
            _HASHES: self.num_hashes, _BANDS: self.num_bands, _SHINGLE: self.shingle_size,
            _TOKENIZER: tokenizer,
        }  # fmt: skip

    def problem(self) -> str | None:
        """What is wrong with a value, if anything."""
        if not 1 <= self.num_hashes <= MAX_HASHES:
            return f"{_HASHES}: expected 1 to {MAX_HASHES}, found {self.num_hashes}"
        if not 1 <= self.num_bands <= MAX_BANDS:
            return f"{_BANDS}: expected 1 to {MAX_BANDS}, found {self.num_bands}"
        if self.num_hashes % self.num_bands:
            return (
                f"{_HASHES}: expected a multiple of {_BANDS}, found {self.num_hashes} and "
                f"{self.num_bands}"
            )
        if self.shingle_size < 1:
            return f"{_SHINGLE}: expected at least 1, found {self.shingle_size}"
        if self.tokenizer.custom_stop_words is not None:
            return f"{_TOKENIZER}: custom_stop_words cannot be stored in an index of this kind"
        base = self.tokenizer.base_tokenizer
        if base.partition("/")[0] in DICTIONARY_TOKENIZERS:
            return f"{_TOKENIZER}: {base} needs a dictionary, which such an index does not name"
        return None


_ABSENT: Final = ("lance_tokenizer", "custom_stop_words")
