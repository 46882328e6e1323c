"""Operators and words of the filter language, and the precedence of operators."""

from __future__ import annotations

__all__ = [
    "AND",
    "CAST",
    "COMPARISONS",
    "DOT",
    "EQUAL",
    "INSTEAD",
    "IS",
    "KEYWORDS",
    "LIKE",
    "NEGATABLE",
    "NOT",
    "NO_OPERAND",
    "OR",
    "PLUS",
    "SHIFT",
    "SIGNS",
    "TIMES",
    "WORDS",
]

OR, AND, NOT, IS, LIKE, EQUAL = 5, 10, 15, 17, 19, 20
SHIFT, PLUS, TIMES, CAST, DOT = 22, 30, 40, 50, 60

COMPARISONS = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
SIGNS = {
    **dict.fromkeys(COMPARISONS, EQUAL),
    **dict.fromkeys(("<<", ">>"), SHIFT),
    **dict.fromkeys("+-", PLUS),
    **dict.fromkeys(("*", "/", "%", "||"), TIMES),
    "::": CAST,
    "[": DOT,
    ".": DOT,
}
WORDS = {"OR": OR, "AND": AND, "IS": IS, "LIKE": LIKE, "ILIKE": LIKE, "BETWEEN": EQUAL, "IN": EQUAL}
NEGATABLE = {"LIKE", "ILIKE", "BETWEEN", "IN"}

NO_OPERAND = {"AND", "OR", "IS", "IN", "LIKE", "ILIKE", "BETWEEN", "ESCAPE", "WHEN", "THEN", "END"}
"""Words that cannot start an operand."""
KEYWORDS = NO_OPERAND | {
    "ARRAY", "CASE", "CAST", "CURRENT_DATE", "CURRENT_TIMESTAMP", "EXISTS", "EXTRACT", "FALSE",
    "INTERVAL", "NOT", "NULL", "SELECT", "TRUE", "TRY_CAST", "WITH",
}  # fmt: skip
"""Words with a meaning in some positions: as names they are rendered in back-ticks."""

INSTEAD = {
    "~": "call regexp_like(text, pattern)",
    "~*": "call regexp_like(text, pattern, 'i')",
    "!~": "write NOT regexp_like(text, pattern)",
    "!~*": "write NOT regexp_like(text, pattern, 'i')",
    "~~": "write LIKE",
    "~~*": "write ILIKE",
    "!~~": "write NOT LIKE",
    "!~~*": "write NOT ILIKE",
    "<=>": "write IS NOT DISTINCT FROM",
    "&": "AND is written AND",
    "|": "OR is written OR",
    "REGEXP": "call regexp_like(text, pattern)",
    "RLIKE": "call regexp_like(text, pattern)",
    "SIMILAR": "call regexp_like(text, pattern)",
    "ISNULL": "write IS NULL",
    "NOTNULL": "write IS NOT NULL",
    "DIV": "write /, which truncates quotients of integers",
    "MOD": "write %",
    "XOR": "write IS DISTINCT FROM",
}
"""Operators that are not part of the language, and what to write instead."""
