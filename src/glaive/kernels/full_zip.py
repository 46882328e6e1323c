"""Full-zip entries: ``control word | length | value bytes``, back to back.

Full-zip pages interleave levels and values so that a row is one range of bytes. The wrappers
here do the following.

- ``unzip_rows`` splits rows of equal size: values of a fixed width, outside of lists.
- ``unzip`` splits rows of any size, each a given range of bytes.
- ``zip_entries`` interleaves levels and values.
- ``gather_rows`` copies the values of rows of equal size; it skips control words.
- ``gather_ranges`` copies ranges of bytes, of any size, back to back.

Specification: "Full-zip pages" in ``docs/format/pages.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address, check_apart, check_within, given
from glaive.kernels.native import full_zip as full_zip_loops
from glaive.kernels.strings import _gather_strings, check_offsets
from glaive.types import MAX_OFFSET, Int64s, UInt8s, UInt16s, UInt32s, allocate, as_array, as_buffer


# --- The layout of full-zip entries -----------------------------------------------------
def control_width(bits_rep: int, bits_def: int) -> int:
    """Return the bytes of a control word for levels of ``bits_rep`` and ``bits_def`` bits."""
    bits = bits_rep + bits_def
    return 0 if bits == 0 else 1 if bits <= 8 else 2 if bits <= 16 else 4


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """The layout of full-zip entries.

    Parameters
    ----------
    bits_rep, bits_def
        Widths of the levels in a control word, ``rep << bits_def | definition``.
    max_rep, max_def
        Highest levels allowed; ``max_rep`` starts a row.
    visible_def
        Entries with a definition level up to this one have a value slot.
    width
        Bytes of a value, when ``prefix`` is 0.
    prefix
        Bytes of the length before a value, 4 or 8; 0 when values have a fixed width. Only
        visible entries with definition level 0 have length and value.
    """

    bits_rep: int
    bits_def: int
    max_rep: int
    max_def: int
    visible_def: int
    width: int = 0
    prefix: int = 0

    @property
    def control(self) -> int:
        """Bytes of a control word."""
        return control_width(self.bits_rep, self.bits_def)

    @property
    def stride(self) -> int:
        """Bytes of a visible entry of fixed width."""
        return self.control + self.width


@dataclass(slots=True)
class Unzipped:
    """Contents of entries: values back to back, and levels if the layout has levels.

    ``offsets`` are ``visible + 1`` numbers of ``offset_bits``, from 0; ``None`` for fixed widths.
    """

    rep: UInt16s | None
    definition: UInt16s | None
    entries: int
    visible: int
    offsets: pa.Buffer | None
    offset_bits: int
    values: pa.Buffer


def _offset_width(layout: EntryLayout, size: int) -> int:
    if not layout.prefix:
        return 0
    return 8 if layout.prefix == 8 or size > MAX_OFFSET else 4


def _damaged_entry(damage: int, layout: EntryLayout, row: int, where: object) -> CorruptFileError:
    note = f"{where}, row {row} of the requested ones"
    if damage == 2:
        return CorruptFileError(
            "repetition levels",
            expected=f"{layout.max_rep} at the start of a row, less within it",
            found="another level",
            where=note,
        )
    if damage == 3:
        return CorruptFileError(
            "definition levels", expected=f"0 to {layout.max_def}", found="more", where=note
        )
    return CorruptFileError(
        "full-zip entries",
        expected="entries that fill the bytes of their row",
        found="a length beyond the row" if damage == 1 else "more than one entry in a row",
        where=note,
    )


_MIN_VIEWED = 32 * 1024
"""Least average bytes of a value for which a view costs less than a copy."""


def gather_rows(data: pa.Buffer, stride: int, rows: Int64s, *, where: object) -> pa.Buffer:
    """Copy rows of equal size.

    Parameters
    ----------
    data
        Memory of all rows.
    stride
        Bytes of a row.
    rows
        ``int64``: row numbers, in any order; they may repeat.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A row lies outside ``data``.
    """
    count = len(rows)
    if count and not (int(rows.min()) >= 0 and (int(rows.max()) + 1) * stride <= data.size):
        raise CorruptFileError(
            "full-zip rows",
            expected=f"rows 0 to {data.size // max(stride, 1) - 1}",
            found=f"rows {int(rows.min())} to {int(rows.max())}",
            where=where,
        )
    out = allocate(count * stride)
    if count and stride:
        table = as_array(data)[: data.size // stride * stride].reshape(-1, stride)
        target = as_array(out).reshape(count, stride)
        np.take(table, rows, axis=0, out=target, mode="clip")  # avoids a second copy
    return out


def unzip(
    data: pa.Buffer,
    starts: Int64s,
    stops: Int64s,
    layout: EntryLayout,
    where: object,
    rows: Int64s | None = None,
) -> Unzipped:
    """Split the entries of rows: one per row, with lists one or more.

    Parameters
    ----------
    data
        Memory of all rows.
    starts, stops
        ``int64`` of shape ``(rows,)``: the bytes ``data[starts[i] : stops[i]]`` of each row, in
        any order; rows may repeat.
    layout
        How entries are laid out.
    where, rows
        As for :func:`check_ranges`.

    Raises
    ------
    CorruptFileError
        A row leaves ``data``, its entries are shorter or longer, rows overlap, or a level is too
        high.
    """
    check_ranges(starts, stops, data.size, where, rows)
    starts = np.ascontiguousarray(starts, np.int64)
    stops = np.ascontiguousarray(stops, np.int64)
    totals = np.zeros(4, np.int64)
    damage = full_zip_loops.measure(
        data=address(data), starts=address(starts), stops=address(stops), rows=len(starts),
        control=layout.control, bits_def=layout.bits_def, max_rep=layout.max_rep,
        max_def=layout.max_def, visible_def=layout.visible_def, width=layout.width,
        prefix=layout.prefix, totals=address(totals),
    )  # fmt: skip
    entries, visible, size, row = totals.tolist()
    if damage:
        raise _damaged_entry(damage, layout, row, where)
    rep = np.empty(entries, np.uint16) if layout.bits_rep else None
    definition = np.empty(entries, np.uint16) if layout.bits_def else None
    width = _offset_width(layout, size)
    offsets = allocate((visible + 1) * width) if layout.prefix else None
    values = allocate(size)
    full_zip_loops.unzip(
        data=address(data), starts=address(starts), stops=address(stops), rows=len(starts),
        control=layout.control, bits_def=layout.bits_def, visible_def=layout.visible_def,
        width=layout.width, prefix=layout.prefix, reps=given(rep),
        levels=given(definition), offset_width=width,
        offsets=given(offsets), out=address(values),
    )  # fmt: skip
    return Unzipped(rep, definition, entries, visible, offsets, width * 8, values)


def check_ranges(
    starts: Int64s, stops: Int64s, size: int, where: object, rows: Int64s | None = None
) -> None:
    """Raise ``CorruptFileError`` for rows that are empty, leave ``size`` bytes, or overlap.

    Parameters
    ----------
    starts, stops
        ``int64`` of shape ``(rows,)``: first byte and end of each row.
    size
        Bytes of all rows.
    where
        File, column and page, for messages.
    rows
        ``int64``: the number of each row. Different rows that overlap are an error if their
        total is more than ``size`` bytes.
    """
    bad = (starts < 0) | (stops <= starts) | (stops > size)
    if bad.any():
        at = int(np.argmax(bad))
        raise CorruptFileError(
            "row index",
            expected=f"ascending positions up to {size} bytes",
            found=f"row {at} of the requested ones at {int(starts[at])} to {int(stops[at])}",
            where=where,
        )
    if rows is not None:
        check_apart("full-zip rows", rows, stops - starts, size, where)


def gather_ranges(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, where: object, rows: Int64s | None = None
) -> pa.Buffer:
    """Copy ranges of bytes back to back.

    Parameters
    ----------
    data
        Memory of all ranges.
    starts, sizes
        ``int64`` of shape ``(ranges,)``: first byte and bytes of each range.
    where, rows
        As for :func:`check_ranges`; each range is the value of a row.
    """
    check_within("byte ranges", starts, sizes, data.size, where)
    if rows is not None:
        check_apart("values", rows, sizes, data.size, where)
    return _gather_strings(data, starts, sizes.cumsum(), 64).data


def zip_entries(
    rep: UInt16s | None,
    definition: UInt16s | None,
    layout: EntryLayout,
    values: pa.Buffer,
    offsets: NDArray[np.int32] | Int64s | None,
    rows: int,
) -> tuple[tuple[pa.Buffer, ...], Int64s]:
    """Interleave levels and values.

    Parameters
    ----------
    rep, definition
        ``uint16`` of shape ``(entries,)``, or ``None`` for all 0; without both, each row has one
        entry.
    layout
        How entries are laid out.
    values, offsets
        The values of the visible entries; ``offsets`` of ``int32`` or ``int64`` when they
        have a length. Nulls among them have a slot. Its bytes are written for fixed widths,
        and dropped otherwise.
    rows
        Number of rows.

    Returns
    -------
    tuple
        The entries, and the position of each row followed by the total size (``rows + 1``).
        Entries are in parts, back to back: large values are views of ``values``.

    Raises
    ------
    SchemaError
        The offsets descend or leave the values: the array they came from is damaged.
    """
    levels = rep if rep is not None else definition
    entries = rows if levels is None else len(levels)
    words = np.zeros(entries, np.uint32)
    if rep is not None:
        words |= rep.astype(np.uint32) << np.uint32(layout.bits_def)
    visible, valued = entries, entries
    if definition is not None:
        if int(definition.max(initial=0)) >> layout.bits_def:
            raise ValueError(f"levels up to {definition.max()} in {layout.bits_def} bits")
        words |= definition
        visible = int(np.count_nonzero(definition <= layout.visible_def))
        valued = int(np.count_nonzero(definition == 0))
    starts_row = entries if rep is None else int(np.count_nonzero(rep == layout.max_rep))
    slots = visible if offsets is not None else values.size // layout.width if layout.width else 0
    if offsets is not None:
        slots = len(offsets) - 1
    if starts_row != rows or slots < visible:
        raise ValueError(
            f"levels of {starts_row} rows and {visible} values do not match {rows} rows "
            f"and {slots} values"
        )
    size = entries * layout.control + visible * layout.width
    if offsets is not None:
        check_offsets(as_buffer(offsets), 8 * offsets.itemsize, values, visible)
        lengths = np.diff(offsets[: visible + 1].astype(np.int64))
        if definition is not None:
            lengths = lengths[definition[definition <= layout.visible_def] == 0]
        value_bytes = int(lengths.sum())
        if valued and value_bytes >= _MIN_VIEWED * valued:
            return _in_parts(words, layout, values, offsets, rows)
        size = entries * layout.control + valued * layout.prefix + value_bytes
    out = allocate(size)
    row_starts = np.empty(rows + 1, np.int64)
    row_starts[rows] = size
    full_zip_loops.zip_entries(
        words=address(words), entries=entries, control=layout.control,
        bits_def=layout.bits_def, max_rep=layout.max_rep, visible_def=layout.visible_def,
        width=layout.width, prefix=layout.prefix,
        offsets=given(offsets),
        offset_width=0 if offsets is None else offsets.itemsize, values=address(values),
        out=address(out), row_starts=address(row_starts),
    )  # fmt: skip
    return (out,), row_starts


def _in_parts(
    words: UInt32s,
    layout: EntryLayout,
    values: pa.Buffer,
    offsets: NDArray[np.int32] | Int64s,
    rows: int,
) -> tuple[tuple[pa.Buffer, ...], Int64s]:
    """Build entries whose values are views, each after its levels and its length."""
    level = words & np.uint32((1 << layout.bits_def) - 1)
    visible = level <= layout.visible_def
    valued = level == 0 if layout.prefix else visible
    stored = valued[visible]
    starts = offsets[: len(stored)].astype(np.int64)
    sizes = offsets[1 : len(stored) + 1].astype(np.int64) - starts
    starts, sizes = starts[stored], sizes[stored]
    head_sizes = layout.control + layout.prefix * valued
    entry_sizes = head_sizes.astype(np.int64)
    entry_sizes[valued] += sizes
    row_starts = np.empty(rows + 1, np.int64)
    ends = entry_sizes.cumsum()
    row_starts[:rows] = (ends - entry_sizes)[words >> np.uint32(layout.bits_def) == layout.max_rep]
    row_starts[rows] = entry_sizes.sum()
    heads = np.zeros((len(words), layout.control + layout.prefix), np.uint8)
    heads[:, : layout.control] = _as_bytes(words, layout.control)
    heads[valued, layout.control :] = _as_bytes(sizes, layout.prefix)
    packed = as_buffer(heads[np.arange(heads.shape[1]) < head_sizes[:, None]])
    parts: list[pa.Buffer] = []
    at = 0
    ranges = zip(head_sizes.cumsum()[valued].tolist(), starts.tolist(), sizes.tolist(), strict=True)
    for end, start, size in ranges:
        parts += (packed.slice(at, end - at), values.slice(start, size))
        at = end
    return (*parts, packed.slice(at)), row_starts


def _as_bytes(numbers: UInt32s | Int64s, width: int) -> UInt8s:
    """Return the low ``width`` bytes of each number."""
    little = np.ascontiguousarray(numbers, f"<u{numbers.itemsize}")
    return little.view(np.uint8).reshape(len(numbers), numbers.itemsize)[:, :width]
