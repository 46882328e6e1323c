"""Members of JSON columns, and JSON paths.

Members, elements, numbers and strings are found with numpy in all rows at once, without
parsing. Formatting and parsing numbers is a loop over distinct values.

A path is ``$`` and steps: ``.key``, ``."key"``, ``["key"]``, ``.*``, ``[2]``, ``[last]``,
``[last - 1]``, ``[0, 2]``, ``[0 to 2]``, ``[*]``. Filters and comparisons are not supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from glaive.arrow.jsonb import decode_jsonb, encode_jsonb
from glaive.errors import FilterError
from glaive.expr.functions.coercion import JSON, LOOSE_TEXT, signature
from glaive.expr.functions.json_numbers import numbers_of, strings_of
from glaive.expr.functions.jsonb_views import (
    ARRAY,
    FALSE,
    NULL,
    NUMBER,
    OBJECT,
    STRING,
    TRUE,
    JsonItems,
    items_of,
)
from glaive.expr.functions.list_parts import bracketed
from glaive.expr.functions.registry import function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import check_size, whole_letters
from glaive.expr.rows import broadcast, count_rows, is_constant, map_constants

__all__: list[str] = []

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
"""Characters of a path."""

_MAX_STEPS = 128
"""Steps of a path: more than levels of any JSONB that is read as text."""

_MAX_PARTS = 1_000
"""Positions and ranges in the brackets of one step."""


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
    """Elements of each array in the order of the path."""
    arrays = items.keep(items.kinds == ARRAY)
    counts = arrays.counts()
    _check_repeated(arrays.rows, np.full(len(arrays), len(parts)), _SPAN_BYTES)
    spans = []
    for first, last in parts:
        begin = first(counts)
        end = begin if last is None else last(counts)
        begin, end = np.maximum(begin, 0), np.minimum(end, counts - 1)
        spans.append((begin, np.maximum(end - begin + 1, 0)))
    # An element may be chosen many times, and by each step: nothing else limits their number.
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
    _check_repeated(arrays.rows, sizes - (arrays.end - arrays.begin), _COPIES)
    return chosen


_ITEM_BYTES = 40
"""Bytes that the description of an item takes."""

_SPAN_BYTES = 16
"""Bytes that a range of positions takes."""

_COPIES = 8
"""Bytes taken for each byte of a value that is selected, while it is copied."""


def _check_repeated(rows: Any, repeated: Any, unit_bytes: int) -> None:
    """Check what is selected beyond all elements of an array, once each."""
    sizes = np.bincount(rows, np.maximum(repeated, 0))
    check_size(
        "a JSON path", pa.array(sizes), unit="repeated elements or bytes", unit_bytes=unit_bytes
    )


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
    """Call ``compute(jsonb, *keys)`` once for each distinct set of keys; nulls stay nulls."""
    values = arguments[0]
    if is_constant(values):
        values = broadcast(values, count_rows(arguments))
    return map_constants(kind, compute, (_jsonb(values), *arguments[1:]))


def _with_key(
    name: str, kind: Any, *others: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define a function of JSON, a key or path, and other strings; called for distinct ones."""

    def define(compute: Callable[..., Any]) -> Callable[..., Any]:
        takes = signature(JSON, LOOSE_TEXT, *others, result=kind)
        return function(name, takes=takes)(partial(_by_key, kind, compute))

    return define


def _for_all_rows(values: Any, items_rows: Any, rows: int) -> Any:
    """Values of some rows as an array of all rows, null elsewhere."""
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
    rows = np.concatenate([named.rows, elements.rows])
    order = np.argsort(rows, kind="stable")
    pairs = [
        np.concatenate([getattr(named, name), getattr(elements, name)])[order]
        for name in ("rows", "kinds", "begin", "end")
    ]
    return JsonItems(named.raw, *pairs)


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
        raise FilterError(f"json_get_bool: member {key!r} of a row is neither true nor false")
    return _for_all_rows(pa.array(truth), items.rows, len(values))


def _grouped(items: JsonItems, rows: int) -> tuple[Any, Any, Any]:
    """Number of items of each row, index of the first, and whether there is one."""
    counts = np.bincount(items.rows, minlength=rows)
    return counts, np.cumsum(counts) - counts, counts > 0


def _selected(values: Any, path: str) -> Any:
    """JSONB of the items that a path selects; several items of one row as an array."""
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
    """Join the JSON texts of each row (``counts`` of them) into an array."""
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
    """Which JSON numbers are integers of 64 bits."""
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
    tags = pc.fill_null(pc.struct_field(result, "type_tag"), 0)
    return pa.StructArray.from_arrays([pc.struct_field(result, "value"), tags], fields=list(_TYPED))


@_with_key("json_exists", pa.bool_())
def _json_exists(values: Any, path: str) -> Any:
    _, _, present = _grouped(_select(values, path), len(values))
    return pc.if_else(values.is_valid(), pa.array(present), None)


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
    return pc.if_else(values.is_valid(), pa.array(contained), None)
