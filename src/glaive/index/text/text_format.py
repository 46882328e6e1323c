"""Format of a full-text index: its parameters, versions and codecs.

Specification: "Files", "Details" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Final, Self

import pyarrow as pa

from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import CorruptFileError, OptionError
from glaive.format.pb import inverted_pb2
from glaive.format.wire import parse
from glaive.index.protocol import BuiltSegment
from glaive.index.segment import IndexFile
from glaive.options import SWITCH, Kind, UnfitError, integer, kinds_of, one_of, option

# --- Parameters that users choose: tokenizers, filters, and storage of postings ---------
# Specification: "Parameters" in ``docs/format/text-tokenizers.md``.

LANGUAGES: Final = (
    "Arabic", "Danish", "Dutch", "English", "Finnish", "French", "German", "Greek", "Hungarian",
    "Italian", "Norwegian", "Portuguese", "Romanian", "Russian", "Spanish", "Swedish", "Tamil",
    "Turkish",
)  # fmt: skip
"""Languages with stemmers."""

BASE_TOKENIZERS: Final = ("simple", "whitespace", "raw", "ngram", "icu", "icu/split", "code")
"""Names of tokenizers that work by rules; others need a dictionary."""

DICTIONARY_TOKENIZERS: Final = ("jieba", "lindera")
"""Names of tokenizers with a dictionary; the part before a slash."""

_CODE_FLAGS: Final = (
    "split_identifiers", "split_on_numerics", "preserve_original", "index_operators",
)  # fmt: skip
_NULLABLE: Final = ("max_token_length", "custom_stop_words")
"""Options for which ``None`` is a value; for other options, ``None`` is the default."""


def _base_of(given: Any) -> str:
    known = (*BASE_TOKENIZERS, *DICTIONARY_TOKENIZERS)
    if isinstance(given, str) and (given in known or given.partition("/")[0] in known[-2:]):
        return given
    names = ", ".join((*BASE_TOKENIZERS, "jieba", "lindera/<dictionary>"))
    # A file may hold half of a surrogate pair, which ``print`` refuses.
    shown = repr(str(given))[1:-1]
    raise UnfitError(
        f"unknown base tokenizer {shown}: expected one of {names}, found {given!r:.80}"
    )


def _words_of(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple | set | frozenset):
        raise TypeError(given)
    if not all(isinstance(word, str) for word in given):
        raise TypeError(given)
    return tuple(given)


_COUNT: Final = integer(0, 2**32 - 1)


@dataclass(frozen=True, slots=True)
class TextParams:
    """Parameters of an index, with the names and in the order of the stored JSON.

    Parameters
    ----------
    lance_tokenizer
        ``"text"``, or ``"json"`` for columns of JSON.
    base_tokenizer
        Tokenizer that cuts texts.
    language
        Language of stemmer and stop words.
    with_position
        Store positions, which phrase queries need.
    max_token_length
        Drop tokens of this many UTF-8 bytes or more; ``None``: keep all.
    lower_case, stem, remove_stop_words, ascii_folding
        Filters of tokens.
    custom_stop_words
        Stop words to use instead of the language's.
    min_ngram_length, max_ngram_length, prefix_only
        Characters of n-grams, and whether to index only n-grams at the start of a text.
    block_size
        Documents of a posting block: 128 or 256.
    split_identifiers, split_on_numerics, preserve_original, index_operators
        Options of the tokenizer ``code``.
    """

    lance_tokenizer: str = option(one_of("text", "json"), "text")
    base_tokenizer: str = option(Kind("a tokenizer", _base_of), "simple")
    language: str = option(one_of(*LANGUAGES), "English")
    with_position: bool = option(SWITCH, default=False)
    max_token_length: int | None = option(_COUNT, 40)
    lower_case: bool = option(SWITCH, default=True)
    stem: bool = option(SWITCH, default=True)
    remove_stop_words: bool = option(SWITCH, default=True)
    custom_stop_words: tuple[str, ...] | None = option(Kind("a list of words", _words_of))
    ascii_folding: bool = option(SWITCH, default=True)
    min_ngram_length: int = option(_COUNT, 3)
    max_ngram_length: int = option(_COUNT, 3)
    prefix_only: bool = option(SWITCH, default=False)
    block_size: int = option(one_of(128, 256), 128)
    split_identifiers: bool = option(SWITCH, default=False)
    split_on_numerics: bool = option(SWITCH, default=False)
    preserve_original: bool = option(SWITCH, default=False)
    index_operators: bool = option(SWITCH, default=False)

    CODE_FLAGS: ClassVar[tuple[str, ...]] = _CODE_FLAGS
    """Parameters of the tokenizer ``code``."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Parse the options of a user; a missing option has the default of the tokenizer.

        Parameters
        ----------
        options
            ``analyzer`` (``"text"`` or ``"code"``), and any parameters except ``lance_tokenizer``.

        Raises
        ------
        OptionError
            An option is unknown, has a wrong value, or does not fit another option.
        """
        known = sorted(_KINDS.keys() - {"lance_tokenizer"})
        for name in options:
            if name not in known and name != "analyzer":
                raise OptionError(
                    f"unknown FTS index parameter {name!r}"
                    f"{OptionError.did_you_mean(str(name), known)}"
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
            stem=not plain, remove_stop_words=not plain, split_on_numerics=code,
            preserve_original=code,
        )  # fmt: skip
        kept = {key: one for key, one in given.items() if one is not None or key in _NULLABLE}
        return params.changed({**kept, "base_tokenizer": base})

    def changed(self, given: Mapping[str, Any]) -> Self:
        """Return a copy with some values, given in any type.

        Raises
        ------
        OptionError
            A value is wrong, or contradicts another value.
        """
        values: dict[str, Any] = {
            name: None if value is None and name in _NULLABLE else _KINDS[name].check(name, value)
            for name, value in given.items()
        }
        params = replace(self, **values)
        shortest, longest = params.min_ngram_length, params.max_ngram_length
        if params.base_tokenizer == "ngram" and not 0 < shortest <= longest:
            raise OptionError(
                f"min_ngram_length {shortest} is not from 1 to max_ngram_length {longest}"
            )
        return params

    @property
    def tokenizing(self) -> Self:
        """The parameters that affect tokens; storage of postings has its defaults."""
        return replace(self, with_position=False, block_size=128)

    @classmethod
    def from_json(cls, text: str, where: object) -> Self:
        """Parse the parameters that an index stores; missing parameters have their defaults.

        Raises
        ------
        CorruptFileError
            The text is invalid JSON, or an invalid set of parameters.
        """
        try:
            stored = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _corrupt(str(error), where) from error
        if not isinstance(stored, dict):
            raise _corrupt(text[:80], where)
        try:
            return cls().changed({name: one for name, one in stored.items() if name in _KINDS})
        except OptionError as error:
            raise _corrupt(str(error), where) from error

    def to_json(self) -> str:
        """Return the parameters as an index stores them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


