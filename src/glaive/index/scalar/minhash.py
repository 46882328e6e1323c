"""MINHASHLSH: signatures of texts, and which texts share a band of their signatures.

Specification: "MINHASHLSH" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from glaive.errors import UnsupportedFeatureError
from glaive.index.address_map import AddressMap
from glaive.index.protocol import BuiltSegment, Entry, IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.row_set import RowNumbers
from glaive.index.scalar.minhash_parameters import MinHashParams
from glaive.index.scalar.minhash_search import MinHashFiles, OpenedMinHash, signatures_of
from glaive.index.scalar.parameters import check_type
from glaive.index.scalar.signatures import TextSigner, band_keys
from glaive.index.scalar.sorted_runs import merged, sorted_runs
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.index.source import IndexSource, ValueBatch
from glaive.memory import as_array
from glaive.types import UInt16s, UInt64s

__all__ = ["MinHash"]

SIGNATURES: Final = "signatures.lance"
BANDS: Final = "bands.lance"
COUNT: Final = "minhash_lsh_num_docs"
PAGE_ROWS: Final = "minhash_lsh_page_rows"
PAGE_TABLE: Final = "minhash_lsh_page_table_buffer"
_DETAILS, _VERSION = "minhash_lsh_details", "minhash_lsh_index_version"
_TYPE_URL: Final = "/lance.index.pb.MinHashLshIndexDetails"
_PAGE_ROWS: Final = 4096
_READ_ROWS: Final = 1 << 15
_MERGE_MEMORY: Final = 256 << 20
_PLAIN: Final = {"lance-encoding:compression": "none"}


@index_kind
class MinHash(IndexKind):
    """Texts by the bands of their signatures."""

    name: ClassVar[str] = "minhashlsh"
    newest: ClassVar[int] = 0
    answers_filters: ClassVar[bool] = False
    indexes_dictionaries: ClassVar[bool] = False
    markers: ClassVar[tuple[str, ...]] = (SIGNATURES,)

    def open(self, segment: Segment) -> OpenedMinHash:
        """Read the last key of each page of bands."""
        params = _params(segment)
        return OpenedMinHash(params, _files(segment, params))

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Read the texts once; the bands are sorted within the source's limit of memory."""
        params = MinHashParams.of(parameters)
        return _write(params, _signed(source, params), source.memory_limit, out)

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Put the signatures of segments behind each other, and those of a source."""
        params = _params(segments[0])
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

        limit = _MERGE_MEMORY if source is None else source.memory_limit
        return _write(params, signed(), limit, out)

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """The parameters that the segment was built with."""
        return _params(segment).options()

    def details(self, entry: Entry) -> dict[str, Any]:
        """How texts became signatures."""
        where = f"details of index {entry.name!r}"
        return MinHashParams.read(entry.index_details.value, where).options()

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Texts, pages of bands, and the parameters."""
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
        """Rebuild the signatures of surviving rows, and the bands with their new numbers."""
        signatures = segment.open(SIGNATURES)
        signatures.check(_rowid=pa.uint64(), signature=None)
        rows = signatures.read()
        signatures.check_present(rows["_rowid"])
        surviving, kept = address_map.remap_rows(rows, "_rowid")
        out.write(SIGNATURES, surviving)

        file = segment.open(BANDS)
        file.check(band_key=pa.uint64(), doc_id=pa.uint32())
        bands = file.read(["band_key", "doc_id"])
        for column in bands.columns:
            file.check_present(column)
        numbers = bands["doc_id"].to_numpy()
        if len(numbers) and int(numbers.max()) >= len(kept):
            expected = f"a number below {len(kept)}"
            raise file.corrupt("document of a band", expected, f"{numbers.max()}")
        remaining = np.flatnonzero(kept[numbers])
        keys = bands["band_key"].to_numpy()[remaining]
        renumbered = (np.cumsum(kept) - 1).astype(np.uint32)[numbers[remaining]]
        per_page = file.number(PAGE_ROWS, _PAGE_ROWS, least=1)
        lasts = keys[np.minimum(np.arange(0, len(keys), per_page) + per_page, len(keys)) - 1]
        metadata = {key: value for key, value in file.metadata.items() if key != PAGE_TABLE}
        out.write(
            BANDS,
            pa.table([pa.array(keys), pa.array(renumbered)], schema=bands.schema),
            metadata={**metadata, COUNT: str(surviving.num_rows)},
            buffers={PAGE_TABLE: lasts.astype("<u8").tobytes()},
        )
        return RebuiltSegment()


