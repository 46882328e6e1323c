"""Rows that passed a filter, and their columns.

Columns are made by whichever way is cheaper for so many rows: single rows taken, or whole
ranges decoded and cut down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from glaive.arrow.buffers import integer_array
from glaive.arrow.capacity import in_parts
from glaive.dataclass import dataclass
from glaive.file.run_fetch import and_then, join, run_fetch
from glaive.kernels.compact import DeletionMask
from glaive.scan.bound import BoundFragment
from glaive.scan.deletions import without_deleted
from glaive.scan.filter.columns import LazyColumns
from glaive.scan.filter.rows import RowSelection
from glaive.scan.projection import Computed, Output
from glaive.types import Int64s

__all__ = ["Chunk", "FragmentSelection", "Late", "Selection", "fields_of", "read_in_one_request"]

Chunk = list[Any]
"""One array per column."""

Late = bool | frozenset[int] | None
"""Which fields are taken row by row: all, none, these, or (None) where that is cheaper."""

_TAKEN_NUMBERS, _TAKEN_OTHERS = 0.01, 0.12
"""Shares of rows up to which single rows are taken, and above which ranges are decoded.

Measured on two million rows: numbers are unpacked at memory speed, so that a take of more
than a hundredth costs more; strings and lists are not.
"""

_GATHERED = 0.1
"""Share of rows up to which values of an array are gathered by number, else put side by side.

