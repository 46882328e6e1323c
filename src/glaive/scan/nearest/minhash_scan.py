"""A scan that returns the rows whose texts are most like a text.

Specification: "Searching" in ``docs/format/minhash-indices.md``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from glaive.arrow.chunked import join_large
from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.index.row_sets import RowNumbers, RowSet
from glaive.index.scalar.minhash import OpenedMinHash, TextSigner, band_keys, distances_of
from glaive.scan.filter_scan import FilteredScan
from glaive.scan.found_columns import FoundColumns
from glaive.scan.indices import LogicalIndex, SnapshotIndices
from glaive.scan.nearest.options import DEFAULT_COUNT, MinHashQuery
from glaive.scan.nearest.vectors import Found, added_columns
from glaive.scan.options import Meter, ScanOptions
from glaive.scan.ranked import PlanStep, RankedScan, addresses_of, filters_of, parted, passing_rows
from glaive.scan.take import take_physical
from glaive.scan.views import Views
from glaive.types import Float32s, UInt16s

_KIND: Final = "minhashlsh"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MinHashScan(RankedScan):
    """A search for texts that is ready to run, once or several times.

    Parameters
    ----------
    query
        The query.
    index
        The index.
    """

    query: MinHashQuery
    index: LogicalIndex

    @classmethod
    def of(cls, views: Views, options: ScanOptions, query: MinHashQuery) -> MinHashScan:
        """Find the index, the columns of the result and the filter.

        Raises
        ------
        OptionError
            The column lacks a MINHASHLSH index.
        ColumnNotFoundError, FilterError
            A column is missing, or the filter is invalid.
        """
        snapshot = views.snapshot
        field = snapshot.manifest.schema.find(query.column)[-1]
        known = [
            index for index in SnapshotIndices.of(snapshot).on(field.id) if index.kind.name == _KIND
        ]
        if not known:
            raise OptionError(
                f"No MinHash LSH index found for column {query.column}: nearest: create one, "
                f"create_scalar_index({query.column!r}, 'MINHASHLSH')"
            )
        added = added_columns(views, batch=False)
        prefilter, postfilter = filters_of(views, options, added)
        return cls(
            views=views, options=options, columns=FoundColumns.of(views, options, added),
            prefilter=prefilter, postfilter=postfilter, query=query, index=known[0],
        )  # fmt: skip

    def steps(self) -> list[PlanStep]:
        """Return the steps of the search, the last step first."""
        segments, (covered, rest) = len(self.index.segments), self._parts
        details = f"column={self.query.column}, k={self._count}, index {self.index.name}: "
        details += f"{segments} segments of {len(covered)} fragments"
        steps = [*self._result_steps(), PlanStep("MinHashSearch", details, "search")]
        if rest:
            details = f"texts read: {len(rest)} fragments"
            steps.append(PlanStep("MinHashFlatSearch", details, "search"))
        return steps + self._prefilter_steps()

    @property
    def _count(self) -> int:
        """Number of rows to find."""
        limit = self.options.limit
        return (DEFAULT_COUNT if limit is None else limit) + self.options.offset

    @property
    def _parts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Fragments that segments cover, and fragments whose texts are read."""
        return parted(self.views.snapshot, self.options, self.index.fragments)

    def _search(self, meter: Meter) -> Found:
        indices = SnapshotIndices.of(self.views.snapshot)
        opened: list[Any] = [(one, indices.open(one)) for one in self.index.segments]
        first: OpenedMinHash = opened[0][1]
        signature = first.signature(self.query.text)
        if signature is None or not self._count:
            return Found.none()
        allowed = self._allowed(meter)
        rows, distances = [np.empty(0, np.uint64)], [np.empty(0, np.float32)]
        for segment, index in opened:
            same = index.params == first.params
            sought = signature if same else index.signature(self.query.text)
            if sought is None:
                continue
            for found in index.search(sought):
                addresses, known = indices.locate(segment, found.rows)
                if allowed is not None:
                    known &= allowed.contains(addresses)
                rows.append(addresses[known])
                distances.append(found.distances[known])
        if self._parts[1]:
            read, far = self._read(first, signature, meter)
            rows.append(read)
            distances.append(far)
        return self._nearest(np.concatenate(rows), np.concatenate(distances))

    def _nearest(self, rows: RowNumbers, distances: Float32s) -> Found:
        """Return the nearest of some rows, by address; for equal distances, the lowest ids."""
        if len(rows) > self._count:
            limit = np.partition(distances, self._count - 1)[self._count - 1]
            rows, distances = rows[distances <= limit], distances[distances <= limit]
        fragment, row = self.views.snapshot.places_of(rows)
        source = self.views.scan((), with_row_id=True)
        keys = np.empty(0, np.uint64)
        if len(rows):
            keys = take_physical(source, fragment, row).column(0).to_numpy().astype(np.uint64)
        order = np.lexsort((keys, distances))[: self._count]
        none = np.zeros(len(order), np.int32)
        return Found(none, distances[order], keys[order], fragment[order], row[order])

    def _allowed(self, meter: Meter) -> RowSet | None:
        """Return the addresses of rows to search in indexed fragments; ``None`` for all."""
        if self.prefilter is None and self.options.fragments is None:
            return None
        with meter.step("prefilter"):
            return addresses_of(self._passing(self._parts[0], meter))

    def _read(
        self, opened: OpenedMinHash, signature: UInt16s, meter: Meter
    ) -> tuple[RowNumbers, Float32s]:
        """Read texts of unindexed fragments; return rows that share a band with the query."""
        params = opened.params
        signer = TextSigner(params)
        wanted = band_keys(signature[None, :], params.num_bands)
        rows, distances = [np.empty(0, np.uint64)], [np.empty(0, np.float32)]
        passing = self._passing(self._parts[1], meter, self.query.column)
        for values, addresses in passing.chunks(stream=True):
            signed = signer.sign(join_large([values]))
            meter.count("texts_not_indexed", len(values))
            near = (band_keys(signed.signatures, params.num_bands) == wanted).any(axis=1)
            numbers = addresses.to_numpy().astype(np.uint64)
            rows.append(numbers[signed.texts[near]])
            distances.append(distances_of(signed.signatures[near], signature))
        return np.concatenate(rows), np.concatenate(distances)

    def _passing(self, fragments: tuple[int, ...], meter: Meter, *columns: str) -> FilteredScan:
        """Return the rows of some fragments that pass a prefilter."""
        options = replace(self.options, fragments=fragments)
        return passing_rows(self.views, options, self.prefilter, meter, columns)
