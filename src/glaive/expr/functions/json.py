"""Members of JSON columns, and JSON paths.

NumPy finds members, elements, numbers and strings in all rows at once, by their positions in JSONB.
Numbers are formatted and parsed row by row, over distinct values.

A path is ``$`` and steps: ``.key``, ``."key"``, ``["key"]``, ``.*``, ``[2]``, ``[last]``,
``[last - 1]``, ``[0, 2]``, ``[0 to 2]``, ``[*]``. Filters and comparisons are unsupported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.blocks import flag_array
from glaive.arrow.chunked import concat_arrays
from glaive.arrow.conditions import filled, valid_where
from glaive.arrow.jsonb import BEYOND, decode_jsonb, encode_jsonb
from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, FilterError
from glaive.expr.casts import bracketed
from glaive.expr.functions.coercion import JSON, LOOSE_TEXT, signature
from glaive.expr.functions.registry import function
from glaive.expr.functions.scalars import whole_letters
from glaive.expr.rows import (
    MAX_VALUE_BYTES,
    broadcast,
    check_bytes,
    count_rows,
    is_constant,
    map_constants,
    pa,
    pc,
    row_values,
)
from glaive.kernels.full_zip import gather_ranges
from glaive.kernels.offsets import find_members
from glaive.types import as_buffer

# --- Find values inside JSONB bytes in all rows at once ---------------------------------
#
# A ``JsonItems`` holds any number of values: their type, their row, and the range of their bytes in
# the JSONB. The steps of a path return items of items. They parse only headers, and the keys of
# objects that are searched for a member.
#
# Specification: "JSON" in ``docs/format/jsonb.md``.

NULL, STRING, NUMBER, FALSE, TRUE, _CONTAINER = range(6)
OBJECT, ARRAY = 6, 7
"""Types of items; entries have the same types, except that a container is one type."""

_SIZE_MASK = 0x0FFF_FFFF
_HEADERS = {4: OBJECT, 8: ARRAY}

Longs = NDArray[np.int64]


def _corrupt(expected: str, found: str) -> CorruptFileError:
    return CorruptFileError("JSONB", expected=expected, found=found, where="a JSON column")


@dataclass(frozen=True, slots=True)
class JsonItems:
    """Items, in the order of their rows.

    Parameters
    ----------
    raw
        Bytes of all rows.
    rows
        Row of each item, ascending. Shape ``(n,)``.
    kinds
        ``NULL`` … ``ARRAY``. Shape ``(n,)``.
    begin, end
        Byte range of each item's payload. Shape ``(n,)``.
    """

    raw: NDArray[np.uint8]
    rows: Longs
    kinds: Longs
    begin: Longs
    end: Longs

    def __len__(self) -> int:
        return len(self.rows)

    def keep(self, wanted: Any) -> JsonItems:
        """Return the items at these positions, or where a mask is true."""
        return JsonItems(
            self.raw, self.rows[wanted], self.kinds[wanted], self.begin[wanted], self.end[wanted]
        )

    def words(self, at: Longs) -> Longs:
        """Return the big-endian 32-bit words at these byte positions."""
        if not len(at):
            return np.zeros(0, np.int64)
        # Words are unaligned: view a word at every byte.
        windows = np.ndarray(len(self.raw) - 3, ">u4", self.raw, strides=(1,))
        return windows[at].astype(np.int64)

    def counts(self) -> Longs:
        """Return the number of children of each container: members or elements."""
        if np.any(self.end - self.begin < 4):
            raise _corrupt("a header of 4 bytes", "fewer")
        counts = self.words(self.begin) & _SIZE_MASK
        entries = np.where(self.kinds == OBJECT, 2, 1) * counts
        if np.any(self.begin + 4 + 4 * entries > self.end):
            raise _corrupt("an entry for each child", "a shorter value")
        return counts

    def entries(self, counts: Longs) -> tuple[Longs, Longs, Longs]:
        """Return all entries: index of the container, entry word, start of the payload."""
        which = np.repeat(np.arange(len(self)), counts)
        last = np.cumsum(counts)
        first = last - counts
        # Entries of a container are 4 bytes apart.
        at = np.arange(len(which)) * 4 + (self.begin + 4 - 4 * first)[which]
        words = self.words(at)
        sizes = words & _SIZE_MASK
        after = np.cumsum(sizes)
        before = after - sizes
        inner = np.flatnonzero(counts)
        start = np.zeros(len(self), np.int64)
        start[inner] = before[first[inner]]
        total = np.zeros(len(self), np.int64)
        total[inner] = after[last[inner] - 1] - start[inner]
        payloads = self.begin + 4 + 4 * counts
        if np.any(payloads + total > self.end):
            raise _corrupt("payloads inside the value", "a longer payload")
        return which, words, before + (payloads - start)[which]

    def children(self, which: Longs, words: Longs, positions: Longs) -> JsonItems:
        """Return the items of some entries of these containers."""
        kinds, sizes = words >> 28, words & _SIZE_MASK
        if np.any(kinds > _CONTAINER):
            raise _corrupt(f"types 0 to {_CONTAINER}", f"{int(kinds.max())}")
        return _typed(self.raw, self.rows[which], kinds, positions, positions + sizes)

    def members(self, key: str) -> JsonItems:
        """Return the member of this name of each object that has it."""
        is_object = self.kinds == OBJECT
        objects = self if is_object.all() else self.keep(is_object)
        wanted = key.encode("utf-8", "surrogatepass")
        words, positions = find_members(self.raw, objects.begin, objects.end, wanted)
        present = np.flatnonzero(positions >= 0)
        return objects.children(present, words[present], positions[present])

    def all_members(self) -> JsonItems:
        """Return the values of all members of each object."""
        objects = self.keep(self.kinds == OBJECT)
        counts = objects.counts()
        which, words, positions = objects.entries(2 * counts)
        first = np.concatenate([[0], np.cumsum(2 * counts)])[:-1]
        values = np.arange(len(which)) - first[which] >= counts[which]
        return objects.children(which[values], words[values], positions[values])

    def elements(self) -> JsonItems:
        """Return all elements of each array, and other items unchanged."""
        arrays = np.flatnonzero(self.kinds == ARRAY)
        others = self.keep(self.kinds != ARRAY)
        inner = self.keep(arrays)
        elements = inner.children(*inner.entries(inner.counts()))
        return _merged(elements, others)

    def element(self, number: Any) -> JsonItems:
        """Return one element of each array that has it.

        Parameters
        ----------
        number
            Index from 0, or a function from the lengths of the arrays to indices.
        """
        arrays = self.keep(self.kinds == ARRAY)
        counts = arrays.counts()
        wanted = number(counts) if callable(number) else np.full(len(arrays), number)
        present = np.flatnonzero((wanted >= 0) & (wanted < counts))
        return arrays.chosen(present, wanted[present])

    def chosen(self, owners: Longs, positions: Longs) -> JsonItems:
        """Return elements of these items, which must be arrays, given owners and positions."""
        counts = self.counts()
        which, words, starts = self.entries(counts)
        at = (np.cumsum(counts) - counts)[owners] + positions
        return self.children(which[at], words[at], starts[at])

    def documents(self) -> tuple[Longs, Any]:
        """Return the items' rows, and each item as a JSONB document (``large_binary``)."""
        scalar = self.kinds < OBJECT
        words = np.empty((len(self), 2), ">u4")
        words[:, 0], words[:, 1] = 0x2000_0000, self.kinds << 28 | self.end - self.begin
        ends = np.concatenate([[0], np.cumsum(np.where(scalar, 8, 0))]).astype(np.int64)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(words[scalar].tobytes())]
        heads = pa.Array.from_buffers(pa.large_binary(), len(self), buffers)
        nothing = pa.scalar(b"", pa.large_binary())
        return self.rows, pc.binary_join_element_wise(heads, self.payloads(), nothing)

    def payloads(self) -> Any:
        """Return the payload of each item, as ``large_binary``."""
        sizes = self.end - self.begin
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        content = gather_ranges(as_buffer(self.raw), self.begin, sizes, "a JSON column")
        buffers = [None, pa.py_buffer(offsets), content]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)


