"""Regular expressions: test, extract, count, locate and replace matches.

A constant pattern is one call of Arrow's engine; a column of patterns is one call per distinct
pattern, which are collected row by row. To find a later match than the first, ``regexp_instr``
searches again after each match.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from glaive.arrow.capacity import too_large
from glaive.errors import FilterError
from glaive.expr.functions.characters import Characters
from glaive.expr.functions.coercion import (
    INTEGER,
    LOOSE_TEXT,
    TEXT,
    signature,
    widest_string,
)
from glaive.expr.functions.regex_syntax import Pattern, translate
from glaive.expr.functions.regex_width import MAX_GROUPED_WIDTH
from glaive.expr.functions.registry import function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import (
    check_growth,
    compute_strings,
    whole_end,
)
from glaive.expr.rows import map_constants
from glaive.expr.sizes import MAX_BATCH_BYTES, bytes_of

__all__: list[str] = []

_MAX_MATCHES = 1_000
"""Matches that `regexp_instr` finds at most: each takes a pass over the rest of the text."""

_LONG = 1 << 17
"""Bytes of a text that all matches are found in, however far the engine reads beyond each."""

_MOST_READ = 1 << 34
"""Bytes that are read of a longer text, if the engine may read to its end for each match."""


def _run(compute: Callable[[], Any], source: str, text: Any, pattern: Pattern) -> Any:
    if pattern.bounded and not pc.all(pc.string_is_ascii(text)).as_py() and len(text):
        raise FilterError(
            f"regular expression {source!r:.100}: \\b and \\B support ASCII letters only, and a "
            "row has others; match the characters next to the word instead, such as [^\\w]"
        )
    try:
        return compute()
    except pa.ArrowInvalid as error:
        if too_large(error):
            raise
        raise FilterError(f"regular expression {source!r:.100}: {error!s:.200}") from None


def _check_groups(pattern: Pattern, source: str) -> None:
    if len(pattern.names) * pattern.width > MAX_GROUPED_WIDTH:
        raise FilterError(
            f"regular expression {source!r:.100}: it has {len(pattern.names)} groups and "
            f"{pattern.width} places, the product may be at most {MAX_GROUPED_WIDTH}; (?:...) is "
            "no group"
        )


def _check_matches(text: Any, pattern: Pattern, source: str) -> None:
    """Check that few matches are found in long texts, where each may take a pass over the rest."""
    if not pattern.is_far or bytes_of(text, len(text)) <= _LONG:
        return
    sizes = pc.binary_length(text)
    longest = pc.max(sizes).as_py() or 0
    least = _LONG
    while least < longest:  # texts of about one size at a time
        these = text.filter(pc.and_(pc.greater(sizes, least), pc.less_equal(sizes, 2 * least)))
        least *= 2
        most = _MOST_READ // least
        compute = partial(pc.replace_substring_regex, these, pattern.text, r"\0.")
        marked = _run(partial(compute, max_replacements=most + 1), source, these, pattern)
        matches = pc.max(pc.subtract(pc.binary_length(marked), pc.binary_length(these))).as_py()
        if matches is not None and matches > most:
            raise FilterError(
                f"regular expression {source!r:.100}: it may be compared with the rest of a text "
                f"for each match, and finds more than {most} in a text of more than {least // 2} "
                "bytes. Leave out what must follow a repetition without end, or limit the "
                "repetition, as in a.{0,100}b"
            )


def _letters(flags: str | None, name: str) -> str:
    if flags and "g" in flags:
        raise FilterError(f"{name} has no flag g: it uses only the first match")
    return flags or ""


def _flags_may_be_null(values: tuple[Any, ...]) -> bool:
    return values[0] is None


@function("regexp_like", takes=signature(TEXT, TEXT, TEXT, result=pa.bool_(), optional=1))
def _like(*arguments: Any) -> Any:
    def like(text: Any, source: str, flags: str | None = None) -> Any:
        pattern = translate(source, _letters(flags, "regexp_like"))
        return _run(lambda: pc.match_substring_regex(text, pattern.text), source, text, pattern)

    return map_constants(pa.bool_(), like, arguments, unless=_flags_may_be_null)


def _list_of_text(counted: Any) -> Any:
    return pa.list_(pa.field("item", widest_string(counted)))


@function(
    "regexp_match",
    takes=signature(LOOSE_TEXT, LOOSE_TEXT, LOOSE_TEXT, result=_list_of_text, optional=1),
)
def _match(*arguments: Any) -> Any:
    kind = pa.list_(pa.field("item", arguments[0].type))

    def match(text: Any, source: str, flags: str | None = None) -> Any:
        if flags == "":
            raise FilterError("regexp_match: the flags are empty; omit them")
        pattern = translate(source, _letters(flags, "regexp_match"))
        _check_groups(pattern, source)
        groups = pattern.groups if pattern.names else f"(?P<g1>{pattern.groups})"
        spans = _run(lambda: pc.extract_regex_span(text, groups), source, text, pattern)
        return _matched_groups(text, spans, kind)

    return map_constants(kind, match, arguments, unless=_flags_may_be_null)


def _matched_groups(text: Any, spans: Any, kind: Any) -> Any:
    """Lists of the groups that matched, from their spans; null where nothing matched."""
    rows, count = len(text), spans.type.num_fields
    matched = spans.is_valid().to_numpy(zero_copy_only=False)
    fields = [spans.field(number) for number in range(count)]
    begin = np.stack([_numbers(field, 0) for field in fields])
    size = np.stack([_numbers(field, 1) for field in fields])
    present = (begin >= 0) & (size >= 0) & matched
    sizes = np.where(matched, present.sum(axis=0), 0)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    parts = present.T.nonzero()
    values = _slices(text, parts[0], begin.T[parts], size.T[parts])
    groups = pa.ListArray.from_arrays(offsets, values.cast(kind.value_type), type=kind)
    return pc.if_else(pa.array(matched), groups, pa.nulls(rows, kind))


def _numbers(span: Any, which: int) -> Any:
    """One of the two numbers of a span in each row, -1 where the group did not match."""
    flat = pc.fill_null(pc.list_element(span, which), -1)
    return flat.to_numpy(zero_copy_only=False).astype(np.int64)


def _slices(text: Any, rows: Any, begin: Any, size: Any) -> Any:
    """Bytes ``begin`` to ``begin + size`` of the strings of these rows."""
    _, offsets, data = text.buffers()
    wide = np.int64 if text.type == pa.large_string() else np.int32
    bounds = np.frombuffer(offsets, wide, len(text) + 1, text.offset * np.dtype(wide).itemsize)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    start = bounds[:-1][rows].astype(np.int64) + begin
    ends = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    taken = raw[np.repeat(start - ends[:-1], size) + np.arange(ends[-1])]
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(taken)]
    return pa.Array.from_buffers(pa.large_string(), len(rows), buffers)


@function(
    "regexp_replace",
    takes=signature(
        LOOSE_TEXT, LOOSE_TEXT, LOOSE_TEXT, LOOSE_TEXT, result=widest_string, optional=1
    ),
)
def _replace(*arguments: Any) -> Any:
    def replace(text: Any, source: str, other: str, flags: str = "") -> Any:
        pattern = translate(source, flags.replace("g", ""))
        written = _template(other, pattern, source)
        most = None if "g" in flags else 1

        def replaced(text: Any) -> Any:
            compute = partial(pc.replace_substring_regex, text, pattern.text, written)
            return _run(partial(compute, max_replacements=most), source, text, pattern)

        # Matches do not overlap: all values of a group together are at most as long as the text.
        if most is None:
            _check_matches(text, pattern, source)
        size = bytes_of(text, len(text)) * (1 + written.count("\\"))
        size += len(written.encode()) * len(text)
        if most is None and (size + len(text)) * len(written) > MAX_BATCH_BYTES:
            count = partial(pc.count_substring_regex, text, pattern.text)
            matches = pc.sum(_run(count, source, text, pattern)).as_py() or 0
            size += int(matches) * len(written.encode())
        check_growth("regexp_replace", len(text), bytes_of(text, len(text)), size)
        return compute_strings("regexp_replace", replaced, text, size)

    return map_constants(arguments[0].type, replace, arguments)


_REFERENCE = re.compile(r"\\(\d+)|\$(\$)|\$\{([^}]+)\}|\$([0-9A-Za-z_]+)|(\\)")


def _template(other: str, pattern: Pattern, source: str) -> str:
    """The replacement for Arrow's engine, in which a backslash and a digit refer to a group."""

    def written(match: re.Match[str]) -> str:
        if match[2]:
            return "$"
        if match[5]:
            return "\\\\"
        name = match[1] or match[3] or match[4]
        if name.isdecimal():
            number = int(name.lstrip("0")[:9] or 0)  # Python makes none of thousands of digits
        elif name in pattern.names:
            number = pattern.names.index(name) + 1
        else:
            return ""
        if number > len(pattern.names):
            return ""
        if number > 9:
            raise FilterError(
                f"regexp_replace: {source!r:.100}: only groups 1 to 9 can be inserted"
            )
        return f"\\{number}"

    return _REFERENCE.sub(written, other)


