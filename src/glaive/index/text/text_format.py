"""How an index is written: its parameters, and the versions and codecs that follow from them.

Specification: "Files", "Details" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, Self

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.format.pb import inverted_pb2
from glaive.format.wire import parse
from glaive.index.index_file import IndexFile
from glaive.index.protocol import BuiltSegment
from glaive.index.text.params import TextParams
from glaive.index.text.posting_layout import PostingLayout

__all__ = [
    "ELEMENT",
    "LIST_ELEMENT",
    "METADATA",
    "ROW",
    "TOKEN_SETS",
    "TextFormat",
    "details_by_name",
]

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
"""Column of documents: which element of its row's list a document is."""

TOKEN_SETS: Final = ("fst", "arrow")
"""How token sets are stored."""


@dataclass(frozen=True, slots=True)
class TextFormat:
    """What the files of an index look like.

    Parameters
    ----------
    params
        Of tokens and postings.
    version
        Format version: 1, 2 or 3.
    granularity
        What a document is: ``"row"``, or ``"list_element"``.
    token_set
        How tokens are stored: ``"fst"`` or ``"arrow"``.
    """

    params: TextParams
    version: int
    granularity: str = ROW
    token_set: str = TOKEN_SETS[0]

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The format that users ask for.

        Parameters
        ----------
        options
            Those of :meth:`TextParams.of`, ``format_version`` (1, 2, 3, ``"v1"``, …) and
            ``document_granularity`` (``"row"``, ``"list_element"``, or pylance's value).
            ``num_workers`` is accepted and means nothing here.

        Raises
        ------
        OptionError
            An option does not exist, has a value that it cannot have, or does not fit another.
        """
        given = dict(options)
        workers = given.pop("num_workers", None)
        if workers is not None and not (type(workers) is int and workers >= 0):
            raise OptionError(f"num_workers: expected an integer from 0 on, found {workers!r}")
        asked = given.pop("format_version", None)
        granularity = given.pop("document_granularity", None)
        granularity = getattr(granularity, "value", granularity) or ROW
        if granularity not in _GRANULARITIES:
            expected = " or ".join(map(repr, _GRANULARITIES))
            raise OptionError(f"document_granularity: expected {expected}, found {granularity!r}")
        params = TextParams.of(given)
        newest = params.block_size != 128 or params.base_tokenizer == "code"
        version = (3 if newest else 2) if asked is None else _version(asked)
        if params.block_size != 128 and version != 3:
            raise OptionError(
                f"format_version {version} has posting blocks of 128 documents only: "
                f"block_size={params.block_size} needs format_version=3"
            )
        return cls(params, version, granularity)

    @classmethod
    def read(cls, file: IndexFile, documents: IndexFile | None) -> Self:
        """The format of an index, from ``metadata.lance`` and the documents of a partition.

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
        """How postings are encoded."""
        return PostingLayout(self.params.block_size, fixed_tail=self.version == 1)

    @property
    def shares_positions(self) -> bool:
        """Whether the positions of a list are one stream; else there is one per document."""
        return self.version > 1

    def options(self) -> dict[str, Any]:
        """Options with which an index like this one is built."""
        names = [name for name in TextParams.__slots__ if name != "lance_tokenizer"]
        options = {name: getattr(self.params, name) for name in names}
        if self.params.base_tokenizer != "code":
            for name in TextParams.CODE_FLAGS:
                del options[name]
        return options | {
            "format_version": self.version, "document_granularity": self.granularity,
        }  # fmt: skip

    def postings_metadata(self) -> dict[str, str]:
        """Metadata of files of postings."""
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
        """Metadata of ``metadata.lance``."""
        return {
            "params": self.params.to_json(),
            "partitions": json.dumps(list(partitions), separators=(",", ":")),
            "token_set_format": self.token_set,
            "posting_tail_codec": _FIXED if self.version == 1 else _VARINTS,
            **self.postings_metadata(),
        }

    def document_schema(self) -> pa.Schema:
        """Columns of files of documents."""
        fields = [_present("_rowid", pa.uint64()), _present("_num_tokens", pa.uint32())]
        if self.by_element:
            fields.append(_present(ELEMENT, pa.uint32()))
        return pa.schema(fields)

    def token_schema(self) -> pa.Schema:
        """Columns of files of tokens."""
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
        """Columns of files of postings."""
        fields = [
            _present("_posting", _LISTS),
            _present("_max_score", pa.float32()),
            _present("_length", pa.uint32()),
            _present("_impacts", _LISTS),
        ]
        if self.params.with_position and self.shares_positions:
            fields.append(_present("_compressed_position", pa.large_binary()))
            fields.append(_present("_position_block_offset", pa.list_(pa.uint32())))
        elif self.params.with_position:
            fields.append(_present("_position", pa.list_(_LISTS)))
        metadata: Any = self.postings_metadata()
        return pa.schema(fields, metadata)

    def built(self) -> BuiltSegment:
        """What the entry of the segment says."""
        params = self.params
        details = inverted_pb2.InvertedIndexDetails(
            base_tokenizer=params.base_tokenizer,
            language=json.dumps(params.language),
            with_position=params.with_position,
            max_token_length=params.max_token_length,
            lower_case=params.lower_case,
            stem=params.stem,
            remove_stop_words=params.remove_stop_words,
            ascii_folding=params.ascii_folding,
            min_ngram_length=params.min_ngram_length,
            max_ngram_length=params.max_ngram_length,
            prefix_only=params.prefix_only,
            block_size=params.block_size,
            document_granularity=_GRANULARITIES.index(self.granularity),
            posting_format_version=self.version,
        )
        if params.base_tokenizer == "code":
            for name in TextParams.CODE_FLAGS:
                setattr(details.code, name, getattr(params, name))
        return BuiltSegment(
            _TYPE_URL, details.SerializeToString(), 3 if self.by_element else self.version
        )


def details_by_name(content: bytes, where: object) -> dict[str, Any]:
    """What a details message says, by the names of parameters; the defaults for old entries.

    Raises
    ------
    CorruptFileError
        The message cannot be parsed.
    """
    if not content:
        known = {one.name: getattr(TextParams(), one.name) for one in fields(TextParams)}
        return known | {"lance_tokenizer": None, "document_granularity": ROW}
    message = parse(inverted_pb2.InvertedIndexDetails(), content, "details of an index", where)
    said: dict[str, Any] = {
        one.name: getattr(message, one.name)
        for one in fields(TextParams)
        if one.name in message.DESCRIPTOR.fields_by_name
    }
    said |= {name: getattr(message.code, name) for name in TextParams.CODE_FLAGS}
    if not message.HasField("max_token_length"):
        said["max_token_length"] = None
    said["block_size"] = said["block_size"] or 128
    said["language"] = message.language.strip('"')
    said["document_granularity"] = _GRANULARITIES[bool(message.document_granularity)]
    return {"lance_tokenizer": None, "custom_stop_words": None} | said


def _present(name: str, kind: pa.DataType) -> pa.Field[Any]:
    return pa.field(name, kind, nullable=False)


def _version(asked: object) -> int:
    text = str(asked).lower().removeprefix("v")
    if isinstance(asked, bool) or text not in ("1", "2", "3"):
        raise OptionError(f"format_version: expected 1, 2 or 3, found {asked!r}")
    return int(text)