def _typed(
    raw: NDArray[np.uint8], rows: Longs, kinds: Longs, begin: Longs, end: Longs
) -> JsonItems:
    """Build items, and type containers as objects or arrays."""
    items = JsonItems(raw, rows, kinds.copy(), begin, end)
    inner = np.flatnonzero(kinds == _CONTAINER)
    if len(inner):
        if np.any(end[inner] - begin[inner] < 4):
            raise _corrupt("a header of 4 bytes", "fewer")
        heads = raw[begin[inner]] >> 4
        items.kinds[inner] = np.where(heads == 4, OBJECT, ARRAY)
        if np.any((heads != 4) & (heads != 8)):
            raise _corrupt("an object or an array", "another header")
    return items


def _merged(left: JsonItems, right: JsonItems) -> JsonItems:
    rows = np.concatenate([left.rows, right.rows])
    order = np.argsort(rows, kind="stable")
    return JsonItems(
        left.raw,
        rows[order],
        np.concatenate([left.kinds, right.kinds])[order],
        np.concatenate([left.begin, right.begin])[order],
        np.concatenate([left.end, right.end])[order],
    )


def items_of(values: Any) -> JsonItems:
    """Return the top-level value of each valid row; omit rows whose header is unknown.

    Parameters
    ----------
    values
        ``large_binary`` with JSONB.
    """
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(values) + 1, values.offset * 8)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    begin, end = bounds[:-1][rows], bounds[1:][rows]
    long = end - begin >= 4
    heads = np.zeros(len(rows), np.int64)
    heads[long] = raw[begin[long]] >> 4
    # A scalar follows a header and its entry.
    scalar = (heads == 2) & (end - begin >= 8)
    items = JsonItems(raw, rows, np.full(len(rows), NULL), begin, end)
    words = items.words(begin[scalar] + 4)
    items.kinds[scalar] = words >> 28
    if np.any(items.kinds[scalar] >= _CONTAINER) or np.any(
        (words & _SIZE_MASK) + 8 != (end - begin)[scalar]
    ):
        raise _corrupt("one scalar after its header", "other bytes")
    items.kinds[heads == 4], items.kinds[heads == 8] = OBJECT, ARRAY
    known = scalar | (heads == 4) | (heads == 8) | (end == begin)
    begin = np.where(scalar, begin + 8, begin)
    result = JsonItems(raw, rows, items.kinds, begin, end)
    return result if known.all() else result.keep(known)


