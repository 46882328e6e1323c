"""Few lists of a column of mapped files, taken with as little around the kernel as possible.

For columns whose only list is the outermost layer, of items without members that the kernel reads
itself. Of one row of lists of numbers the kernel takes 6 µs, the arrays 3, and a leaf with its
layers, which the general path makes in between, another 8.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import FixedWidth
from glaive.arrow.build import all_null, to_array
from glaive.arrow.list_arrays import list_array
from glaive.encodings.dictionary_decode import expand
from glaive.encodings.levels.layers import list_layers
from glaive.encodings.miniblock.reader import MiniBlockReader
from glaive.file.v2.reading.bound import FieldColumns
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s

__all__ = ["ListRows"]

_OFFSET_BYTES = 4


class ListRows(NamedTuple):
    """The lists of a page, or of pages that are read as one.

    Parameters
    ----------
    column, segment
        The column, and the range of its rows that are in the page.
    page
        Of a mapped file.
    first_row
        Number of its first row in the column.
    """

    column: FieldColumns
    segment: int
    page: MiniBlockReader
    first_row: int

    @classmethod
    def of(cls, column: FieldColumns, segment: int) -> ListRows | None:
        """Those of a range of rows of a column; None where they are taken the general way.

        Raises
        ------
        CorruptFileError
            The page is damaged.
        """
        node, parts = column.node, column.leaf_columns
        if node.kind != "list" or len(parts) != 1 or parts[0] is None or len(node.layers) != 1:
            return None
        (child,) = node.children
        if child.kind != "leaf" or child.children or child.members is not None:
            return None
        if not pa.types.is_list(node.type) or pa.types.is_dictionary(child.type):
            return None
        at = bisect_right(parts[0].starts, column.segments[segment]) - 1
        page = parts[0].pages[at]
        if not isinstance(page, MiniBlockReader) or page.page.at_hand is None:
            return None
        lists = page.opened(page.page.at_hand).item_lists
        if lists is None or not lists.reads_values:
            return None
        if list_layers(page.layout.layers) != child.layers:
            return None
        return cls(column, segment, page, parts[0].starts[at])

    def take(self, rows: Int64s) -> pa.Array:
        """The rows of the column at these positions, in this order.

        What the kernel does not take is damaged, or the process has not linked kernels yet: then
        the general path takes it, and says what is wrong.
        """
        array = self._take(rows - self.first_row if self.first_row else rows)
        return self.column.take_within(self.segment, rows) if array is None else array

    def _take(self, rows: Int64s) -> pa.Array | None:
        page, order = self.page, None
        if len(rows) > 1 and (rows[1:] < rows[:-1]).any():
            order = np.argsort(rows)
            rows = rows[order]
        if page.page.at_hand is None or rows.item(0) < 0 or rows.item(-1) >= page.rows:
            return None
        small = page.opened(page.page.at_hand)
        if small.item_lists is None:
            return None
        data, starts = page.page.at_hand[1], small.table.offsets[:-1]
        taken = small.item_lists.lists(data, starts, rows, order)
        if taken is None or taken.width != _OFFSET_BYTES:
            return None
        (child,), values = self.column.node.children, small.item_lists.values(taken)
        if not taken.items or values is None:
            items = all_null(child.type, taken.items)
        else:
            block = values if isinstance(values, FixedWidth) else expand(values)
            validity, nulls = taken.item_validity, taken.null_items
            items = to_array(block, child.type, validity, nulls, page.page.where)
        validity, nulls = taken.list_validity, taken.null_lists
        kind, where = self.column.node.type, page.page.where
        return list_array(kind, len(rows), validity, nulls, taken.offsets, items, where)