_KINDS: Final = kinds_of(TextParams)


def _base_tokenizer(analyzer: object, given: Mapping[str, Any]) -> Any:
    """Return the tokenizer that options name, or the default of their analyzer."""
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


# --- Encoding of the postings, from the metadata of files -------------------------------
# Specification: "Metadata" in ``docs/format/text-indices.md``.

_SIZES = (128, 256)


class PostingLayout(NamedTuple):
    """Encoding of postings.

    Parameters
    ----------
    block
        Documents of a full block: 128 or 256.
    fixed_tail
        The last, shorter block of a list stores 32 bits per integer instead of varints.
    """

    block: int
    fixed_tail: bool

    @property
    def lanes(self) -> int:
        """Lanes of a block of documents."""
        return self.block // 32

    @property
    def scored(self) -> bool:
        """Whether a block begins with its best score."""
        return self.block == _SIZES[0]


def read_posting_layout(file: IndexFile) -> PostingLayout | None:
    """Read the layout of postings from a file; ``None`` if it is unsupported.

    Raises
    ------
    CorruptFileError
        The block size or the format version is invalid as an integer.
    """
    block = file.number("posting_block_size", _SIZES[0])
    tail = file.metadata.get("posting_tail_codec", "")
    version = file.number("format_version", 1)
    fixed = tail == "fixed32_v1" or (not tail and version == 1)
    known = fixed or tail == "varint_delta_v1"
    positions = (
        file.metadata.get("positions_layout", "shared_stream_v2") == "shared_stream_v2"
        and file.metadata.get("positions_codec", "packed_delta_v1") == "packed_delta_v1"
    )
    if block not in _SIZES or not known or version > 3 or not positions:
        return None
    return PostingLayout(block, fixed)