# --- Scalars of JSONB as numbers and strings: integers with NumPy, strings row by row ---

_ZERO, _INT, _UINT, _FLOAT = 0x00, 0x40, 0x50, 0x60
_WIDTHS = (1, 2, 4, 8)


_ESCAPED = r'["\\\x00-\x1f\x7f]'
"""Characters that JSON escapes."""


def strings_of(items: JsonItems, *, quoted: bool = False) -> Any:
    """Format scalars as JSON; by default strings are unquoted and infinity is ``inf``."""
    strings = items.kinds == STRING
    written = items.keep(strings).payloads().cast(pa.large_string()).cast(pa.string())
    if quoted:
        plain = pc.invert(pc.match_substring_regex(written, _ESCAPED))
        written = pc.binary_join_element_wise('"', written, '"', "")
        escaped = np.flatnonzero(strings)[~plain.to_numpy(zero_copy_only=False)]
        written = written.filter(plain)
        strings[escaped] = False
    floats, fractions = _plain_floats(items)
    rest = ~(strings | floats)
    _, documents = items.keep(rest).documents()
    others: Any = decode_jsonb(documents, "a JSON column")
    if not quoted:
        others = pc.replace_substring_regex(others, f"^(-?){BEYOND}$", r"\1inf")
    parts = [written, pa.array(fractions).cast(pa.string()), others]
    positions = [np.flatnonzero(mask) for mask in (strings, floats, rest)]
    return concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(positions))))


def _plain_floats(items: JsonItems) -> tuple[Any, Any]:
    """Return flags of fractions that Arrow formats like JSON, and these numbers."""
    positions = np.flatnonzero((items.kinds == NUMBER) & (items.end - items.begin == 9))
    positions = positions[items.raw[items.begin[positions]] & 0xF0 == _FLOAT]
    numbers = _read(items, positions, ">f8").astype(np.float64)
    size = np.abs(numbers)
    with np.errstate(invalid="ignore"):
        plain = (size >= 1e-3) & (size < 1e9) & (numbers != np.floor(numbers))
    chosen = np.zeros(len(items), bool)
    chosen[positions[plain]] = True
    return chosen, numbers[plain]


def _read(items: JsonItems, positions: Any, dtype: str) -> Any:
    """Read numbers of one type, which follow the first byte of their payloads."""
    size = np.dtype(dtype).itemsize
    if not len(positions):
        return np.zeros(0, dtype)
    windows = np.ndarray(len(items.raw) - size + 1, dtype, items.raw, strides=(1,))
    return windows[items.begin[positions] + 1]