Of four million plain numbers 1.4 % take 1 ms more side by side, half of them 2.5 ms less.
"""

_NUMBER_BYTES = 16


class Selection(Protocol):
    """Rows of a part of a plan that passed a filter."""

    @property
    def count(self) -> int:
        """How many they are."""

    def chunks(self, outputs: Sequence[Output | Computed], *, late: Late) -> Iterable[Chunk]:
        """Their columns, cut where one array would be too large."""

    def row_ranges(self) -> Iterator[tuple[int, Int64s]]:
        """Id of each fragment, and its selected rows: physical, ascending."""


@dataclass(frozen=True, eq=False, slots=True)
class FragmentSelection:
    """Selected rows of one fragment (a :class:`Selection`).

    Parameters
    ----------
    decoded
        Columns of the whole range that were decoded to find the rows.
    deleted
        Deleted rows may be among them.
    """

    bound: BoundFragment
    selected: RowSelection
    decoded: LazyColumns | None = None
    deleted: bool = False

    @property
    def count(self) -> int:
        """Selected rows."""
        return self.selected.count

    @property
    def rows(self) -> Int64s:
        """The physical rows, ascending."""
        return self.selected.rows

    def row_ranges(self) -> Iterator[tuple[int, Int64s]]:
        """Id of the fragment, and the rows."""
        yield self.bound.fragment.id, self.rows

    def cut(self, skip: int, stop: int) -> FragmentSelection:
        """The selected rows numbered ``skip`` to ``stop``."""
        if skip == 0 and stop == self.count:
            return self
        return replace(self, selected=self.selected.cut(skip, stop), decoded=None)

    def chunks(self, outputs: Sequence[Output | Computed], *, late: Late) -> Iterable[Chunk]:
        """Columns of the rows, cut where one array would be too large; see :meth:`columns`."""

        def work(start: int, stop: int) -> Chunk:
            return self.cut(start, stop).columns(outputs, late=late)

        return in_parts(work, 0, self.count)

    def columns(self, outputs: Sequence[Output | Computed], *, late: Late = None) -> Chunk:
        """Columns of the rows.

        Raises
        ------
        CapacityError
            One array does not hold a column.
        """
        bound, selected, decoded = self.bound, self.selected, self.decoded
        start, stop = selected.start, selected.stop
        missing = [at for at in fields_of(outputs) if decoded is None or not decoded.has(at)]
        taken = [at for at in missing if self._is_taken(at, late)]
        cut_down = [at for at in missing if at not in taken]
        checked = bound.in_proportion(self.count, len(missing))

        def read(at: int) -> Any:
            array = checked(values(at))
            bound.projection.row_sizes.see(at, array)
            return array

        def values(at: int) -> Any:
            if decoded is not None and decoded.has(at):
                return self._of_range(decoded.field(at))
            if at in taken:
                return bound.stored[at].take(self.rows)
            column = bound.stored[at]
            if bound.mapped and (left_out := self._left_out(column.field.type)) is not None:
                array = column.read_live(start, stop, left_out)
                if array is not None:
                    return array
            return self._of_range(column.read(start, stop))

        def system(name: str) -> Any:
            return bound.system(name, self.rows, deleted=self.deleted)

        columns = LazyColumns(self.count, read, system, bound.logical)

        def plan_take(column: Any) -> Any:
            return and_then(column.plan_take(self.rows), checked)

        def plan_read(column: Any) -> Any:
            return and_then(column.plan_read(start, stop), checked)

        read_in_one_request(bound, taken, columns, plan_take)
        read_in_one_request(bound, cut_down, columns, plan_read, self._of_range)
        return [columns.output(output) for output in outputs]

    def _is_taken(self, at: int, late: Late) -> bool:
        """Whether rows of a field are taken one by one."""
        if self.count == self.selected.span:
            return False
        if late is None:
            return self.selected.is_few(_taken_share(self.bound.stored[at].field.type))
        return late if isinstance(late, bool) else at in late

    def _of_range(self, array: Any) -> Any:
        """The selected rows of an array of the whole range.

        Words side by side; others by row numbers: several times quicker than Arrow's ``filter``.
        """
        import pyarrow.compute as pc

        if self.count == self.selected.span:
            return array
        if not array.null_count and not self.selected.is_few(_GATHERED):
            left_out = self._left_out(array.type)
            if left_out is not None:
                return without_deleted(array, left_out)
        offsets = integer_array(self.selected.offsets)
        return pc.call_function("take", [array, offsets], pc.TakeOptions(boundscheck=False))

    def _left_out(self, kind: Any) -> DeletionMask | None:
        """The rows that are not selected, for types of which kernels leave rows out."""
        if self.count == self.selected.span or not _are_words(kind):
            return None
        return self.selected.left_out


def _are_words(kind: Any) -> bool:
    """Whether values are words of 8 to 64 bits."""
    return bool(pa.types.is_primitive(kind)) and kind.bit_width in (8, 16, 32, 64)


def _taken_share(kind: Any) -> float:
    """Share of rows of a type up to which a take is cheaper."""
    try:
        plain = int(kind.bit_width) // 8 <= _NUMBER_BYTES
    except ValueError:  # variable width
        plain = False
    return _TAKEN_NUMBERS if plain and not pa.types.is_dictionary(kind) else _TAKEN_OTHERS


def fields_of(outputs: Sequence[Output | Computed]) -> list[int]:
    """Numbers of the fields that columns are made of, ascending."""
    fields: set[int] = set()
    for output in outputs:
        inputs = output.inputs.values() if isinstance(output, Computed) else [output]
        fields.update(source.at for source in inputs if source.system is None)
    return sorted(fields)


def read_in_one_request(
    bound: BoundFragment,
    fields: Sequence[int],
    columns: LazyColumns,
    plan: Callable[[Any], Any],
    then: Callable[[Any], Any] | None = None,
) -> None:
    """Read several fields of a file that must be fetched with joined requests.

    ``plan`` makes the step of a column, such as ``column.plan_read(start, stop)``. Fields of
    mapped files are left to be read when they are needed.
    """
    if bound.mapped or len(bound.readers) != 1 or len(fields) < 2:
        return
    steps = [plan(bound.stored[at]) for at in fields]
    for at, array in zip(fields, run_fetch(bound.readers[0], join(steps, list)), strict=True):
        columns.put(at, array if then is None else then(array))
