"""MINHASHLSH: signatures of texts, and an index of the bands of signatures.

Specification: "MINHASHLSH indices" in ``docs/format/minhash-indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.blocks import Variable, ascending
from glaive.arrow.build import block_from_array
from glaive.arrow.conditions import scalar
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import CorruptFileError, OptionError, SchemaError, UnsupportedFeatureError
from glaive.format.pb import minhash_details_pb2
from glaive.format.wire import field_numbers, parse
from glaive.index.protocol import (
    PARAMETERS,
    TEXT_PARAMETERS,
    BuiltSegment,
    Entries,
    Entry,
    IndexKind,
    IndexSource,
    OpenedIndex,
    RebuiltSegment,
    ValueBatch,
    check_type,
    index_kind,
    integer,
    known_parameters,
)
from glaive.index.row_sets import AddressMap, RowNumbers
from glaive.index.scalar.ordering import is_text
from glaive.index.scalar.sorting import merged, sorted_runs
from glaive.index.segment import IndexFile, Segment, SegmentWriter, rows_of_pages
from glaive.index.text.text_format import (
    DICTIONARY_TOKENIZERS,
    TextFormat,
    TextParams,
    details_by_name,
)
from glaive.index.text.tokenizers import TokenChain, TokenNumbers
from glaive.kernels.hashing import Permutations, hash_ranges, sign
from glaive.types import Float32s, Int64s, UInt16s, UInt32s, UInt64s, as_array, as_buffer

# --- Parameters of MinHash indices, from users and from the manifest --------------------
# Specification: "Details" in ``docs/format/minhash-indices.md``.

MAX_HASHES: Final = 4096
MAX_BANDS: Final = 256
_HASHES, _BANDS, _SHINGLE = "num_hashes", "num_bands", "shingle_size"
_TOKENIZER: Final = "tokenizer"
_DETAILS: Final = "details of a MinHash index"
_KNOWN_FIELDS: Final = 5
_POSTING_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class MinHashParams:
    """Parameters that turn texts into signatures.

    Parameters
    ----------
    num_hashes
        Number of values of a signature, from 1 to 4,096; a multiple of ``num_bands``.
    num_bands
        Number of bands that a signature is cut into, from 1 to 256. Candidates share a band.
    shingle_size
        Number of adjacent tokens that are hashed together.
    tokenizer
        Parameters of the tokenizer.
    """

    num_hashes: int = 128
    num_bands: int = 16
    shingle_size: int = 3
    tokenizer: TextParams = field(
        default_factory=lambda: TextParams(stem=False, remove_stop_words=False)
    )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Parse the options of a user; ``tokenizer`` takes options of full-text indices.

        Raises
        ------
        OptionError
            An option is unknown, or has a wrong value.
        """
        known = _HASHES, _BANDS, _SHINGLE, _TOKENIZER
        known_parameters(
            "MINHASHLSH", options, known, PARAMETERS.difference(TEXT_PARAMETERS.split())
        )
        given = options.get(_TOKENIZER)
        if given is not None and not isinstance(given, Mapping):
            raise OptionError(f"{_TOKENIZER}: expected a mapping of options, found {given!r:.80}")
        plain = {"stem": False, "remove_stop_words": False}
        return cls(
            integer(options, _HASHES, 128),
            integer(options, _BANDS, 16),
            integer(options, _SHINGLE, 3),
            TextParams.of(plain | dict(given or {})),
        )

    @classmethod
    def read(cls, content: bytes, where: object) -> Self:
        """Parse a details message.

        Raises
        ------
        CorruptFileError
            The message is invalid, or has wrong values.
        UnsupportedFeatureError
            The version of the signatures is unknown.
        """
        message = minhash_details_pb2.MinHashLshIndexDetails()
        parse(message, content, _DETAILS, where)
        known = max(field_numbers(content, _DETAILS, where), default=0) <= _KNOWN_FIELDS
        if message.signature_version or not known:
            raise UnsupportedFeatureError(
                f"{where}: signatures of version {message.signature_version}"
            )
        details = details_by_name(message.tokenizer.SerializeToString(), where)
        names = TextParams.__slots__
        given = {key: one for key, one in details.items() if key in names and key not in _ABSENT}
        try:
            tokenizer = TextParams(lance_tokenizer="text").changed(given)
            return cls(message.num_hashes, message.num_bands, message.shingle_size, tokenizer)
        except OptionError as error:
            raise CorruptFileError(
                _DETAILS, expected="parameters that can be", found=str(error), where=where
            ) from error

    def encoded(self) -> bytes:
        """Return the details message."""
        message = minhash_details_pb2.MinHashLshIndexDetails(
            num_hashes=self.num_hashes, num_bands=self.num_bands, shingle_size=self.shingle_size
        )
        form = TextFormat(self.tokenizer, _POSTING_VERSION)
        parse(message.tokenizer, form.built().details, _DETAILS, "the parameters")
        return message.SerializeToString()

    def options(self) -> dict[str, Any]:
        """Return options that build an index like this one."""
        tokenizer = TextFormat(self.tokenizer, _POSTING_VERSION).options()
        for name in ("format_version", "document_granularity"):
            del tokenizer[name]
        return {
            _HASHES: self.num_hashes, _BANDS: self.num_bands, _SHINGLE: self.shingle_size,
            _TOKENIZER: tokenizer,
        }  # fmt: skip

    def __post_init__(self) -> None:
        for name, maximum in ((_HASHES, MAX_HASHES), (_BANDS, MAX_BANDS), (_SHINGLE, 2**32 - 1)):
            if not 1 <= getattr(self, name) <= maximum:
                raise OptionError(f"{name}: expected 1 to {maximum}, found {getattr(self, name)}")
        if self.num_hashes % self.num_bands:
            raise OptionError(
                f"{_HASHES}: expected a multiple of {_BANDS}, found {self.num_hashes} and "
                f"{self.num_bands}"
            )
        if self.tokenizer.custom_stop_words is not None:
            raise OptionError(
                f"{_TOKENIZER}: custom_stop_words cannot be stored in an index of this kind"
            )
        base = self.tokenizer.base_tokenizer
        if base.partition("/")[0] in DICTIONARY_TOKENIZERS:
            raise OptionError(
                f"{_TOKENIZER}: {base} needs a dictionary, which such an index does not name"
            )