def numbers_of(items: JsonItems, kind: Any, name: str) -> Any:
    """Convert scalars to ``int64`` or ``float64``: booleans to 0 and 1; strings are parsed.

    Raises
    ------
    FilterError
        A value is not a number, or an integer is too large; ``name`` is used in the message.
    """
    if np.any(items.kinds >= OBJECT):
        raise FilterError(f"{name} of a row is an object or an array, not a number")
    integer = kind == pa.int64()
    result = np.zeros(len(items), np.int64 if integer else np.float64)
    result[items.kinds == TRUE] = 1
    done = (items.kinds == TRUE) | (items.kinds == FALSE)
    numbers = np.flatnonzero((items.kinds == NUMBER) & (items.end > items.begin))
    tags = items.raw[items.begin[numbers]] & 0xF0
    widths = items.end[numbers] - items.begin[numbers] - 1
    done[numbers[(tags == _ZERO) & (widths == 0)]] = True
    for tag, letter in ((_INT, "i"), (_UINT, "u"), (_FLOAT, "f")):
        for width in _WIDTHS if tag != _FLOAT else (8,):
            same_width = numbers[(tags == tag) & (widths == width)]
            if not len(same_width):
                continue
            values = _read(items, same_width, f">{letter}{width}")
            if integer:
                values = _rounded(values, name)
            result[same_width] = values
            done[same_width] = True
    rest = np.flatnonzero(~done)
    if len(rest):
        strings = strings_of(items.keep(rest))
        result[rest] = row_values(lambda text: _parsed(text, name, integer=integer), strings)
    return pa.array(result, kind)


def _rounded(values: Any, name: str) -> Any:
    """Round to integers; halves are rounded away from zero."""
    if values.dtype.kind == "f":
        outside = ~(np.abs(values) < 2.0**63)
    else:
        outside = (
            values > np.uint64(2**63 - 1)
            if values.dtype.itemsize == 8 and (values.dtype.kind == "u")
            else np.zeros(len(values), bool)
        )
    if outside.any():
        raise FilterError(f"{name} of a row is {values[outside.argmax()]}, too large for int64")
    if values.dtype.kind == "f":  # finite here, which avoids warnings of NumPy
        whole = np.trunc(values)
        values = whole + np.where(np.abs(values - whole) >= 0.5, np.sign(values), 0)
    return values.astype(np.int64)


def _parsed(text: str, name: str, *, integer: bool) -> float:
    try:
        if "_" in text or text != text.strip():
            raise ValueError(text)
        if integer and text.lstrip("+-").isdigit():
            number: float = int(text)
        else:
            number = float(text)
            if integer:
                number = math.trunc(number + math.copysign(0.5, number))
    except (ValueError, OverflowError):
        raise FilterError(f"{name} of a row is {text[:40]!r}, not a number") from None
    if integer and not -(2**63) <= number < 2**63:
        raise FilterError(f"{name} of a row is {text[:40]}, too large for int64")
    return number


_WHERE = "a JSON column"

_STEP = re.compile(
    r"""\s*(?:
      [.:]\s*(?P<star>\*)
    | [.:]\s*"(?P<quoted>(?:[^"\\]|\\.)*)"
    | [.:]\s*(?P<key>[^\s.:\[\]"'?@()*=<>!&|,+\-/]+)
    | \[\s*"(?P<inside>(?:[^"\\]|\\.)*)"\s*\]
    | \[\s*(?P<all>\*)\s*\]
    | \[(?P<list>[^\]"*?]+)\]
    )""",
    re.VERBOSE,
)
_INDEX = r"(-?\d{1,10}|last(?:\s*[-+]\s*\d{1,10})?)"
_INDEX_RANGE = re.compile(rf"\s*{_INDEX}\s*(?:to\s*{_INDEX}\s*)?$")
_FIRST = re.compile(r"""[^\s$.:\[\]"'?@()*=<>!&|,+\-/]+""")

Step = Callable[[JsonItems], JsonItems]

_MAX_PATH = 10_000
"""Maximum characters of a path."""

_MAX_STEPS = 128
"""Maximum steps of a path: more than the levels of any JSONB that can be read as text."""

_MAX_PARTS = 1_000
"""Maximum positions and ranges in the brackets of one step."""


