"""Regular expressions: test, extract, count, locate and replace matches."""

from __future__ import annotations

from typing import Any

from glaive.expr.functions.coercion import INTEGER, LOOSE_TEXT, TEXT, signature, widest_string
from glaive.expr.functions.library import compute, library
from glaive.expr.functions.registry import function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import check_growth
from glaive.expr.rows import broadcast, count_rows, is_constant
from glaive.expr.sizes import MAX_BATCH_BYTES, bytes_of, check_bytes

__all__: list[str] = []

_FOUR_TEXTS = (LOOSE_TEXT, LOOSE_TEXT, LOOSE_TEXT, LOOSE_TEXT)
_PLACES = (LOOSE_TEXT, LOOSE_TEXT, INTEGER, INTEGER, LOOSE_TEXT, INTEGER)


def _list_of_text(counted: Any) -> Any:
    return pa.list_(pa.field("item", widest_string(counted)))


def _check_groups(text: Any, pattern: Any, *_: Any) -> None:
    """Check the size of what all groups of a pattern match, which may contain each other."""
    rows = count_rows((text, pattern))
    groups = pc.max(pc.count_substring(broadcast(pattern, rows), "(")).as_py() or 0
    size = bytes_of(text, rows) * (groups + 1)
    check_bytes("regexp_match", size, rows, text.type)
    check_growth("regexp_match", rows, bytes_of(text, rows), size)


def _check_replaced(text: Any, pattern: Any, other: Any, flags: Any = None) -> None:
    """Check the size of texts whose matches are replaced.

    Matches do not overlap: all values of a group together are at most as long as the text.
    """
    rows = count_rows((text, pattern, other))
    before, letters = bytes_of(text, rows), broadcast(other, rows)
    references = pc.max(pc.count_substring_regex(letters, r"[$\\]")).as_py() or 0
    longest = pc.max(pc.binary_length(letters)).as_py() or 0
    matches = rows if flags is None else before + rows
    if flags is not None and matches * longest > MAX_BATCH_BYTES:
        counts = compute("regexp_count", broadcast(text, rows), pattern)
        matches = int(pc.sum(counts).as_py() or 0)
    size = before * (1 + references) + matches * longest
    check_bytes("regexp_replace", size, rows, text.type)
    check_growth("regexp_replace", rows, before, size)


@function("regexp_like", takes=signature(TEXT, TEXT, TEXT, result=pa.bool_(), optional=1))
def _like(text: Any, pattern: Any, *flags: Any) -> Any:
    given = [flag for flag in flags if not is_constant(flag) or flag.as_py() != ""]
    return compute("regexp_like", text, pattern, *given)


library(
    "regexp_match",
    takes=signature(*_FOUR_TEXTS[1:], result=_list_of_text, optional=1),
    check=_check_groups,
)
library(
    "regexp_replace",
    takes=signature(*_FOUR_TEXTS, result=widest_string, optional=1),
    check=_check_replaced,
)
library("regexp_count", takes=signature(*_PLACES[:3], LOOSE_TEXT, result=pa.int64(), optional=2))
library("regexp_instr", takes=signature(*_PLACES, result=pa.int64(), optional=4))
