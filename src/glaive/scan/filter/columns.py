"""Some rows of a fragment, each column decoded when first asked for and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from glaive.scan.projection import Computed, Output

__all__ = ["Cells"]


class Cells:
    """Columns of ``count`` rows.

    Parameters
    ----------
    read
        The rows of a field, by its number in the projection, in the type it is stored in.
    system
        The rows of a system column, by its name.
    shown
        The same field in the type that results have.
    """

    __slots__ = ("_fields", "_read", "_shown", "_system", "count")

    def __init__(
        self,
        count: int,
        read: Callable[[int], Any],
        system: Callable[[str], Any],
        shown: Callable[[int, Any], Any],
    ) -> None:
        self.count = count
        self._read, self._system, self._shown = read, system, shown
        self._fields: dict[int, Any] = {}

    def field(self, at: int) -> Any:
        """All of a field, as stored."""
        found = self._fields.get(at)
        if found is None:
            found = self._fields[at] = self._read(at)
        return found

    def has(self, at: int) -> bool:
        """Whether a field was decoded already."""
        return at in self._fields

    def put(self, at: int, array: Any) -> None:
        """Keep a field that was read otherwise."""
        self._fields[at] = array

    def column(self, output: Output, *, stored: bool = False) -> Any:
        """A field, a member of one, or a system column.

        In the type of the result, or in the one that expressions see (``stored``).
        """
        if output.system is not None:
            return self._system(output.system)
        array = self.field(output.at)
        if not stored:
            array = self._shown(output.at, array)
        for name in output.path:
            array = array.flatten()[array.type.get_field_index(name)]
        return array

    def batch(self, inputs: Mapping[str, Output]) -> pa.RecordBatch:
        """Columns for an expression, named by their paths."""
        names = list(inputs)
        arrays = [self.column(one, stored=True) for one in inputs.values()]
        if not arrays:  # a constant still has as many values as there are rows
            names, arrays = ["rows"], [pa.nulls(self.count)]
        return pa.RecordBatch.from_arrays(arrays, names)

    def filtered(self, mask: pa.BooleanArray) -> Cells:
        """The rows that a mask without nulls has true."""

        def system(name: str) -> Any:
            return self._system(name).filter(mask)

        return Cells(mask.true_count, lambda at: self.field(at).filter(mask), system, self._shown)

    def output(self, output: Output | Computed) -> Any:
        """A column of the result."""
        if isinstance(output, Output):
            return self.column(output)
        return output.value.evaluate(self.batch(output.inputs))
