"""Rows of a fragment that passed a filter, and their columns.

Columns are made by whichever way is cheaper for so many rows: single rows taken, or whole
ranges decoded and cut down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import number_array
from glaive.arrow.capacity import in_parts
from glaive.file.drive import drive, join
from glaive.scan.bound import BoundFragment
from glaive.scan.filter.columns import Cells
from glaive.scan.filter.rows import RowSet
from glaive.scan.projection import Computed, Output

__all__ = ["Hits", "fields_of", "read_together"]

Int64s = NDArray[np.int64]


_FEW_NUMBERS, _FEW_OTHERS = 0.01, 0.12
"""Shares of rows up to which single rows are taken, and above which ranges are decoded.

Measured on two million rows: numbers are unpacked at memory speed, so that a take of more
than a hundredth costs more; texts and lists are not.
"""

_NUMBER_BYTES = 16


@dataclass(eq=False)
class Hits:
    """Rows of ``start`` to ``stop`` of a fragment that passed.

    Parameters
    ----------
    found, flags
        The rows, or one flag per row of the range; all rows without.
    cells
        Columns of the whole range that were decoded on the way.
    """

    bound: BoundFragment
    start: int
    stop: int
    found: RowSet | None = None
    flags: NDArray[np.bool_] | None = None
    cells: Cells | None = None

    @property
    def range(self) -> int:
        """Rows of the range."""
        return self.stop - self.start

    @cached_property
    def count(self) -> int:
        """Rows that passed."""
        if self.found is not None:
            return self.found.count
        return self.range if self.flags is None else int(np.count_nonzero(self.flags))

    @cached_property
    def rows(self) -> Int64s:
        """The physical rows, ascending."""
        if self.found is not None:
            return self.found.rows
        if self.flags is None:
            return np.arange(self.start, self.stop, dtype=np.int64)
        return np.flatnonzero(self.flags) + self.start

    def cut(self, skip: int, stop: int) -> Hits:
        """The hits numbered ``skip`` to ``stop``."""
        if skip == 0 and stop == self.count:
            return self
        rows = self.rows[skip:stop]
        first, end = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (self.start, self.start)
        return Hits(self.bound, first, end, found=RowSet(first, end, numbers=rows))

    # ---------------------------------------------------------------- columns

    def chunks(
        self,
        outputs: Sequence[Output | Computed],
        *,
        late: bool | frozenset[int] | None = None,
        deleted: bool = False,
    ) -> Iterable[list[Any]]:
        """Columns of the hits, cut where one array would be too large; see :meth:`columns`."""

        def work(start: int, stop: int) -> list[Any]:
            return self.cut(start, stop).columns(outputs, late=late, deleted=deleted)

        return in_parts(work, 0, self.count)

    def columns(
        self,
        outputs: Sequence[Output | Computed],
        *,
        late: bool | frozenset[int] | None = None,
        deleted: bool = False,
    ) -> list[Any]:
        """Columns of the hits.

        Parameters
        ----------
        late
            Whether to take single rows: always, never, for these fields, or (None) where
            that is cheaper.
        deleted
            Deleted rows may be among the hits.

        Raises
        ------
        CapacityError
            One array does not hold a column.
        """
        bound = self.bound

        def is_taken(at: int) -> bool:
            if self.count == self.range:
                return False
            if late is None:
                return self.count <= _few(bound.stored[at].field.type) * self.range
            return late if isinstance(late, bool) else at in late

        def read(at: int) -> Any:
            if self.cells is not None and self.cells.has(at):
                return self._picked(self.cells.field(at))
            column = bound.stored[at]
            if is_taken(at):
                return column.take(self.rows)
            return self._picked(column.read(self.start, self.stop))

        def system(name: str) -> Any:
            return bound.system(name, self.rows, deleted=deleted)

        cells = Cells(self.count, read, system, bound.shown)
        known = self.cells
        wanted = [at for at in fields_of(outputs) if known is None or not known.has(at)]
        taken = [at for at in wanted if is_taken(at)]
        whole = [at for at in wanted if at not in taken]
        read_together(bound, taken, cells, lambda one: one.plan_take(self.rows))
        read_together(
            bound, whole, cells, lambda one: one.plan_read(self.start, self.stop), self._picked
        )
        return [cells.output(one) for one in outputs]

    def _picked(self, array: Any) -> Any:
        """The hits of an array of the whole range.

        By row numbers: several times quicker than Arrow's ``filter``.
        """
        import pyarrow.compute as pc

        if self.count == self.range:
            return array
        return pc.call_function("take", [array, self._within], pc.TakeOptions(boundscheck=False))

    @cached_property
    def _within(self) -> Any:
        """The rows, counted from the start of the range."""
        if self.found is None and self.flags is not None:
            return number_array(np.flatnonzero(self.flags))
        return number_array(self.rows - self.start if self.start else self.rows)


def _few(kind: Any) -> float:
    """Share of rows of a type up to which a take is cheaper."""
    try:
        plain = int(kind.bit_width) // 8 <= _NUMBER_BYTES
    except ValueError:  # variable width
        plain = False
    return _FEW_NUMBERS if plain and not pa.types.is_dictionary(kind) else _FEW_OTHERS


def fields_of(outputs: Sequence[Output | Computed]) -> list[int]:
    """Numbers of the fields that columns are made of, ascending."""
    found: set[int] = set()
    for one in outputs:
        inputs = one.inputs.values() if isinstance(one, Computed) else [one]
        found.update(place.at for place in inputs if place.system is None)
    return sorted(found)


def read_together(
    bound: BoundFragment,
    fields: Sequence[int],
    cells: Cells,
    plan: Callable[[Any], Any],
    then: Callable[[Any], Any] | None = None,
) -> None:
    """Read several fields of a file that must be fetched with joined requests.

    ``plan`` makes the step of a column, such as ``column.plan_read(start, stop)``. Fields of
    mapped files are left to be read when they are asked for.
    """
    if bound.mapped or len(bound.readers) != 1 or len(fields) < 2:
        return
    steps = [plan(bound.stored[at]) for at in fields]
    for at, array in zip(fields, drive(bound.readers[0], join(steps, list)), strict=True):
        cells.put(at, array if then is None else then(array))