_ABSENT: Final = ("lance_tokenizer", "custom_stop_words")


# --- MinHash signatures of texts, and the keys of their bands ---------------------------
# Specification: "Signatures" in ``docs/format/minhash-indices.md``.

_SEED: Final = 42
_SEPARATOR: Final = b"\x1f"
_JOINER, _EMPTY = (scalar(part, pa.large_binary()) for part in (_SEPARATOR, b""))
_BAND_SHIFT: Final = 56
_KEY_BITS: Final = np.uint64((1 << _BAND_SHIFT) - 1)
_STEP, _FIRST_MIX, _SECOND_MIX = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_VOCABULARY_BYTES: Final = 64 << 20
"""Maximum bytes of distinct tokens before the vocabulary is reset."""

_BATCH_TEXTS: Final = 1 << 13
"""Texts whose shingles are computed at a time."""


class SignedTexts(NamedTuple):
    """Texts with tokens: their positions in the array, and a row of 16-bit values for each."""

    texts: Int64s
    signatures: UInt16s


class TextSigner:
    """Computes signatures of texts. Use an object in one thread only."""

    def __init__(self, params: MinHashParams) -> None:
        self._params = params
        self._chain = TokenChain.of(params.tokenizer)
        self._numbers = TokenNumbers(self._chain)
        self._permutations = _permutations(params.num_hashes)

    def sign(self, texts: Any) -> SignedTexts:
        """Return the signatures of an array of texts; skip nulls and texts without tokens.

        Cost: some kernel steps per token, and one per shingle and value of a signature.
        """
        parts = [
            self._sign(texts[start : start + _BATCH_TEXTS], start)
            for start in range(0, len(texts), _BATCH_TEXTS)
        ]
        if not parts:
            return SignedTexts(
                np.empty(0, np.int64), np.empty((0, self._params.num_hashes), np.uint16)
            )
        places, signatures = zip(*parts, strict=True)
        return SignedTexts(np.concatenate(places), np.concatenate(signatures))

    def _sign(self, texts: Any, start: int) -> SignedTexts:
        if self._numbers.nbytes > _VOCABULARY_BYTES:
            self._numbers = TokenNumbers(self._chain)
        found = self._numbers.number(texts)
        places = np.flatnonzero(found.counts)
        counts = found.counts[places]
        # Concatenate the tokens with separators, so that a shingle is a range of bytes.
        ended = pc.binary_join_element_wise(self._numbers.strings, _JOINER, _EMPTY)
        block = block_from_array(ended.take(pa.array(found.numbers)))
        if not isinstance(block, Variable):
            raise SchemaError(f"tokens are bytes, not {ended.type}")
        ends = as_array(block.offsets, np.int64)[: len(found.numbers) + 1]
        bounds, first, tokens = _shingles(counts, self._params.shingle_size)
        sizes = ends[first + tokens] - ends[first] - len(_SEPARATOR)
        hashes = hash_ranges(block.data, ends[first], sizes, _SEED)
        return SignedTexts(places + start, sign(hashes, bounds, self._permutations))