METADATA: Final = "metadata.lance"
"""File with the parameters, and the numbers of the partitions."""


ROW: Final = "row"
LIST_ELEMENT: Final = "list_element"
_GRANULARITIES: Final = (ROW, LIST_ELEMENT)

_TYPE_URL: Final = "/lance.table.InvertedIndexDetails"
_FIXED, _VARINTS = "fixed32_v1", "varint_delta_v1"
_SHARED_POSITIONS: Final = {
    "positions_layout": "shared_stream_v2",
    "positions_codec": "packed_delta_v1",
}
_LISTS: Final = pa.list_(pa.large_binary())
ELEMENT: Final = "_doc_index_0"
"""Column of documents: index of a document in the list of its row."""

TOKEN_SETS: Final = ("fst", "arrow")
"""Storage formats of token sets."""


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Format of the files of an index.

    Parameters
    ----------
    params
        Parameters of tokens and postings.
    version
        Format version: 1, 2 or 3.
    granularity
        What a document is: ``"row"`` or ``"list_element"``.
    token_set
        Storage of tokens: ``"fst"`` or ``"arrow"``.
    """

    params: TextParams
    version: int
    granularity: str = ROW
    token_set: str = TOKEN_SETS[0]

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the format for the options of a user.

        Parameters
        ----------
        options
            Options of :meth:`TextParams.of`, and ``format_version`` (1, 2, 3, ``"v1"``, …) and
            ``document_granularity`` (``"row"``, ``"list_element"``, or pylance's value).
            ``num_workers`` is checked and ignored.

        Raises
        ------
        OptionError
            An option is unknown, has a wrong value, or does not fit another option.
        """
        given = dict(options)
        workers = given.pop("num_workers", None)
        if workers is not None:
            integer().check("num_workers", workers)
        wanted = given.pop("format_version", None)
        granularity = given.pop("document_granularity", None)
        granularity = getattr(granularity, "value", granularity) or ROW
        if granularity not in _GRANULARITIES:
            expected = " or ".join(map(repr, _GRANULARITIES))
            raise OptionError(f"document_granularity: expected {expected}, found {granularity!r}")
        params = TextParams.of(given)
        newest = params.block_size != 128 or params.base_tokenizer == "code"
        version = (3 if newest else 2) if wanted is None else _version(wanted)
        if params.block_size != 128 and version != 3:
            raise OptionError(
                f"format_version {version} has posting blocks of 128 documents only: "
                f"block_size={params.block_size} needs format_version=3"
            )
        return cls(params, version, granularity)

    @classmethod
    def read(cls, file: IndexFile, documents: IndexFile | None) -> Self:
        """Read the format of an index from ``metadata.lance`` and the documents of a partition.

        Raises
        ------
        CorruptFileError
            The metadata is damaged.
        """
        params = TextParams.from_json(file.metadata.get("params", "{}"), file.path)
        elements = documents is not None and ELEMENT in documents.schema.names
        token_set = file.metadata.get("token_set_format", "arrow")
        version = file.number("format_version", 1)
        return cls(params, version, LIST_ELEMENT if elements else ROW, token_set)

    @property
    def by_element(self) -> bool:
        """Whether each element of a list is a document."""
        return self.granularity == LIST_ELEMENT

    @property
    def layout(self) -> PostingLayout:
        """Encoding of postings."""
        return PostingLayout(self.params.block_size, fixed_tail=self.version == 1)

    def options(self) -> dict[str, Any]:
        """Return options that build an index like this one."""
        names = [name for name in TextParams.__slots__ if name != "lance_tokenizer"]
        options = {name: getattr(self.params, name) for name in names}
        if self.params.base_tokenizer != "code":
            for name in TextParams.CODE_FLAGS:
                del options[name]
        return options | {
            "format_version": self.version, "document_granularity": self.granularity,
        }  # fmt: skip

    def postings_metadata(self) -> dict[str, str]:
        """Return the metadata of files of postings."""
        metadata = {
            "format_version": str(self.version),
            "posting_block_size": str(self.params.block_size),
        }
        if self.version > 1:
            metadata["posting_tail_codec"] = _VARINTS
            if self.params.with_position:
                metadata |= _SHARED_POSITIONS
        return metadata

    def metadata(self, partitions: Sequence[int]) -> dict[str, str]:
        """Return the metadata of ``metadata.lance``."""
        return {
            "params": self.params.to_json(),
            "partitions": json.dumps(list(partitions), separators=(",", ":")),
            "token_set_format": self.token_set,
            "posting_tail_codec": _FIXED if self.version == 1 else _VARINTS,
            **self.postings_metadata(),
        }

    def document_schema(self) -> pa.Schema:
        """Return the columns of files of documents."""
        fields = [_present("_rowid", pa.uint64()), _present("_num_tokens", pa.uint32())]
        if self.by_element:
            fields.append(_present(ELEMENT, pa.uint32()))
        return pa.schema(fields)

    def token_schema(self) -> pa.Schema:
        """Return the columns of files of tokens."""
        if self.token_set == TOKEN_SETS[1]:
            return pa.schema([_present("_token", pa.string()), _present("_token_id", pa.uint32())])
        return pa.schema(
            [
                _present("_token_fst_bytes", pa.large_binary()),
                _present("_token_next_id", pa.uint32()),
                _present("_token_total_length", pa.uint64()),
            ]
        )

    def posting_schema(self) -> pa.Schema:
        """Return the columns of files of postings."""
        fields = [
            _present("_posting", _LISTS),
            _present("_max_score", pa.float32()),
            _present("_length", pa.uint32()),
            _present("_impacts", _LISTS),
        ]
        if self.params.with_position and self.version > 1:  # one stream for a list
            fields.append(_present("_compressed_position", pa.large_binary()))
            fields.append(_present("_position_block_offset", pa.list_(pa.uint32())))
        elif self.params.with_position:
            fields.append(_present("_position", pa.list_(_LISTS)))
        metadata: Any = self.postings_metadata()
        return pa.schema(fields, metadata)

    def schemas(self) -> tuple[pa.Schema, pa.Schema, pa.Schema]:
        """Return the columns of the files of documents, tokens and postings."""
        return self.document_schema(), self.token_schema(), self.posting_schema()

    def built(self) -> BuiltSegment:
        """Return the result of a build, for the entry of the segment."""
        params = self.params
        details = inverted_pb2.InvertedIndexDetails(
            document_granularity=_GRANULARITIES.index(self.granularity),
            posting_format_version=self.version,
        )
        for name in _KINDS.keys() & details.DESCRIPTOR.fields_by_name.keys():
            if (value := getattr(params, name)) is not None:
                setattr(details, name, value)
        details.language = json.dumps(params.language)
        if params.base_tokenizer == "code":
            for name in TextParams.CODE_FLAGS:
                setattr(details.code, name, getattr(params, name))
        return BuiltSegment(
            _TYPE_URL, details.SerializeToString(), 3 if self.by_element else self.version
        )


