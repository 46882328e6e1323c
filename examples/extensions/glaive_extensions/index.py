"""Add the index kind ``MODULO``: integers by their last digit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.conditions import IsOneOf
from glaive.index.protocol import (
    BuiltSegment,
    Candidates,
    IndexKind,
    IndexQuery,
    IndexSource,
    ScalarIndex,
)
from glaive.index.row_sets import RowSet
from glaive.index.segment import Segment, SegmentWriter


class Opened(ScalarIndex):
    """The last digit of each value, and its row."""

    def __init__(self, digits: Any, rows: Any) -> None:
        self.digits, self.rows = digits, rows

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory."""
        return int(self.digits.nbytes + self.rows.nbytes)

    def answers(self, query: IndexQuery) -> bool:
        """Answer ``x = …`` and ``x IN (…)``."""
        return isinstance(query, IsOneOf) and not query.negated

    def estimate(self, query: IndexQuery) -> int:
        """Return a tenth of the rows."""
        return len(self.rows) // 10

    def search(self, query: Any, *, nulls: bool = False) -> Candidates:
        """Return candidate rows; glaive then tests their values."""
        found = np.isin(self.digits, np.asarray(query.values) % 10)
        return Candidates(RowSet.of(self.rows[found]), None, exact=False)


class Modulo(IndexKind):
    """The index kind, which builds and opens indices."""

    name, newest = "modulo", 0

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Write digits and rows of all non-null values."""
        parts = [*source.batches()]
        known = [np.asarray(values.is_valid()) for values, _ in parts]
        digits = np.concatenate([np.asarray(values.drop_null()) % 10 for values, _ in parts])
        rows = np.concatenate([rows[valid] for (_, rows), valid in zip(parts, known, strict=True)])
        out.write("digits.lance", pa.table({"digit": digits, "row": rows}))
        return BuiltSegment("/example.ModuloIndexDetails")

    def open(self, segment: Segment) -> Opened:
        """Read the whole index."""
        stored = segment.open("digits.lance").read()
        return Opened(stored["digit"].to_numpy(), stored["row"].to_numpy())