def _params(segment: Segment) -> MinHashParams:
    return MinHashParams.read(segment.entry.index_details.value, segment.where)


def _files(segment: Segment, params: MinHashParams) -> MinHashFiles:
    """Open and check the files of a segment.

    Raises
    ------
    CorruptFileError
        Columns, counts or the table of pages are wrong, or a file was built with other parameters.
    """
    signatures, bands = segment.open(SIGNATURES), segment.open(BANDS)
    signatures.check(_rowid=pa.uint64(), signature=pa.list_(pa.uint16(), params.num_hashes))
    bands.check(band_key=pa.uint64(), doc_id=pa.uint32())
    for file in (signatures, bands):
        said = file.metadata.get(_DETAILS, "")
        try:
            content = bytes.fromhex(said)
        except ValueError as error:
            expected = "hexadecimal digits"
            raise file.corrupt(f"metadata {_DETAILS!r}", expected, str(error)) from error
        if MinHashParams.read(content, file.path) != params:
            raise file.corrupt(f"metadata {_DETAILS!r}", "parameters of the index", "others")
    page_rows = bands.number(PAGE_ROWS, least=1)
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
    """Rows and signatures of a segment."""
    for start in range(0, file.num_rows, _READ_ROWS):
        rows = file.read(["_rowid", "signature"], start, start + _READ_ROWS)
        file.check_present(rows["_rowid"])
        known = signatures_of(file, rows["signature"].combine_chunks(), params)
        yield rows["_rowid"].to_numpy(), known


def _signed(source: IndexSource, params: MinHashParams) -> Iterator[tuple[RowNumbers, UInt16s]]:
    """Rows and signatures of the texts of a source."""
    kind = source.field.type
    types = pa.types
    is_text = types.is_string(kind) or types.is_large_string(kind)
    check_type("MINHASHLSH", source.field, supported=is_text)
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
    """Write signatures as they come, then their bands, sorted."""
    details = params.encoded()
    said = {_DETAILS: details.hex(), _VERSION: "0"}
    kind: Any = pa.list_(pa.uint16(), params.num_hashes)
    stored: pa.Field[Any] = pa.field(
        "signature", kind, nullable=False,
        metadata={"lance-encoding:structural-encoding": "fullzip", **_PLAIN},
    )  # fmt: skip
    schema = pa.schema([pa.field("_rowid", pa.uint64(), nullable=False), stored])
    file = out.create(SIGNATURES, schema)
    file.add_metadata(said)
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
        _write_bands(merged(runs, memory_limit), {**said, COUNT: str(count[0])}, out)
    return BuiltSegment(_TYPE_URL, details)


def _write_bands(
    batches: Iterator[ValueBatch], said: Mapping[str, str], out: SegmentWriter
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
        # The last rows of pages that end in this batch.
        pages.append(keys[_PAGE_ROWS - 1 - start % _PAGE_ROWS :: _PAGE_ROWS])
        start += len(keys)
    if start % _PAGE_ROWS:
        pages.append(keys[-1:])
    last_keys = np.concatenate([np.empty(0, np.uint64), *pages])
    number = file.add_buffer(last_keys.astype("<u8").tobytes())
    file.add_metadata({**said, PAGE_ROWS: str(_PAGE_ROWS), PAGE_TABLE: str(number)})
    file.finish()


def _in_order(batches: Iterator[ValueBatch]) -> Iterator[tuple[UInt64s, RowNumbers]]:
    """Batches of ascending keys, with texts; texts of one key come ascending, too."""
    last: list[tuple[UInt64s, RowNumbers]] = []  # of one key, of which more texts may follow
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
    """Keys and texts of several batches as one; texts of equal keys are sorted."""
    keys, texts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    same = np.concatenate(([False], keys[1:] == keys[:-1]))
    shared = np.flatnonzero(same | np.append(same[1:], False))
    texts[shared] = texts[shared][np.lexsort((texts[shared], keys[shared]))]
    return keys, texts