def _shingles(counts: Int64s, size: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return the bounds of the shingles of texts, and first token and length of each shingle.

    ``counts`` are the numbers of tokens of the texts, all positive.
    """
    shingles = np.maximum(counts - size + 1, 1)
    bounds = np.concatenate([[0], np.cumsum(shingles)])
    first_token = np.cumsum(counts) - counts
    first = np.repeat(first_token - bounds[:-1], shingles) + np.arange(bounds[-1])
    return bounds, first, np.repeat(np.minimum(counts, size), shingles)


def band_keys(signatures: UInt16s, bands: int) -> UInt64s:
    """Return the key of each band of each signature, of shape ``(texts, bands)``."""
    texts, values = signatures.shape
    size = 2 * (values // bands)
    data = as_buffer(np.ascontiguousarray(signatures, "<u2"))
    starts = np.arange(texts * bands, dtype=np.int64) * size
    hashes = hash_ranges(data, starts, np.full(len(starts), size), _SEED).reshape(texts, bands)
    band = np.arange(bands, dtype=np.uint64) << np.uint64(_BAND_SHIFT)
    return (hashes & _KEY_BITS) | band


@cache
def _permutations(values: int) -> Permutations:
    """Return the permutations for signatures of ``values`` values, drawn by SplitMix64."""
    with np.errstate(over="ignore"):
        state = np.arange(1, 3 * values + 1, dtype=np.uint64) * _STEP + np.uint64(_SEED)
        state = (state ^ (state >> np.uint64(30))) * _FIRST_MIX
        state = (state ^ (state >> np.uint64(27))) * _SECOND_MIX
        drawn = state ^ (state >> np.uint64(31))
    odd = np.uint64(1)
    return Permutations(
        drawn[: 2 * values : 2] | odd, drawn[1 : 2 * values : 2].copy(), drawn[2 * values :] | odd
    )


# --- MINHASHLSH, searched: texts that share a band with a query, by distance ------------
# Specification: "Searching" in ``docs/format/minhash-indices.md``.

_BATCH_SIGNATURES: Final = 1 << 15
_BATCH_BAND_ROWS: Final = 1 << 20


class SimilarTexts(NamedTuple):
    """Rows, as the segment numbers them, and distances of their texts from the query."""

    rows: RowNumbers
    distances: Float32s


class MinHashFiles(NamedTuple):
    """The checked files of a segment.

    Parameters
    ----------
    signatures, bands
        File with a row per text, and file with a row per text and band.
    page_rows
        Rows of each page of bands except the last.
    last_keys
        Key of the last row of each page.
    """

    signatures: IndexFile
    bands: IndexFile
    page_rows: int
    last_keys: UInt64s


class OpenedMinHash(OpenedIndex):
    """Page index of band keys. Safe to share between threads.

    Parameters
    ----------
    params
        Parameters of the signatures.
    files
        Files of the segment.
    """

    def __init__(self, params: MinHashParams, files: MinHashFiles) -> None:
        self.params, self._files = params, files

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        files = self._files
        return int(files.last_keys.nbytes) + files.signatures.nbytes + files.bands.nbytes

    def signature(self, text: str) -> UInt16s | None:
        """Return the signature of a query; ``None`` for a query without tokens."""
        signed = TextSigner(self.params).sign(pa.array([text], pa.large_string()))
        return signed.signatures[0] if len(signed.texts) else None

    def search(self, signature: UInt16s) -> Iterator[SimilarTexts]:
        """Yield the texts that share a band with a query, unordered.

        Cost: two reads, of pages of bands, and of the signatures of candidates.

        Raises
        ------
        CorruptFileError
            A band refers to a missing text, or a value is null.
        """
        keys = band_keys(signature[None, :], self.params.num_bands)[0]
        texts = self._texts_of(keys)
        for start in range(0, len(texts), _BATCH_SIGNATURES):
            some = texts[start : start + _BATCH_SIGNATURES].astype(np.int64)
            rows, stored = self._files.signatures.take(["_rowid", "signature"], some)
            self._files.signatures.check_present(rows)
            known = signatures_of(self._files.signatures, stored, self.params)
            yield SimilarTexts(np.asarray(rows), distances_of(known, signature))

    def _texts_of(self, keys: UInt64s) -> UInt32s:
        """Return the numbers of the texts with one of some band keys, ascending."""
        _, bands, size, last_keys = self._files
        first = np.searchsorted(last_keys, keys)
        last = np.minimum(np.searchsorted(last_keys, keys, side="right") + 1, len(last_keys))
        wanted = np.zeros(len(last_keys), np.bool_)
        for start, stop in zip(first.tolist(), last.tolist(), strict=True):
            wanted[start:stop] = True  # one iteration per band
        found = [np.empty(0, np.uint32)]
        pages = np.flatnonzero(wanted)
        step = max(1, _BATCH_BAND_ROWS // size)
        for at in range(0, len(pages), step):
            ranges = rows_of_pages(pages[at : at + step], size, bands.num_rows)
            for stored, numbers in bands.read_ranges([(("band_key", "doc_id"), ranges)]):
                bands.check_present(stored)
                bands.check_present(numbers)
                found.append(np.asarray(numbers)[np.isin(np.asarray(stored), keys)])
        texts: UInt32s = ascending(np.concatenate(found))
        count = self._files.signatures.num_rows
        if len(texts) and int(texts[-1]) >= count:
            raise bands.corrupt("text of a band", f"a number below {count}", f"{texts[-1]}")
        return texts


def signatures_of(file: IndexFile, stored: Any, params: MinHashParams) -> UInt16s:
    """Return a column of signatures as an array of shape ``(texts, values)``.

    Raises
    ------
    CorruptFileError
        A value is null.
    """
    file.check_present(stored)
    values = stored.flatten()
    file.check_present(values)
    numbers: UInt16s = np.asarray(values).reshape(len(stored), params.num_hashes)
    return numbers


def distances_of(signatures: UInt16s, query: UInt16s) -> Float32s:
    """Return distances: one minus the share of values that equal the query's."""
    equal = (signatures == query).sum(axis=1)
    distances: Float32s = np.float32(1) - (equal / np.float32(len(query))).astype(np.float32)
    return distances


SIGNATURES: Final = "signatures.lance"
BANDS: Final = "bands.lance"
COUNT: Final = "minhash_lsh_num_docs"
PAGE_ROWS: Final = "minhash_lsh_page_rows"
PAGE_TABLE: Final = "minhash_lsh_page_table_buffer"
_DETAILS_TYPE, _VERSION = "minhash_lsh_details", "minhash_lsh_index_version"
_TYPE_URL: Final = "/lance.index.pb.MinHashLshIndexDetails"
_PAGE_ROWS: Final = 4096
_READ_ROWS: Final = 1 << 15
_PLAIN: Final = {"lance-encoding:compression": "none"}


@index_kind
class MinHash(IndexKind):
    """Texts by the bands of their signatures."""

    name: ClassVar[str] = "minhashlsh"
    title: ClassVar[str] = "MINHASHLSH"
    options: ClassVar[tuple[str, ...]] = (_HASHES, _BANDS, _SHINGLE, _TOKENIZER)
    newest: ClassVar[int] = 0
    answers_filters: ClassVar[bool] = False
    indexes_dictionaries: ClassVar[bool] = False
    markers: ClassVar[tuple[str, ...]] = (SIGNATURES,)

    def open(self, segment: Segment) -> OpenedMinHash:
        """Read the last key of each page of bands."""
        params = _params(segment)
        return OpenedMinHash(params, _files(segment, params))

    def write(self, given: Entries, out: SegmentWriter) -> BuiltSegment:
        """Concatenate the signatures of segments and of the source.

        Sorts the bands within the memory limit.
        """
        segments, source = given.segments, given.source
        params = _params(segments[0]) if segments else MinHashParams.of(given.parameters)
        for segment in segments[1:]:
            if _params(segment) != params:
                raise UnsupportedFeatureError(
                    f"{segment.where} was built with other parameters than {segments[0].where}"
                )

        def signed() -> Iterator[tuple[RowNumbers, UInt16s]]:
            for segment in segments:
                yield from _stored(_files(segment, params).signatures, params)
            if source is not None:
                yield from _signed(source, params)

        return _write(params, signed(), given.memory_limit, out)

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """Return the parameters that built the segment."""
        return _params(segment).options()

    def details(self, entry: Entry) -> dict[str, Any]:
        """Return the parameters of the signatures."""
        where = f"details of index {entry.name!r}"
        return MinHashParams.read(entry.index_details.value, where).options()

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Return the numbers of texts and pages, and the parameters."""
        params = _params(segment)
        files = _files(segment, params)
        return {
            "num_docs": files.signatures.num_rows,
            "num_pages": len(files.last_keys),
            "num_hashes": params.num_hashes,
            "num_bands": params.num_bands,
            "shingle_size": params.shingle_size,
            "signature_version": 0,
        }

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Write the signatures and bands of the surviving rows again."""
        params = _params(segment)

        def surviving() -> Iterator[tuple[RowNumbers, UInt16s]]:
            for rows, signatures in _stored(_files(segment, params).signatures, params):
                moved, kept = address_map.apply(rows)
                yield moved[kept], signatures[kept]

        _write(params, surviving(), Entries((), None, {}).memory_limit, out)
        return RebuiltSegment()


def _params(segment: Segment) -> MinHashParams:
    return MinHashParams.read(segment.entry.index_details.value, segment.where)


def _files(segment: Segment, params: MinHashParams) -> MinHashFiles:
    """Open and check the files of a segment.

    Raises
    ------
    CorruptFileError
        Columns, counts or the page table are wrong, or a file was built with other parameters.
    """
    signatures, bands = segment.open(SIGNATURES), segment.open(BANDS)
    signatures.check(_rowid=pa.uint64(), signature=pa.list_(pa.uint16(), params.num_hashes))
    bands.check(band_key=pa.uint64(), doc_id=pa.uint32())
    for file in (signatures, bands):
        try:
            content = bytes.fromhex(file.metadata.get(_DETAILS_TYPE, ""))
        except ValueError as error:
            expected = "hexadecimal digits"
            raise file.corrupt(f"metadata {_DETAILS_TYPE!r}", expected, str(error)) from error
        if MinHashParams.read(content, file.path) != params:
            raise file.corrupt(f"metadata {_DETAILS_TYPE!r}", "parameters of the index", "others")
    page_rows = bands.number(PAGE_ROWS, minimum=1)
    texts = bands.number(COUNT)
    if texts != signatures.num_rows:
        expected = f"{signatures.num_rows}, as there are signatures"
        raise bands.corrupt(f"metadata {COUNT!r}", expected, f"{texts}")
    table = bands.buffer(bands.number(PAGE_TABLE))
    pages = -(-bands.num_rows // page_rows)
    if table.size != 8 * pages:
        raise bands.corrupt("last keys of pages", f"{8 * pages} bytes", f"{table.size} bytes")
    last_keys = as_array(table, "<u8").astype(np.uint64)
    if bool((last_keys[1:] < last_keys[:-1]).any()):
        raise bands.corrupt("last keys of pages", "ascending keys", "others")
    return MinHashFiles(signatures, bands, page_rows, last_keys)


def _stored(file: IndexFile, params: MinHashParams) -> Iterator[tuple[RowNumbers, UInt16s]]:
    """Yield rows and signatures of a segment."""
    for start in range(0, file.num_rows, _READ_ROWS):
        rows = file.read(["_rowid", "signature"], start, start + _READ_ROWS)
        file.check_present(rows["_rowid"])
        known = signatures_of(file, rows["signature"].combine_chunks(), params)
        yield rows["_rowid"].to_numpy(), known


def _signed(source: IndexSource, params: MinHashParams) -> Iterator[tuple[RowNumbers, UInt16s]]:
    """Yield rows and signatures of the texts of a source."""
    check_type("MINHASHLSH", source.field, supported=is_text(source.field.type))
    signer = TextSigner(params)
    for values, rows in source.batches():
        signed = signer.sign(values)
        yield rows[signed.texts], signed.signatures


def _write(
    params: MinHashParams,
    signed: Iterator[tuple[RowNumbers, UInt16s]],
    memory_limit: int,
    out: SegmentWriter,
) -> BuiltSegment:
    """Write signatures in the given order, then the sorted bands."""
    details = params.encoded()
    metadata = {_DETAILS_TYPE: details.hex(), _VERSION: "0"}
    kind: Any = pa.list_(pa.uint16(), params.num_hashes)
    stored: pa.Field[Any] = pa.field(
        "signature", kind, nullable=False,
        metadata={"lance-encoding:structural-encoding": "fullzip", **_PLAIN},
    )  # fmt: skip
    schema = pa.schema([pa.field("_rowid", pa.uint64(), nullable=False), stored])
    file = out.create(SIGNATURES, schema)
    file.add_metadata(metadata)
    count = [0]

    def bands() -> Iterator[ValueBatch]:
        for rows, signatures in signed:
            if not len(rows):
                continue
            flat: Any = pa.array(signatures.reshape(-1))
            values = pa.FixedSizeListArray.from_arrays(flat, type=kind)
            file.write(pa.record_batch([pa.array(rows), values], schema=schema))
            keys = band_keys(signatures, params.num_bands)
            texts = np.arange(count[0], count[0] + len(rows), dtype=np.uint64)
            count[0] += len(rows)
            yield ValueBatch(pa.array(keys.reshape(-1)), np.repeat(texts, params.num_bands))

    with sorted_runs(bands(), memory_limit) as runs:
        file.finish()
        _write_bands(merged(runs, memory_limit), {**metadata, COUNT: str(count[0])}, out)
    return BuiltSegment(_TYPE_URL, details)


def _write_bands(
    batches: Iterator[ValueBatch], metadata: Mapping[str, str], out: SegmentWriter
) -> None:
    fields = [
        pa.field(name, kind, nullable=False, metadata=_PLAIN)
        for name, kind in (("band_key", pa.uint64()), ("doc_id", pa.uint32()))
    ]
    schema = pa.schema(fields)
    file = out.create(BANDS, schema)
    pages: list[UInt64s] = []
    start = 0
    keys = np.empty(0, np.uint64)
    for keys, texts in _in_order(batches):
        columns: Any = [pa.array(keys), pa.array(texts.astype(np.uint32))]
        file.write(pa.record_batch(columns, schema=schema))
        # Keys of the last rows of pages that end in this batch.
        pages.append(keys[_PAGE_ROWS - 1 - start % _PAGE_ROWS :: _PAGE_ROWS])
        start += len(keys)
    if start % _PAGE_ROWS:
        pages.append(keys[-1:])
    last_keys = np.concatenate([np.empty(0, np.uint64), *pages])
    number = file.add_buffer(last_keys.astype("<u8").tobytes())
    file.add_metadata({**metadata, PAGE_ROWS: str(_PAGE_ROWS), PAGE_TABLE: str(number)})
    file.finish()


def _in_order(batches: Iterator[ValueBatch]) -> Iterator[tuple[UInt64s, RowNumbers]]:
    """Yield batches of ascending keys with texts; texts of equal keys ascend, too."""
    last: list[tuple[UInt64s, RowNumbers]] = []  # of the last key, whose texts may continue
    for values, texts in batches:
        keys = np.asarray(values)
        whole = int(np.searchsorted(keys, keys[-1]))
        if whole or (last and last[0][0][0] != keys[-1]):
            yield _ascending([*last, (keys[:whole], texts[:whole])])
            last = []
        last.append((keys[whole:], texts[whole:]))
    if last:
        yield _ascending(last)


def _ascending(parts: Sequence[tuple[UInt64s, RowNumbers]]) -> tuple[UInt64s, RowNumbers]:
    """Concatenate keys and texts of several batches; sort the texts of equal keys."""
    keys, texts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    same = np.concatenate(([False], keys[1:] == keys[:-1]))
    shared = np.flatnonzero(same | np.append(same[1:], False))
    texts[shared] = texts[shared][np.lexsort((texts[shared], keys[shared]))]
    return keys, texts