def _from(text: Any, start: int, name: str) -> Any:
    if start < 1:
        raise FilterError(f"{name}: the position to start at counts from 1, found {start}")
    if start == 1:
        return text
    return pc.utf8_slice_codeunits(whole_end(text), min(start, 1 << 40) - 1)


_COUNTED = signature(LOOSE_TEXT, LOOSE_TEXT, INTEGER, LOOSE_TEXT, result=pa.int64(), optional=2)


@function("regexp_count", takes=_COUNTED)
def _count(*arguments: Any) -> Any:
    def count(text: Any, source: str | None, start: int | None = 1, flags: str | None = "") -> Any:
        if not source and source != "":
            return pa.repeat(pa.scalar(0, pa.int64()), len(text))
        pattern = translate(source, _letters(flags, "regexp_count"))
        start = 1 if start is None else start
        rest = _from(text, start, "regexp_count")
        # Arrow's count restarts after each match, where ^ would match again; so each match is
        # replaced by one more byte, and lengths are compared.
        _check_matches(rest, pattern, source)
        size = 2 * bytes_of(rest, len(rest)) + len(rest)

        def marked(rest: Any) -> Any:
            compute = partial(pc.replace_substring_regex, rest, pattern.text, r"\0.")
            return _run(compute, source, text, pattern)

        longer = pc.binary_length(compute_strings("regexp_count", marked, rest, size))
        count = pc.subtract(longer, pc.binary_length(rest))
        if start > 1:
            count = pc.if_else(pc.less(pc.utf8_length(text), start - 1), 0, count)
        return pc.fill_null(count.cast(pa.int64()), 0)

    return map_constants(pa.int64(), count, arguments, unless=lambda _: False)