@lru_cache(maxsize=256)
def _steps(path: str) -> tuple[Step, ...]:
    """Parse a path into functions, one per step."""
    text = path.strip()
    if len(text) > _MAX_PATH:
        raise FilterError(
            f"JSON path {path!r:.100}: it has {len(text)} characters, at most {_MAX_PATH} are "
            "supported"
        )
    if _FIRST.match(text) is not None:
        text = f"$.{text}"
    text = text.removeprefix("$")
    steps: list[Step] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise FilterError(
                f"JSON path {path!r:.100}: {text[at : at + 20]!r} is not a step; there are .key, "
                '["key"], .*, [2], [last], [0, 2], [0 to 2] and [*]'
            )
        steps.append(_step(match, path))
        at = match.end()
        if len(steps) > _MAX_STEPS:
            raise FilterError(f"JSON path {path!r:.100}: it has more than {_MAX_STEPS} steps")
    return tuple(steps)


def _step(match: re.Match[str], path: str) -> Step:
    if match["star"]:
        return JsonItems.all_members
    if match["all"]:
        return JsonItems.elements
    if match["list"] is not None:
        return _element_step(match["list"], path)
    quoted = match["quoted"] if match["quoted"] is not None else match["inside"]
    key = match["key"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    return lambda items: items.members(key)


def _element_step(text: str, path: str) -> Step:
    parts = []
    for part in text.split(","):
        match = _INDEX_RANGE.match(part)
        if match is None or any(n.isdigit() and int(n) >= 2**31 for n in match.groups() if n):
            raise FilterError(
                f"JSON path {path!r:.100}: [{text:.40}] is not a list of indices from 0"
            )
        parts.append((_index(match[1]), _index(match[2]) if match[2] else None))
    if len(parts) > _MAX_PARTS:
        raise FilterError(
            f"JSON path {path!r:.100}: a step has {len(parts)} positions and ranges, at most "
            f"{_MAX_PARTS} are supported"
        )
    if len(parts) == 1 and parts[0][1] is None:
        only = parts[0][0]
        return lambda items: items.element(only)
    return lambda items: _many(items, parts)


def _index(text: str) -> Callable[[Any], Any]:
    if not text.startswith("last"):
        number = int(text)
        return lambda counts: np.full(len(counts), number)
    ahead = int(re.sub(r"\s", "", text.removeprefix("last")) or 0)
    return lambda counts: counts - 1 + ahead


def _many(items: JsonItems, parts: list[tuple[Any, Any]]) -> JsonItems:
    """Return elements of each array in the order of the path."""
    arrays = items.keep(items.kinds == ARRAY)
    counts = arrays.counts()
    _check_repeated(arrays.rows, np.full(len(arrays), len(parts)), _SPAN_BYTES)
    spans = []
    for first, last in parts:
        begin = first(counts)
        end = begin if last is None else last(counts)
        begin, end = np.maximum(begin, 0), np.minimum(end, counts - 1)
        spans.append((begin, np.maximum(end - begin + 1, 0)))
    # Each step may choose an element many times: check the number of items here.
    _check_repeated(arrays.rows, sum(sizes for _, sizes in spans) - counts, _ITEM_BYTES)
    which, positions = [], []
    for begin, sizes in spans:
        owner = np.repeat(np.arange(len(arrays)), sizes)
        start = np.concatenate([[0], np.cumsum(sizes)])[:-1]
        which.append(owner)
        positions.append(begin[owner] + np.arange(len(owner)) - start[owner])
    owners = np.concatenate(which)
    order = np.argsort(owners, kind="stable")
    chosen = arrays.chosen(owners[order], np.concatenate(positions)[order])
    sizes = np.bincount(owners[order], chosen.end - chosen.begin, len(arrays))
    _check_repeated(arrays.rows, sizes - (arrays.end - arrays.begin), _COPY_FACTOR)
    return chosen


_ITEM_BYTES = 40
"""Bytes of the description of an item."""

_SPAN_BYTES = 16
"""Bytes of a range of positions."""

_COPY_FACTOR = 8
"""Memory per byte of a selected value while it is copied."""


def _check_repeated(rows: Any, repeated: Any, unit_bytes: int) -> None:
    """Check the memory of items that are selected in addition to each element once."""
    sizes = np.bincount(rows, np.maximum(repeated, 0)) * unit_bytes
    if sizes.max(initial=0) > MAX_VALUE_BYTES:
        raise FilterError(f"a JSON path would make {sizes.max():.0f} bytes for one row")
    check_bytes("a JSON path", int(sizes.sum()), len(sizes))


def _select(values: Any, path: str) -> JsonItems:
    items = items_of(values)
    for step in _steps(path):
        items = step(items)
    return items


def _jsonb(values: Any) -> Any:
    if isinstance(values, pa.ExtensionArray):
        return encode_jsonb(values.storage)
    return values.cast(pa.large_binary()) if values.type != pa.large_binary() else values


def _by_key(kind: Any, compute: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``compute(jsonb, *keys)`` once per distinct set of keys; nulls stay nulls."""
    values = arguments[0]
    if is_constant(values):
        values = broadcast(values, count_rows(arguments))
    return map_constants(kind, compute, (_jsonb(values), *arguments[1:]))


def _with_key(
    name: str, kind: Any, *others: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define a function of JSON, a key or path, and further strings (decorator)."""

    def define(compute: Callable[..., Any]) -> Callable[..., Any]:
        takes = signature(JSON, LOOSE_TEXT, *others, result=kind)
        return function(name, takes=takes)(partial(_by_key, kind, compute))

    return define


def _for_all_rows(values: Any, items_rows: Any, rows: int) -> Any:
    """Spread values of some rows to an array of all rows, with null elsewhere."""
    if len(items_rows) == rows:  # ascending and distinct
        return values
    positions = np.full(rows, -1)
    positions[items_rows] = np.arange(len(items_rows))
    return values.take(pa.array(positions, mask=positions < 0))


def _member(values: Any, key: str) -> JsonItems:
    items = items_of(values)
    named = items.members(key)
    if re.fullmatch(r"\+?\d{1,18}", key, re.ASCII) is None:
        return named
    elements = items.element(int(key))
    if not len(named):
        return elements
    return _merged(named, elements)


@_with_key("json_get", pa.large_binary())
def _json_get(values: Any, key: str) -> Any:
    rows, documents = _member(values, key).documents()
    return _for_all_rows(documents, rows, len(values))


@_with_key("json_get_string", pa.string())
def _json_get_string(values: Any, key: str) -> Any:
    items = _member(values, key)
    if np.any(items.kinds >= OBJECT):
        raise FilterError(f"json_get_string: member {key!r} of a row is an object or array")
    items = items.keep(items.kinds != NULL)
    return _for_all_rows(strings_of(items), items.rows, len(values))


def _define_number(name: str, kind: Any) -> None:
    @_with_key(name, kind)
    def _json_get_number(values: Any, key: str) -> Any:
        items = _member(values, key)
        items = items.keep(items.kinds != NULL)
        numbers = numbers_of(items, kind, f"{name}: member {key!r}")
        return _for_all_rows(numbers, items.rows, len(values))


_define_number("json_get_int", pa.int64())
_define_number("json_get_float", pa.float64())

_TRUE_WORDS, _FALSE_WORDS = ("true", "yes"), ("false", "no")


@_with_key("json_get_bool", pa.bool_())
def _json_get_bool(values: Any, key: str) -> Any:
    items = _member(values, key)
    items = items.keep(items.kinds != NULL)
    truth, known = items.kinds == TRUE, np.isin(items.kinds, (TRUE, FALSE))
    strings = np.flatnonzero(items.kinds == STRING)
    if len(strings):
        words = pc.utf8_lower(whole_letters(strings_of(items.keep(strings))))
        truth[strings] = pc.is_in(words, value_set=pa.array(_TRUE_WORDS))
        no = pc.is_in(words, value_set=pa.array(_FALSE_WORDS))
        known[strings] = truth[strings] | np.asarray(no)
    if not known.all():
        raise FilterError(f"json_get_bool: member {key!r} of a row is not true or false")
    return _for_all_rows(pa.array(truth), items.rows, len(values))


def _grouped(items: JsonItems, rows: int) -> tuple[Any, Any, Any]:
    """Return per row the number of items, the index of the first, and whether one exists."""
    counts = np.bincount(items.rows, minlength=rows)
    return counts, np.cumsum(counts) - counts, counts > 0


def _selected(values: Any, path: str) -> Any:
    """Return the items that a path selects as JSONB; several items of a row as an array."""
    items = _select(values, path)
    counts, first, present = _grouped(items, len(values))
    if not len(items):
        return pa.nulls(len(values), pa.large_binary())
    _, documents = items.documents()
    result = documents.take(pa.array(np.where(present, first, 0), mask=~present))
    several = counts > 1
    if not several.any():
        return result
    mask = pa.array(several)
    wrapped = encode_jsonb(_as_arrays(decode_jsonb(documents, _WHERE), counts).filter(mask))
    return pc.replace_with_mask(result, mask, wrapped)


def _as_arrays(documents: Any, counts: Any) -> Any:
    """Join the JSON texts of each row (``counts`` per row) to an array."""
    return bracketed(documents, counts, ",").cast(pa.string())


@_with_key("json_extract", pa.string())
def _json_extract(values: Any, path: str) -> Any:
    items = _select(values, path)
    counts, first, present = _grouped(items, len(values))
    strings = strings_of(items, quoted=True)
    result = strings.take(pa.array(np.where(present, first, 0), mask=~present))
    several = pa.array(counts > 1)
    if not several.true_count:
        return result
    return pc.replace_with_mask(result, several, _as_arrays(strings, counts).filter(several))


_TYPED = pa.struct(
    [pa.field("value", pa.large_binary()), pa.field("type_tag", pa.uint8(), nullable=False)]
)
_TAGS = np.zeros(8, np.uint8)
_TAGS[[TRUE, FALSE, STRING, ARRAY, OBJECT]] = (1, 1, 4, 5, 6)
_INTEGER_TAG, _FLOAT_TAG = 2, 3
_LARGEST = str(2**63 - 1)


def _are_integers(numbers: Any) -> Any:
    """Return flags of JSON numbers that are 64-bit integers."""
    digits = pc.utf8_ltrim(pc.utf8_ltrim(numbers, "-"), "0")
    count = pc.binary_length(digits)
    few = pc.or_(pc.less(count, 19), pc.and_(pc.equal(count, 19), pc.less_equal(digits, _LARGEST)))
    return pc.and_(pc.match_substring_regex(numbers, r"^-?[0-9]+$"), few)


@function("json_extract_with_type", takes=signature(JSON, LOOSE_TEXT, result=_TYPED))
def _json_extract_with_type(values: Any, path: Any) -> Any:
    def extract(values: Any, path: str) -> Any:
        selected = _selected(values, path)
        items = items_of(selected)
        tags = np.zeros(len(values), np.uint8)
        tags[items.rows] = _TAGS[items.kinds]
        numbers = items.keep(items.kinds == NUMBER)
        integers = _are_integers(strings_of(numbers)).to_numpy(zero_copy_only=False)
        tags[numbers.rows] = np.where(integers, _INTEGER_TAG, _FLOAT_TAG)
        return pa.StructArray.from_arrays([selected, pa.array(tags)], fields=list(_TYPED))

    result = _by_key(_TYPED, extract, values, path)
    tags = filled(pc.struct_field(result, "type_tag"), 0)
    return pa.StructArray.from_arrays([pc.struct_field(result, "value"), tags], fields=list(_TYPED))


@_with_key("json_exists", pa.bool_())
def _json_exists(values: Any, path: str) -> Any:
    _, _, present = _grouped(_select(values, path), len(values))
    return valid_where(values.is_valid(), flag_array(present))


@_with_key("json_array_length", pa.int64())
def _json_array_length(values: Any, path: str) -> Any:
    items = _select(values, path)
    _, first, present = _grouped(items, len(values))
    items = items.keep(first[present])
    sizes = np.zeros(len(items), np.int64)
    arrays = items.kinds == ARRAY
    sizes[arrays] = items.keep(arrays).counts()
    return _for_all_rows(pa.array(sizes), items.rows, len(values))


@_with_key("json_array_contains", pa.bool_(), LOOSE_TEXT)
def _json_array_contains(values: Any, path: str, wanted: str) -> Any:
    items = _select(values, path)
    elements = items.keep(items.kinds == ARRAY).elements()
    _, documents = elements.documents()
    same = pc.equal(decode_jsonb(documents, _WHERE), wanted)
    plain = elements.kinds == STRING
    raw = pc.equal(elements.payloads(), wanted.encode("utf-8", "surrogatepass"))
    equal = np.asarray(same) | (plain & np.asarray(raw)) if len(elements) else np.zeros(0, bool)
    contained = np.bincount(elements.rows[equal], minlength=len(values)) > 0
    return valid_where(values.is_valid(), flag_array(contained))
