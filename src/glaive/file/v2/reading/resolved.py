"""Leaves whose layers are resolved, page by page, and their join."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import join_bits, pack_flags
from glaive.arrow.dictionaries import concat_arrays
from glaive.dataclass import dataclass
from glaive.errors import CapacityError, CorruptFileError
from glaive.file.v2.reading.columns import Node
from glaive.memory import as_buffer, items_of
from glaive.named_tuple import NamedTuple
from glaive.types import MAX_OFFSET, Int64s, Where

__all__ = ["Resolved", "ResolvedLayer", "check_page_ends", "join_pages"]


@dataclass(slots=True)
class ResolvedLayer:
    """One resolved layer: validity, and offsets for a list."""

    slots: int
    validity: pa.Buffer | None
    null_count: int
    offsets: pa.Buffer | None

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return sum(one.size for one in (self.validity, self.offsets) if one is not None)


class Resolved(NamedTuple):
    """Rows of a leaf whose layers are resolved.

    Parameters
    ----------
    values
        The innermost layer.
    layers
        Outer-most first; None where other leaves define the shape.
    rows
        As many as were asked for.
    """

    values: pa.Array
    layers: Sequence[ResolvedLayer | None]
    rows: int

    @property
    def nbytes(self) -> int:
        """Bytes of the values and layers."""
        layers = sum(layer.nbytes for layer in self.layers if layer is not None)
        values: int = self.values.nbytes
        return values + layers


def join_pages(leaf: Node, pages: Sequence[Resolved], where: Where) -> Resolved:
    """A leaf of one page after the other as if it were in one."""
    if len(pages) == 1:
        return pages[0]
    layers: list[ResolvedLayer | None] = []
    inner: Sequence[ResolvedLayer] = ()
    by_layer = zip(*(page.layers[::-1] for page in pages), strict=True)
    for wide, same in zip(leaf.wide[::-1], by_layer, strict=True):
        parts = [layer for layer in same if layer is not None]
        layers.append(_join_layers(parts, inner, wide=wide, where=where) if parts else None)
        inner = parts
    rows = sum(page.rows for page in pages)
    return Resolved(concat_arrays([page.values for page in pages]), layers[::-1], rows)


def check_page_ends(
    node: Node,
    leaves: Sequence[Sequence[Resolved] | None],
    joined: Sequence[Resolved | None],
    where: Where,
) -> None:
    """Compare where each page ends with the shape that other leaves define.

    The items of all pages may be as many as those of other leaves, although one page has too few
    of them and another too many: all rows between would have items of others.

    Parameters
    ----------
    node
        The field.
    leaves
        Its leaves, depth first, page by page; None where the file lacks one.
    joined
        The same leaves, each as :func:`join_pages` joins it.

    Raises
    ------
    CorruptFileError
        A page ends within a row.
    """
    ends = [None if pages is None else np.cumsum([page.rows for page in pages]) for pages in leaves]
    _check_below(node, leaves, joined, ends, 0, where)


def _check_below(
    node: Node,
    leaves: Sequence[Sequence[Resolved] | None],
    joined: Sequence[Resolved | None],
    ends: Sequence[Int64s | None],
    depth: int,
    where: Where,
) -> None:
    """``ends`` are the slots of the node before the end of each page of each leaf."""
    defining = (leaf.layers[depth] for leaf in joined if leaf is not None)
    layer = next((layer for layer in defining if layer is not None), None)
    below: list[Int64s | None] = []
    for pages, expected in zip(leaves, ends, strict=True):
        if pages is None or expected is None or layer is None:
            below.append(None)
            continue
        if expected[-1] != layer.slots:
            raise _ends_mismatch(int(expected[-1]), layer.slots, where)
        own = [page.layers[depth] for page in pages]
        slots = [part.slots for part in own if part is not None]
        if not slots:
            below.append(_ends_of_items(node, layer, expected))
            continue
        found = np.cumsum(slots)
        if (wrong := found != expected).any():
            at = int(wrong.argmax())
            raise _ends_mismatch(int(expected[at]), int(found[at]), where)
        below.append(None)  # its layers further inside are its own
    first = 0
    for child in node.children:
        here = slice(first, first + child.leaf_count)
        first += child.leaf_count
        if any(of_leaf is not None for of_leaf in below[here]):
            _check_below(child, leaves[here], joined[here], below[here], depth + 1, where)


def _ends_of_items(node: Node, layer: ResolvedLayer, ends: Int64s) -> Int64s:
    """The slots of the next inner layer before these slots of a layer."""
    if layer.offsets is not None:
        kind = np.dtype(np.int64 if pa.types.is_large_list(node.type) else np.int32)
        items: Int64s = items_of(layer.offsets, kind, layer.slots + 1)[ends].astype(np.int64)
        return items
    return ends * node.sizes[0]


def _ends_mismatch(expected: int, found: int, where: Where) -> CorruptFileError:
    return CorruptFileError(
        "items before the end of a page", expected=f"{expected}", found=f"{found}", where=where
    )


def _join_layers(
    parts: Sequence[ResolvedLayer], inner: Sequence[ResolvedLayer], *, wide: bool, where: Where
) -> ResolvedLayer:
    """The same layer of several pages; lists count the slots of the next inner layer."""
    counts = [part.slots for part in parts]
    validity = offsets = None
    if any(part.validity is not None for part in parts):
        validity = join_bits(
            [part.validity or pack_flags(np.ones(part.slots, bool)) for part in parts], counts
        )
    if parts[0].offsets is not None:
        offsets = _join_offsets(parts, [part.slots for part in inner], wide=wide, where=where)
    return ResolvedLayer(sum(counts), validity, sum(part.null_count for part in parts), offsets)


def _join_offsets(
    parts: Sequence[ResolvedLayer], items: Sequence[int], *, wide: bool, where: Where
) -> pa.Buffer:
    total, kind = sum(items), np.dtype(np.int64 if wide else np.int32)
    if not wide and total > MAX_OFFSET:
        raise CapacityError.of(total, "items of lists", where=where, instead="a large_list")
    joined, first = [np.zeros(1, kind)], 0
    for part, count in zip(parts, items, strict=True):
        if part.offsets is None:
            raise CorruptFileError("list", expected="offsets", found="none", where=where)
        ends = items_of(part.offsets, kind, part.slots + 1)
        if ends[-1] != count:
            expected, found = f"{ends[-1]} items", f"{count}"
            raise CorruptFileError("items of lists", expected=expected, found=found, where=where)
        joined.append(ends[1:] + kind.type(first))
        first += count
    return as_buffer(np.concatenate(joined))