@function(
    "regexp_instr",
    takes=signature(
        LOOSE_TEXT,
        LOOSE_TEXT,
        INTEGER,
        INTEGER,
        LOOSE_TEXT,
        INTEGER,
        result=pa.int64(),
        optional=4,
    ),
)
def _instr(*arguments: Any) -> Any:
    return map_constants(pa.int64(), _match_positions, arguments, unless=_flags_may_be_null)


def _positive(sizes: Any) -> Any:
    return pc.fill_null(pc.greater(sizes, 0), False).to_numpy(zero_copy_only=False)


def _match_positions(
    text: Any,
    source: str,
    start: int | None = 1,
    number: int | None = 1,
    flags: str | None = "",
    group: int | None = 0,
) -> Any:
    """Position of the match in each string, from 1; 0 where there is none."""
    start = 1 if start is None else start
    number = 1 if number is None else number
    group = max(group or 0, 0)
    if number < 1:
        raise FilterError(f"regexp_instr: matches count from 1, found {number}")
    if number > _MAX_MATCHES:
        raise FilterError(f"regexp_instr: match {number} is too far, at most {_MAX_MATCHES}")
    if not source:
        return pa.repeat(pa.scalar(0, pa.int64()), len(text))
    pattern = translate(source, _letters(flags, "regexp_instr"))
    _check_groups(pattern, source)
    groups = f"(?P<g0>{pattern.groups})"
    rest = _from(text, start, "regexp_instr")
    before = np.full(len(text), start - 1, np.int64)
    present = _positive(pc.binary_length(text))
    steps = 1 if group else number
    for step in range(1, steps + 1):
        spans = _run(partial(pc.extract_regex_span, rest, groups), source, text, pattern)
        if group >= spans.type.num_fields:
            present[:] = False
            break
        field = spans.field(group if step == steps else 0)
        begin, size = _numbers(field, 0), _numbers(field, 1)
        present &= spans.is_valid().to_numpy(zero_copy_only=False) & (begin >= 0)
        if not present.any():
            break
        letters = Characters(rest)
        passed = begin if step == steps else begin + size
        shift = letters.number(np.where(present, passed, 0))
        before += shift
        rest = letters.cut(shift, letters.counts)
    positions = pa.array(np.where(present, before + 1, 0), pa.int64())
    return pc.if_else(text.is_valid(), positions, pa.scalar(None, pa.int64()))
