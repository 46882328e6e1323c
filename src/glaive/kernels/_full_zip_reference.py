"""The layout of full-zip entries, and the NumPy references of the wrappers in ``full_zip``.

The reference of ``unzip`` reads the first entries of all rows, then the second, …: a Python step
per entry of the longest row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError
from glaive.types import MAX_OFFSET, Flags, Int64s, UInt8s, UInt16s, UInt32s, allocate, as_array

_LONG_RANGE = 1024  # bytes from which a Python step per range costs little beside its copy


def control_width(bits_rep: int, bits_def: int) -> int:
    """Bytes of a control word that holds levels of so many bits."""
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
        Bytes of the length before a value, 4 or 8; only visible entries with definition
        level 0 have length and value. 0 when values have a fixed width.
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
    """Contents of entries: levels (None when the layout has none) and values back to back.

    ``offsets`` (``visible + 1`` of ``offset_bits``, from 0) is None for fixed widths.
    """

    rep: UInt16s | None
    definition: UInt16s | None
    entries: int
    visible: int
    offsets: pa.Buffer | None
    offset_bits: int
    values: pa.Buffer


def offset_width(layout: EntryLayout, size: int) -> int:
    if not layout.prefix:
        return 0
    return 8 if layout.prefix == 8 or size > MAX_OFFSET else 4


def damaged_entry(damage: int, layout: EntryLayout, row: int, where: object) -> CorruptFileError:
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


def unzip(
    data: UInt8s, starts: Int64s, stops: Int64s, layout: EntryLayout, where: object
) -> Unzipped:
    """Split rows: the first entries of all rows, then the second, …"""
    rows, at, ends = np.arange(len(starts)), starts, stops
    walked: list[tuple[Int64s, Int64s, Int64s, Int64s, Int64s]] = []
    while len(rows):
        first = not walked

        def check(bad: Flags, damage: int, rows: Int64s = rows) -> None:
            if bad.any():
                raise damaged_entry(damage, layout, int(rows[np.argmax(bad)]), where)

        check(ends - at < layout.control, 1)
        word = _load(data, at, layout.control)
        at = at + layout.control
        rep, level = word >> layout.bits_def, word & ((1 << layout.bits_def) - 1)
        check(level > layout.max_def, 3)
        check(np.full(len(rows), not first and layout.max_rep == 0), 4)
        check(rep != layout.max_rep if first else rep >= layout.max_rep, 2)
        size = np.where(level <= layout.visible_def, layout.width, 0)
        if layout.prefix:
            valued = level == 0
            check(valued & (ends - at < layout.prefix), 1)
            size[valued] = _load(data, at[valued], layout.prefix)
            at = at + np.where(valued, layout.prefix, 0)
        check((size < 0) | (size > ends - at), 1)
        walked.append((rows, rep, level, at, size))
        at = at + size
        more = at < ends
        rows, at, ends = rows[more], at[more], ends[more]
    if not walked:
        walked = [(np.zeros(0, np.int64),) * 5]
    rows, rep, level, at, size = (np.concatenate(part) for part in zip(*walked, strict=True))
    order = np.argsort(rows, kind="stable")
    rep, level, at, size = rep[order], level[order], at[order], size[order]
    visible = level <= layout.visible_def
    at, size = at[visible], size[visible]
    total = int(size.sum())
    width = offset_width(layout, total)
    offsets = None
    if layout.prefix:
        offsets = allocate((len(size) + 1) * width)
        ends = as_array(offsets, f"<i{width}")
        ends[0] = 0
        np.cumsum(size, out=ends[1:])
    values = allocate(total)
    gather_ranges(data, at, size, as_array(values))
    return Unzipped(
        rep.astype(np.uint16) if layout.bits_rep else None,
        level.astype(np.uint16) if layout.bits_def else None, len(level), len(size), offsets,
        width * 8, values,
    )  # fmt: skip


def _load(data: UInt8s, at: Int64s, width: int) -> Int64s:
    """Read a little-endian number of ``width`` bytes at every position."""
    if width == 0:
        return np.zeros(len(at), np.int64)
    dtype = "<i8" if width == 8 else f"<u{width}"
    words: Int64s = data[at[:, None] + np.arange(width)].view(dtype).reshape(-1).astype(np.int64)
    return words


def gather_ranges(data: UInt8s, starts: Int64s, sizes: Int64s, out: UInt8s) -> None:
    ends = np.cumsum(sizes)
    even = len(starts) - 1
    if even > 1 and not np.ptp(sizes[:even]) and not np.ptp(np.diff(starts[:even])):
        # All but the last have equal sizes and distances, as in a page of full chunks: one
        # strided copy.
        shape, steps = (even, int(sizes[0])), (int(starts[1] - starts[0]), 1)
        rows = np.lib.stride_tricks.as_strided(data[starts[0] :], shape, steps, writeable=False)
        out[: ends[even - 1]].reshape(shape)[:] = rows
        out[ends[even - 1] :] = data[starts[even] : starts[even] + sizes[even]]
    elif len(out) >= _LONG_RANGE * len(starts):
        ranges = zip((ends - sizes).tolist(), starts.tolist(), sizes.tolist(), strict=True)
        for at, start, size in ranges:
            out[at : at + size] = data[start : start + size]
    else:
        out[:] = data[np.arange(len(out)) + np.repeat(starts - (ends - sizes), sizes)]


def zip_entries(
    words: UInt32s,
    layout: EntryLayout,
    values: UInt8s,
    offsets: NDArray[np.int32] | Int64s | None,
    out: UInt8s,
    row_starts: Int64s,
) -> None:
    level = words & np.uint32((1 << layout.bits_def) - 1)
    visible = level <= layout.visible_def
    count = int(np.count_nonzero(visible))
    if offsets is None:
        sources = np.arange(count) * layout.width
        sizes = np.full(count, layout.width)
    else:
        sources = offsets[:count].astype(np.int64)
        sizes = np.diff(offsets[: count + 1]).astype(np.int64)
    valued = visible & (level == 0) if layout.prefix else visible
    stored = valued[visible]
    sources, sizes = sources[stored], sizes[stored]
    entry_sizes = np.full(len(words), layout.control, np.int64)
    entry_sizes[valued] += sizes + layout.prefix
    starts = np.cumsum(entry_sizes) - entry_sizes
    row_starts[:-1] = starts[words >> np.uint32(layout.bits_def) == layout.max_rep]
    _store(out, starts, words, layout.control)
    _store(out, starts[valued] + layout.control, sizes, layout.prefix)
    targets = starts[valued] + layout.control + layout.prefix
    if len(out) >= _LONG_RANGE * len(words):
        ranges = zip(targets.tolist(), sources.tolist(), sizes.tolist(), strict=True)
        for target, source, size in ranges:
            out[target : target + size] = values[source : source + size]
    else:
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        out[np.repeat(targets, sizes) + within] = values[np.repeat(sources, sizes) + within]


def _store(out: UInt8s, at: Int64s, words: UInt32s | Int64s, width: int) -> None:
    for byte in range(width):
        out[at + byte] = (words.astype(np.int64) >> (8 * byte)) & 0xFF
