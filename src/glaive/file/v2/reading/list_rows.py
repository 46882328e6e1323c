"""Few lists of a column of mapped files, taken with as little around the kernel as possible.

For columns whose only list is the outermost layer, of items without members. Whatever is not so, or
is damaged, is left to the general way, which says what is wrong.
"""

from __future__ import annotations

from bisect import bisect_right

import pyarrow as pa

from glaive.arrow.blocks import FixedWidth
from glaive.arrow.build import all_null, list_array, to_array
from glaive.encodings.dictionary_decode import expand
from glaive.encodings.levels.layers import list_layers
from glaive.encodings.miniblock.reader import MiniBlockReader
from glaive.errors import CorruptFileError, RowIndexError
from glaive.file.v2.reading.bound import FieldColumns
from glaive.file.v2.reading.columns import Node
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s

__all__ = ["ListRows"]

_OFFSET_BYTES = 4


class ListRows(NamedTuple):
    """The lists of a page, or of pages that are read as one.

    Parameters
    ----------
    page
        Of a mapped file.
    first_row
        Number of its first row in the column.
    type
        Of the lists.
    child
        The items.
    """

    page: MiniBlockReader
    first_row: int
    type: pa.DataType
    child: Node

    @classmethod
    def of(cls, column: FieldColumns, segment: int) -> ListRows | None:
        """Those of a range of rows of a column; None where they are taken the general way."""
        node, parts = column.node, column.leaf_columns
        if node.kind != "list" or len(parts) != 1 or parts[0] is None or len(node.layers) != 1:
            return None
        (child,) = node.children
        if child.kind != "leaf" or child.children or child.members is not None:
            return None
        if not pa.types.is_list(node.type) or pa.types.is_dictionary(child.type):
            return None
        if segment < 0 or len(column.segments) < 2:
            return None
        at = bisect_right(parts[0].starts, column.segments[segment]) - 1
        page = parts[0].pages[at]
        if not isinstance(page, MiniBlockReader) or page.page.at_hand is None:
            return None
        if list_layers(page.layout.layers) != child.layers:
            return None
        return cls(page, parts[0].starts[at], node.type, child)

    def take(self, rows: Int64s) -> pa.Array | None:
        """The rows of the column at these positions; None where that needs the general way."""
        page, first = self.page, self.first_row
        at_hand = page.page.at_hand
        if at_hand is None or rows.item(0) < first or rows.item(-1) >= first + page.rows:
            return None
        if len(rows) > 1 and not bool((rows[1:] > rows[:-1]).all()):
            return None
        small = page.opened(at_hand)
        if small.item_lists is None:
            return None
        wanted = rows - first if first else rows
        taken = small.item_lists.lists(at_hand[1], small.table.offsets[:-1], wanted, None)
        if taken is None or taken.places is not None or taken.width != _OFFSET_BYTES:
            return None
        kind, values = self.child.type, small.item_lists.values(taken)
        try:
            if not taken.items or values is None:
                items = all_null(kind, taken.items)
            else:
                block = values if isinstance(values, FixedWidth) else expand(values)
                valid, nulls = taken.item_validity, taken.null_items
                items = to_array(block, kind, valid, nulls, page.page.where)
        except (CorruptFileError, RowIndexError):
            return None
        valid, nulls = taken.list_validity, taken.null_lists
        return list_array(self.type, len(rows), valid, nulls, taken.offsets, items)
