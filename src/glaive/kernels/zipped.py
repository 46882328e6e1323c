"""Zipped entries: ``control word | length | value bytes``, one after the other.

Full-zip pages interleave levels and values so that a row is one range of bytes. The wrappers
here split such ranges into levels and values, put them together, and gather rows.

====================== ============================================================
wrapper                   does
====================== ============================================================
``unzip_rows``         rows of equal size (fixed width, no lists)
``unzip``              rows of any size, each a given range of bytes
``zip_entries``        the way back
``gather_rows``        rows of equal size, without control words
``gather_pieces``      ranges of bytes, of any size, behind each other
====================== ============================================================

Specification: "Full-zip pages" in ``docs/format/pages.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.kernels import _zipped_reference as reference
from glaive.kernels._addresses import address
from glaive.kernels._bounds import outside
from glaive.kernels._tier import use_loops
from glaive.kernels._zipped_reference import (
    EntryForm,
    Unzipped,
    control_width,
    offset_width,
    wrong_entry,
)
from glaive.kernels.native import zipped as loops
from glaive.kernels.records import MeasureEntries, UnzipEntries, ZipEntries
from glaive.kernels.strings import check_offsets
from glaive.memory import allocate, as_array, as_buffer

__all__ = [
    "EntryForm",
    "Unzipped",
    "check_ranges",
    "control_width",
    "exercise",
    "gather_pieces",
    "gather_rows",
    "unzip",
    "unzip_rows",
    "zip_entries",
]

Words = NDArray[np.int64]

_WORK_BYTES = 64  # bytes of zipped entries that cost numpy about as much as one value does


def gather_rows(
    data: pa.Buffer, stride: int, rows: Words, *, skip: int = 0, where: object
) -> pa.Buffer:
    """Copy rows of ``stride`` bytes, without the first ``skip`` of each, in the order given.

    ``rows`` may repeat. Raises ``CorruptFileError`` when a row is not within ``data``.
    """
    width, count = stride - skip, len(rows)
    if count and not (int(rows.min()) >= 0 and (int(rows.max()) + 1) * stride <= data.size):
        raise CorruptFileError(
            "zipped rows",
            expected=f"rows 0 to {data.size // max(stride, 1) - 1}",
            found=f"rows {int(rows.min())} to {int(rows.max())}",
            where=where,
        )
    out = allocate(count * width)
    if use_loops(count):
        rows = np.ascontiguousarray(rows, np.int64)
        loops.gather_rows(address(data), address(rows), count, stride, skip, width, address(out))
    elif count and width:
        table = as_array(data)[: data.size // stride * stride].reshape(-1, stride)
        as_array(out).reshape(count, width)[:] = table[rows][:, skip:]
    return out


def unzip_rows(
    data: pa.Buffer, form: EntryForm, rows: Words | tuple[int, int], where: object
) -> tuple[NDArray[np.uint16], pa.Buffer]:
    """Definition levels and values of rows that all have ``form.stride`` bytes.

    ``rows`` are positions, or the ``(start, stop)`` of a range.
    """
    stride, control = form.stride, form.control
    table = as_array(data)[: data.size // stride * stride].reshape(-1, stride)
    if isinstance(rows, tuple):
        start, stop = rows
        if not 0 <= start <= stop <= len(table):
            raise CorruptFileError(
                "zipped rows",
                expected=f"at least {stop * stride} bytes",
                found=f"{data.size} bytes",
                where=where,
            )
        part = table[start:stop]
        values = allocate(len(part) * form.width)
        as_array(values).reshape(len(part), form.width)[:] = part[:, control:]
        heads = part[:, :control]
    else:
        values = gather_rows(data, stride, rows, skip=control, where=where)
        heads = table[rows, :control]
    words = np.ascontiguousarray(heads).view(f"<u{control}").reshape(-1)
    highest = int(words.max()) if len(words) else 0
    if highest > form.max_def:
        raise _level("definition", f"0 to {form.max_def}", highest, where)
    return words.astype(np.uint16), values


def unzip(data: pa.Buffer, starts: Words, stops: Words, form: EntryForm, where: object) -> Unzipped:
    """Split the entries of rows ``data[starts[i] : stops[i]]`` (any order, repeats allowed).

    Every row has one entry, or, with lists, one or more. All of it is checked: that rows lie
    within ``data`` and are filled exactly, and that levels are in range.
    """
    check_ranges(starts, stops, data.size, where)
    starts = np.ascontiguousarray(starts, np.int64)
    stops = np.ascontiguousarray(stops, np.int64)
    if not use_loops(int((stops - starts).sum()) // _WORK_BYTES):
        return reference.unzip(as_array(data), starts, stops, form, where)
    totals = np.zeros(4, np.int64)
    call = MeasureEntries(
        data=address(data),
        starts=address(starts),
        stops=address(stops),
        rows=len(starts),
        control=form.control,
        bits_def=form.bits_def,
        max_rep=form.max_rep,
        max_def=form.max_def,
        visible_def=form.visible_def,
        width=form.width,
        prefix=form.prefix,
        totals=address(totals),
    )
    wrong = loops.measure(*call)
    entries, visible, size, row = totals.tolist()
    if wrong:
        raise wrong_entry(wrong, form, row, where)
    rep = np.empty(entries, np.uint16) if form.bits_rep else None
    definition = np.empty(entries, np.uint16) if form.bits_def else None
    width = offset_width(form, size)
    offsets = allocate((visible + 1) * width) if form.prefix else None
    values = allocate(size)
    loops.unzip(
        *UnzipEntries(
            data=address(data),
            starts=address(starts),
            stops=address(stops),
            rows=len(starts),
            control=form.control,
            bits_def=form.bits_def,
            visible_def=form.visible_def,
            width=form.width,
            prefix=form.prefix,
            reps=0 if rep is None else address(rep),
            levels=0 if definition is None else address(definition),
            offset_width=width,
            offsets=0 if offsets is None else address(offsets),
            out=address(values),
        )
    )
    return Unzipped(rep, definition, entries, visible, offsets, width * 8, values)


def check_ranges(starts: Words, stops: Words, size: int, where: object) -> None:
    """Refuse rows that are empty or not within ``size`` bytes."""
    bad = (starts < 0) | (stops <= starts) | (stops > size)
    if bad.any():
        at = int(np.argmax(bad))
        raise CorruptFileError(
            "row index",
            expected=f"ascending positions up to {size} bytes",
            found=f"row {at} of those read at {int(starts[at])} to {int(stops[at])}",
            where=where,
        )


def _level(name: str, expected: str, found: int, where: object) -> CorruptFileError:
    return CorruptFileError(f"{name} levels", expected=expected, found=str(found), where=where)


def gather_pieces(data: pa.Buffer, starts: Words, sizes: Words, where: object) -> pa.Buffer:
    """Copy ``data[starts[i] : starts[i] + sizes[i]]`` behind each other."""
    bad = outside(starts, sizes, data.size)
    if bad.any():
        at = int(np.argmax(bad))
        raise CorruptFileError(
            "byte ranges",
            expected=f"ranges within {data.size} bytes",
            found=f"{int(sizes[at])} bytes at {int(starts[at])}",
            where=where,
        )
    total = int(sizes.sum())
    out = allocate(total)
    if use_loops(total // _WORK_BYTES):
        starts = np.ascontiguousarray(starts, np.int64)
        sizes = np.ascontiguousarray(sizes, np.int64)
        loops.gather_pieces(
            address(data), address(starts), address(sizes), len(starts), address(out)
        )
    else:
        reference.gather_pieces(as_array(data), starts, sizes, as_array(out))
    return out


def zip_entries(
    rep: NDArray[np.uint16] | None,
    definition: NDArray[np.uint16] | None,
    form: EntryForm,
    values: pa.Buffer,
    offsets: NDArray[np.int32] | NDArray[np.int64] | None,
    rows: int,
) -> tuple[pa.Buffer, Words]:
    """Interleave levels and values.

    Parameters
    ----------
    rep, definition
        One per entry, or None for all 0; without both there is one entry per row.
    values, offsets
        The values of the visible entries; ``offsets`` of ``int32`` or ``int64`` when they
        have a length. Nulls among them have a slot, whose bytes are written for fixed widths
        and dropped otherwise.
    rows
        Rows the entries make up.

    Returns
    -------
    tuple
        The entries, and the position of each row with the size of all at the end
        (``rows + 1``).

    Raises
    ------
    SchemaError
        The offsets descend or leave the values: the array they came from is damaged.
    """
    levels = rep if rep is not None else definition
    entries = rows if levels is None else len(levels)
    words = np.zeros(entries, np.uint32)
    if rep is not None:
        words |= rep.astype(np.uint32) << np.uint32(form.bits_def)
    visible, valued = entries, entries
    if definition is not None:
        if int(definition.max(initial=0)) >> form.bits_def:
            raise ValueError(f"levels up to {definition.max()} in {form.bits_def} bits")
        words |= definition
        visible = int(np.count_nonzero(definition <= form.visible_def))
        valued = int(np.count_nonzero(definition == 0))
    starts_row = entries if rep is None else int(np.count_nonzero(rep == form.max_rep))
    slots = visible if offsets is not None else values.size // form.width if form.width else 0
    if offsets is not None:
        slots = len(offsets) - 1
    if starts_row != rows or slots < visible:
        raise ValueError(
            f"levels of {starts_row} rows and {visible} values do not go with {rows} rows "
            f"and {slots} values"
        )
    size = entries * form.control + visible * form.width
    if offsets is not None:
        check_offsets(as_buffer(offsets), 8 * offsets.itemsize, values, visible)
        lengths = np.diff(offsets[: visible + 1].astype(np.int64))
        if definition is not None:
            lengths = lengths[definition[definition <= form.visible_def] == 0]
        size = entries * form.control + valued * form.prefix + int(lengths.sum())
    out = allocate(size)
    row_starts = np.empty(rows + 1, np.int64)
    row_starts[rows] = size
    if use_loops(entries + size // _WORK_BYTES):
        loops.zip_entries(
            *ZipEntries(
                words=address(words),
                entries=entries,
                control=form.control,
                bits_def=form.bits_def,
                max_rep=form.max_rep,
                visible_def=form.visible_def,
                width=form.width,
                prefix=form.prefix,
                offsets=0 if offsets is None else address(offsets),
                offset_width=0 if offsets is None else offsets.itemsize,
                values=address(values),
                out=address(out),
                row_starts=address(row_starts),
            )
        )
    else:
        reference.zip_entries(words, form, as_array(values), offsets, as_array(out), row_starts)
    return out, row_starts


def exercise() -> None:
    """Call every wrapper once; used to warm up the compiled loops."""
    form = EntryForm(1, 1, 1, 1, 1, prefix=4)
    rep, definition = np.array([1, 0], np.uint16), np.array([0, 1], np.uint16)
    text = pa.py_buffer(b"ab")
    data, starts = zip_entries(rep, definition, form, text, np.array([0, 2, 2], np.int32), 1)
    unzip(data, starts[:-1], starts[1:], form, "warm-up")
    gather_pieces(text, np.array([1, 0]), np.array([1, 1]), "warm-up")
    gather_rows(text, 1, np.array([1, 0]), where="warm-up")
