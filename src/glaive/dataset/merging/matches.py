"""Rows of a dataset that have a key of the source: found while key columns are decoded.

The keys are a condition on each column, so numbers and times are tested in their encoded
form, dictionaries once per entry, and other columns window by window; only of rows that pass
are keys made and looked up. What is read are the key columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.conditions import IsOneOf
from glaive.dataset.merging.key_values import KeyValues, has_words
from glaive.dataset.merging.matching import SourceKeys
from glaive.encodings.integer_ranges import word_test
from glaive.expr.filters import Term
from glaive.expr.tree import Literal
from glaive.format.flags import Feature
from glaive.scan.filter.scan import pick
from glaive.scan.filter.search import Search
from glaive.scan.metrics import Meter
from glaive.scan.options import ScanOptions
from glaive.scan.system_columns import ROW_ADDRESS, ROW_ID, ROW_OFFSET
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["Matches", "find_matches"]

Addresses = NDArray[np.uint64]
Int64s = NDArray[np.int64]

_FEW: Final = 0.25
"""Rows of the source per row of the dataset up to which it pays to leave rows out early."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows of the dataset that match, in its order.

    Parameters
    ----------
    addresses, ids
        Of the rows; without stable row ids they are the same.
    source
        The first row of the source with their key.
    positions
        Which of the live rows of the dataset they are; None unless it was asked for.
    """

    addresses: Addresses
    ids: Addresses
    source: Int64s
    positions: Int64s | None

    def only(self, kept: NDArray[np.bool_] | Int64s) -> Matches:
        """Those that a mask or numbers pick."""
        positions = None if self.positions is None else self.positions[kept]
        return Matches(self.addresses[kept], self.ids[kept], self.source[kept], positions)

    def in_order_of_source(self, rows: int) -> Matches:
        """The same in the order of the source, which has so many rows."""
        places = np.full(rows, -1, np.int64)
        places[self.source] = np.arange(len(self.source))
        order = places[places >= 0]
        if len(order) < len(self.source):  # several match one
            order = np.argsort(self.source, kind="stable")
        return self.only(order)


def find_matches(
    dataset: OpenedVersion, keys: SourceKeys, *, positions: bool, meter: Meter
) -> Matches:
    """Look the keys of all live rows up among those of the source."""
    snapshot = dataset.snapshot
    stable = snapshot.manifest.uses(Feature.STABLE_ROW_IDS)
    system = [ROW_ADDRESS, *([ROW_ID] if stable else []), *([ROW_OFFSET] if positions else [])]
    columns = (*keys.names, *system)
    view = Views(snapshot).scan(columns, inputs=keys.names)
    terms = _terms(keys) if keys.rows <= _FEW * snapshot.num_rows else ()
    search = Search(terms, view.projection.inputs, meter=meter)
    number = len(keys.names)
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in (*system, "source")}
    for chunk in pick(view, search, ScanOptions()).chunks():
        with meter.step("look up"):
            rows = keys.find(chunk[:number])
            hits = rows >= 0
        whole = bool(hits.all())
        for name, column in zip(system, chunk[number:], strict=True):
            values = column.to_numpy()
            found[name].append(values if whole else values[hits])
        found["source"].append(rows if whole else rows[hits])
    addresses = _joined(found[ROW_ADDRESS], np.uint64)
    return Matches(
        addresses,
        _joined(found[ROW_ID], np.uint64) if stable else addresses,
        _joined(found["source"], np.int64),
        _joined(found[ROW_OFFSET], np.int64) if positions else None,
    )


def _joined(parts: list[NDArray[Any]], kind: Any) -> NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *(part.view(kind) for part in parts)])


def _terms(keys: SourceKeys) -> tuple[Term, ...]:
    """Tests that all rows with a key of the source pass, and as few others as can be."""
    terms = []
    for name, column, values in zip(keys.names, keys.columns, keys.values, strict=True):
        if isinstance(column.type, pa.BaseExtensionType) or pa.types.is_nested(column.type):
            continue  # files may hold something else
        condition = None
        if has_words(column.type):
            condition = name, IsOneOf(column.drop_null())
            word_test(condition[1], column.type)  # once, and not by each thread
        terms.append(_KeyTerm(expression=_ANY, condition=condition, path=name, values=values))
    return tuple(sorted(terms, key=lambda term: term.condition is None))  # the quick ones first


_ANY: Final = Literal(True, pa.bool_())


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyTerm(Term):
    """Whether a column has one of the values that the source has."""

    path: str
    values: KeyValues

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.path,)

    def mask(self, batch: pa.RecordBatch) -> Any:
        array: Any = batch.column(batch.schema.get_field_index(self.path))
        codes = self.values.find(array)
        return pa.array((codes >= 0) & (codes < self.values.size - 1))