def details_by_name(content: bytes, where: object) -> dict[str, Any]:
    """Decode a details message by parameter names; return the defaults for old entries.

    Raises
    ------
    CorruptFileError
        The message is invalid.
    """
    if not content:
        known = {one.name: getattr(TextParams(), one.name) for one in fields(TextParams)}
        return known | {"lance_tokenizer": None, "document_granularity": ROW}
    message = parse(inverted_pb2.InvertedIndexDetails(), content, "details of an index", where)
    named: dict[str, Any] = {
        one.name: getattr(message, one.name)
        for one in fields(TextParams)
        if one.name in message.DESCRIPTOR.fields_by_name
    }
    named |= {name: getattr(message.code, name) for name in TextParams.CODE_FLAGS}
    if not message.HasField("max_token_length"):
        named["max_token_length"] = None
    named["block_size"] = named["block_size"] or 128
    named["language"] = message.language.strip('"')
    named["document_granularity"] = _GRANULARITIES[bool(message.document_granularity)]
    return {"lance_tokenizer": None, "custom_stop_words": None} | named


def _present(name: str, kind: pa.DataType) -> pa.Field[Any]:
    return pa.field(name, kind, nullable=False)


def _version(wanted: object) -> int:
    text = str(wanted).lower().removeprefix("v")
    if isinstance(wanted, bool) or text not in ("1", "2", "3"):
        raise OptionError(f"format_version: expected 1, 2 or 3, found {wanted!r}")
    return int(text)
