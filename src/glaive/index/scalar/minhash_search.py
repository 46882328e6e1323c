"""MINHASHLSH, searched: texts that share a band with a query, by how much their signatures differ.

Specification: "MINHASHLSH" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import ascending
from glaive.index.protocol import OpenedIndex
from glaive.index.row_set import RowNumbers
from glaive.index.scalar.minhash_parameters import MinHashParams
from glaive.index.scalar.signatures import TextSigner, band_keys
from glaive.index.segment import IndexFile
from glaive.named_tuple import NamedTuple
from glaive.types import Float32s, UInt16s, UInt32s, UInt64s

__all__ = ["MinHashFiles", "OpenedMinHash", "SimilarTexts", "distances_of", "signatures_of"]

_SIGNATURES_AT_ONCE: Final = 1 << 15
_BAND_ROWS_AT_ONCE: Final = 1 << 20


class SimilarTexts(NamedTuple):
    """Rows, as the segment numbers them, and how far their texts are from the query."""

    rows: RowNumbers
    distances: Float32s


class MinHashFiles(NamedTuple):
    """The files of a segment, checked.

    Parameters
    ----------
    signatures, bands
        One row for each text; one for each text and band.
    page_rows
        Rows of a page of bands but the last.
    last_keys
        Key of the last row of each page.
    """

    signatures: IndexFile
    bands: IndexFile
    page_rows: int
    last_keys: UInt64s


class OpenedMinHash(OpenedIndex):
    """Where the keys of bands are. Safe to share between threads.

    Parameters
    ----------
    params
        How texts became signatures.
    files
        Of the segment.
    """

    def __init__(self, params: MinHashParams, files: MinHashFiles) -> None:
        self.params, self._files = params, files

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        files = self._files
        return int(files.last_keys.nbytes) + files.signatures.nbytes + files.bands.nbytes

    def signature(self, text: str) -> UInt16s | None:
        """The signature of a query; None if it has no tokens."""
        signed = TextSigner(self.params).sign(pa.array([text], pa.large_string()))
        return signed.signatures[0] if len(signed.texts) else None

    def search(self, signature: UInt16s) -> Iterator[SimilarTexts]:
        """Texts that share a band with a query, in no order.

        Two reads: pages of bands, then the signatures of the texts in them.

        Raises
        ------
        CorruptFileError
            A band names a text that is not there, or a value is null.
        """
        keys = band_keys(signature[None, :], self.params.num_bands)[0]
        texts = self._texts_of(keys)
        for start in range(0, len(texts), _SIGNATURES_AT_ONCE):
            some = texts[start : start + _SIGNATURES_AT_ONCE].astype(np.int64)
            rows, stored = self._files.signatures.take(["_rowid", "signature"], some)
            self._files.signatures.check_present(rows)
            known = signatures_of(self._files.signatures, stored, self.params)
            yield SimilarTexts(np.asarray(rows), distances_of(known, signature))

    def _texts_of(self, keys: UInt64s) -> UInt32s:
        """Numbers of the texts that have one of some keys of bands, ascending."""
        _, bands, size, last_keys = self._files
        first = np.searchsorted(last_keys, keys)
        last = np.minimum(np.searchsorted(last_keys, keys, side="right") + 1, len(last_keys))
        wanted = np.zeros(len(last_keys), np.bool_)
        for start, stop in zip(first.tolist(), last.tolist(), strict=True):
            wanted[start:stop] = True  # of a few bands
        found = [np.empty(0, np.uint32)]
        pages = np.flatnonzero(wanted)
        step = max(1, _BAND_ROWS_AT_ONCE // size)
        for at in range(0, len(pages), step):
            edges = np.flatnonzero(np.diff(pages[at : at + step]) != 1) + 1
            ranges = [
                (int(run[0]) * size, min(bands.num_rows, (int(run[-1]) + 1) * size))
                for run in np.split(pages[at : at + step], edges)
            ]
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
    """A column of signatures as numbers, of shape ``(texts, values)``.

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
    """One less the share of values that are those of a query."""
    equal = (signatures == query).sum(axis=1)
    distances: Float32s = np.float32(1) - (equal / np.float32(len(query))).astype(np.float32)
    return distances
