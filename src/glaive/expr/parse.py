"""Parse the filter language: text to tree.

Operators have the precedences of Lance; higher numbers bind tighter. The right operand is read with
the operator's precedence, so that equal operators group to the left.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import pyarrow as pa

from glaive.dataclass import NamedTuple
from glaive.errors import FilterError
from glaive.expr import tree
from glaive.expr.casts import is_timestamp, value_texts
from glaive.expr.coerce import DECIMALS, SIMPLE, TIMED, is_string, sized, type_text
from glaive.expr.constants import LONG_LIST, ConstantList, read_list
from glaive.expr.tree import (
    MAX_ARGUMENTS,
    MAX_DEPTH,
    MAX_JOINED,
    MAX_NODES,
    MAX_TEXT,
    Literal,
    Node,
)
from glaive.format.field import quoted_name

# --- Errors that show a position in the source text -------------------------------------

_BEFORE, _AFTER = 50, 30
"""Characters displayed around the position."""


def failure(problem: str, text: str, at: int) -> FilterError:
    """Return an error with the problem and its position in the text, if known."""
    return FilterError(f"{problem}{position_text(text, at)}")


def position_text(text: str, at: int) -> str:
    """Return line, column, and the line with a caret below the position; empty for empty text."""
    if not text or at < 0:
        return ""
    at = min(at, len(text))
    start = text.rfind("\n", 0, at) + 1
    stop = text.find("\n", at)
    stop = len(text) if stop < 0 else stop
    line = text.count("\n", 0, at) + 1
    first, last = max(start, at - _BEFORE), min(stop, at + _AFTER)
    left = ("…" if first > start else "") + text[first:at]
    right = text[at:last] + ("…" if last < stop else "")
    position = (f"line {line}," if "\n" in text else "character") + f" {at - start + 1}"
    excerpt = "".join(c if c.isprintable() else " " for c in left + right)
    return f" ({position})\n  {excerpt}\n  {' ' * len(left)}^"


def close_names(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'a', 'b'?``, or an empty string."""
    from difflib import get_close_matches

    names = list(dict.fromkeys(known))
    by_lower = {name.lower(): name for name in names}
    close = get_close_matches(name.lower(), list(by_lower), n=3)
    return f"; did you mean {', '.join(repr(by_lower[name]) for name in close)}?" if close else ""


# --- Split filter text into tokens ------------------------------------------------------


class Kind(Enum):
    """Kinds of tokens."""

    WORD = "word"
    QUOTED = "quoted name"
    TEXT = "text"
    NUMBER = "number"
    BYTES = "bytes"
    SIGN = "sign"
    LIST = "list of constants"
    END = "end of the text"


class Token(NamedTuple):
    """A token; ``value`` is the name, the string inside its quotes, the digits, or the sign.

    A long list of constants in the brackets of ``IN (…)`` is one token.
    """

    kind: Kind
    value: str
    at: int
    end: int

    @property
    def upper(self) -> str:
        """A word in upper case; empty for other tokens, including quoted names."""
        return self.value.upper() if self.kind is Kind.WORD else ""


_TOKEN = re.compile(
    r"""
      (?P<space>\s+|--[^\n]*)
    | (?P<comment>/\*)
    | (?P<bytes>[xX]'[0-9a-fA-F]*'|0[xX][0-9a-fA-F]+)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<text>'[^']*+(?:''[^']*+)*+'|"[^"]*+(?:""[^"]*+)*+")
    | (?P<quoted>`[^`]*+(?:``[^`]*+)*+`)
    | (?P<word>[^\W\d]\w*)
    | (?P<sign>::|<=>|<=|>=|<>|!=|==|\|\||<<|>>|!~~\*|!~~|!~\*|!~|~~\*|~~|~\*
              |[-+*/%=<>(),.\[\]~&|^\#?:;@!{}$\\])
    """,
    re.VERBOSE,
)
_EDGE = re.compile(r"/\*|\*/")
_MAX_TOKENS = 4 * MAX_NODES
_TOO_MANY = f"the filter has more than {MAX_NODES} names, constants and operations"


def _tokens(text: str) -> list[Token]:
    """Split a text into tokens; the last one is the end.

    Raises
    ------
    FilterError
        The text is too long, or has characters outside of all tokens.
    """
    if len(text) > MAX_TEXT:
        raise failure(
            f"the filter has {len(text)} characters; at most {MAX_TEXT} are supported. Join "
            "with a table of the values instead.",
            "",
            -1,
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # The error omits the text, which terminals and logs refuse.
        raise failure(
            f"character {error.start + 1} of the filter, {text[error.start]!a}, is half of a "
            "pair of UTF-16 and no character",
            "",
            -1,
        ) from None
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise failure(_unknown(text[at]), text, at)
        group, end = str(match.lastgroup), match.end()
        if group == "comment":
            end = _comment_end(text, at)
        elif group != "space":
            tokens.append(_token(group, match.group(), text, at, end))
            if tokens[-1].value == "(" and len(tokens) > 1 and tokens[-2].upper == "IN":
                items = LONG_LIST.match(text, end)
                if items is not None:
                    tokens.append(Token(Kind.LIST, items.group(), end, items.end()))
                    end = items.end()
            if len(tokens) > _MAX_TOKENS:
                raise failure(_TOO_MANY, text, at)
        at = end
    tokens.append(Token(Kind.END, "", at, at))
    return tokens


def _token(group: str, raw: str, text: str, at: int, end: int) -> Token:
    kind, value = Kind[group.upper()], raw
    if kind in {Kind.TEXT, Kind.QUOTED}:
        quote = raw[0]
        value = raw[1:-1].replace(quote * 2, quote)
        if kind is Kind.QUOTED and not value:
            raise failure("a name between back-ticks is empty", text, at)
    elif kind is Kind.BYTES:
        value = raw[2:-1] if raw.endswith("'") else raw[2:]
        value = value.zfill(len(value) + len(value) % 2)
    return Token(kind, value, at, end)


def _comment_end(text: str, start: int) -> int:
    depth, at = 1, start + 2
    while depth:
        edge = _EDGE.search(text, at)
        if edge is None:
            raise failure("a comment is not closed: '*/' is missing", text, start)
        depth += 1 if edge.group() == "/*" else -1
        at = edge.end()
    return at


def _unknown(character: str) -> str:
    names = {"'": "string", '"': "string", "`": "name"}
    if character in names:
        return f"a {names[character]} is not closed: end it with {character}, or double it within"
    return f"{character!r} has no meaning in a filter; write strings in straight quotes: 'a'"


# --- Operators and words of the filter language, and the precedence of operators --------

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
    "&": "write AND",
    "|": "write OR",
    **dict.fromkeys(("REGEXP", "RLIKE", "SIMILAR"), "call regexp_like(text, pattern)"),
    "ORDER": "sort with order_by=",
    "LIMIT": "pass the number as limit=",
    "ISNULL": "write IS NULL",
    "NOTNULL": "write IS NOT NULL",
    "DIV": "write /, which truncates quotients of integers",
    "MOD": "write %",
    "XOR": "write IS DISTINCT FROM",
}
"""Operators of other dialects, and what to write instead."""


def number_of(token: Token) -> Literal:
    """Return the constant of a number token."""
    digits = token.value
    if digits.isdecimal():
        # A 64-bit integer has at most 20 digits, and int() is slow for many digits.
        value = int(digits) if len(digits.lstrip("0")) <= 20 else 1 << 64
        if value < 1 << 64:
            kind = pa.int64() if value < 1 << 63 else pa.uint64()
            return Literal(value, kind, at=token.at)
    return Literal(float(digits), pa.float64(), at=token.at)


_MICROSECONDS: Final = pa.timestamp("us")
_NANOSECONDS: Final = pa.timestamp("ns")


def parse(text: str) -> Node:
    """Parse a text to a tree.

    Raises
    ------
    FilterError
        The text is invalid, too long (``MAX_TEXT``, ``MAX_NODES``) or nested too deeply
        (``MAX_DEPTH``); the message shows the position.
    """
    return _Parser(text).parse()


class _Parser:
    """Parser of one text.

    ``depth`` is the nesting depth, ``calls`` the number of function calls around the position.
    ``nodes`` counts the nodes made, ``joined`` the words AND and OR.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.next = self.depth = self.nodes = self.calls = self.joined = 0

    @property
    def token(self) -> Token:
        """The current token."""
        return self.tokens[self.next]

    def is_end(self) -> bool:
        """Return whether the parser is at the end of the text."""
        return self.tokens[self.next].kind is Kind.END

    def advance(self) -> Token:
        """Return the current token and advance."""
        token = self.tokens[self.next]
        if token.kind is not Kind.END:
            self.next += 1
        return token

    def is_sign(self, sign: str) -> bool:
        """Return whether the current token is this sign."""
        token = self.tokens[self.next]
        return token.kind is Kind.SIGN and token.value == sign

    def take(self, sign: str) -> bool:
        """Advance past this sign if it is the current token; return whether it was."""
        present = self.is_sign(sign)
        if present:
            self.next += 1
        return present

    def expect(self, sign: str, after: str) -> None:
        """Check that the current token is this sign, and advance past it."""
        if not self.take(sign):
            raise self.wrong(f"expected {sign!r} {after}, found {self.token_text()}")

    def take_word(self, *words: str) -> bool:
        """Advance past these words (in upper case) if they follow; return whether they did."""
        present = all(
            self.tokens[min(self.next + i, len(self.tokens) - 1)].upper == word
            for i, word in enumerate(words)
        )
        if present:
            self.next += len(words)
        return present

    def token_text(self) -> str:
        """Return the current token, for errors."""
        token = self.token
        is_end = token.kind is Kind.END
        return str(token.kind.value) if is_end else repr(self.text[token.at : token.end][:40])

    def wrong(self, problem: str, at: int | None = None) -> FilterError:
        """Return an error at the current token, or at ``at``."""
        return failure(problem, self.text, self.token.at if at is None else at)

    def is_typed_literal(self) -> bool:
        """Return whether ``(digits) 'text'`` follows."""
        at = self.next + 1
        while self.tokens[at].kind is Kind.NUMBER or self.tokens[at].value in {",", "-"}:
            at += 1
        return self.tokens[at].value == ")" and self.tokens[at + 1].kind is Kind.TEXT

    def type(self) -> Any:
        """Read the name of a type."""
        token = self.advance()
        name = token.value.lower()
        if token.kind is Kind.WORD and name in TIMED + DECIMALS:
            return self.sized(name, token)
        if token.kind is not Kind.WORD or name not in SIMPLE:
            known = ", ".join(
                dict.fromkeys([*SIMPLE, "timestamp(digits)", "decimal(digits, scale)"])
            )
            raise self.wrong(
                f"unknown type {self.text[token.at : token.end]!r}. Types: {known}", token.at
            )
        for more in ("unsigned", "precision"):
            if f"{name} {more}" in SIMPLE and self.take_word(more.upper()):
                name = f"{name} {more}"
        return SIMPLE[name]

    def sized(self, name: str, token: Token) -> Any:
        """Read the bracketed sizes after the name of a type."""
        sizes: list[int] = []
        if self.take("("):
            while not self.take(")"):
                if sizes:
                    self.expect(",", "or ')' in the type")
                minus = self.take("-")
                number = self.advance()
                if number.kind is not Kind.NUMBER or not number.value.isdecimal():
                    raise self.wrong(
                        f"expected a number of digits, found {number.value!r}", number.at
                    )
                sizes.append(int(number.value[:5]) * (-1 if minus else 1))
        data_type = sized(name, tuple(sizes))
        if isinstance(data_type, str):
            raise self.wrong(data_type, token.at)
        if self.take_word("WITH") or self.take_word("AT"):
            raise self.wrong("filters have no timestamps with a time zone; leave the zone out")
        return data_type

    def parse(self) -> Node:
        if self.is_end():
            raise self.wrong("the filter is empty; pass None to read all rows")
        node = self.expression(0)
        while self.take(";"):
            pass
        if not self.is_end():
            advice = INSTEAD.get(self.token.upper or self.token.value)
            if advice is None and self._is_between_words():
                advice = "write a condition only, and a name with spaces as `Order Date`"
            hint = f"; {advice}" if advice else ""
            raise self.wrong(f"expected an operator or the end, found {self.token_text()}{hint}")
        return node

    def _is_between_words(self) -> bool:
        """Return whether the current word follows another word, as in a name with spaces."""
        before = self.tokens[self.next - 1]
        return self.token.kind is before.kind is Kind.WORD

    def expression(self, tighter: int) -> Node:
        """Read an operand and all operators after it that bind tighter."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.wrong(f"the filter is nested deeper than {MAX_DEPTH} levels")
        levels = 0
        node = self.operand()
        while True:
            token = self.tokens[self.next]
            binding = self.binding(token)
            if binding <= tighter:
                break
            joined = self.count(self.operator(node, token, binding))
            # A chain of ANDs or ORs is one level, whatever its length.
            flat = type(joined) is type(node) and isinstance(joined, tree.And | tree.Or)
            levels += not flat
            if self.depth + levels > MAX_DEPTH:
                raise self.wrong(
                    f"the filter is nested deeper than {MAX_DEPTH} levels: group long chains of "
                    "operators with brackets"
                )
            node = joined
        self.depth -= 1
        return node

    def binding(self, token: Token) -> int:
        if token.kind is Kind.SIGN:
            return SIGNS.get(token.value, -1)
        word = token.upper
        if word == "NOT":
            after = self.tokens[self.next + 1].upper
            return WORDS[after] if after in NEGATABLE else IS if after == "NULL" else -1
        return WORDS.get(word, -1)

    def count(self, node: Node) -> Node:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self.wrong(_TOO_MANY)
        return node

    def operator(self, left: Node, token: Token, binding: int) -> Node:
        self.advance()
        at, sign = token.at, token.value
        if token.kind is Kind.SIGN:
            if sign in COMPARISONS:
                return tree.Compare(COMPARISONS[sign], left, self.expression(binding), at=at)
            if sign == "::":
                return tree.Cast(left, self.type(), at=at)
            if sign == "[":
                return self.subscript(left, at)
            if sign == ".":
                return self.member(left, at)
            return tree.Arithmetic(sign, left, self.expression(binding), at=at)
        word = token.upper
        if word in {"AND", "OR"}:
            join = tree.both if word == "AND" else tree.either
            return self.chain(word, join, left, at, binding)
        if word == "IS":
            return self.test(left, at)
        negated = word == "NOT"
        if negated:
            word = self.advance().upper
        if word in {"IN", "NULL"}:
            null = tree.IsNull(left, negated, at=at)
            return null if word == "NULL" else self.in_list(left, at, negated=negated)
        if word == "BETWEEN":
            low = self.expression(EQUAL)
            if not self.take_word("AND"):
                raise self.wrong(f"expected AND as in BETWEEN 1 AND 2, found {self.token_text()}")
            return tree.Between(left, low, self.expression(EQUAL), negated, at=at)
        return self.like(left, at, negated=negated, ignore_case=word == "ILIKE")

    def chain(
        self, word: str, join: Callable[..., Node], left: Node, at: int, binding: int
    ) -> Node:
        operands = [left]
        while len(operands) < 2 or self.take_word(word):
            self.joined += 1
            if self.joined > MAX_JOINED:
                raise self.wrong(
                    f"the filter has more than {MAX_JOINED} words AND and OR: compare with a list "
                    "(IN), or join with a table of the values instead"
                )
            operands.append(self.count(self.expression(binding)))
        return join(*operands, at=at)

    def test(self, left: Node, at: int) -> Node:
        negated = self.take_word("NOT")
        if self.take_word("NULL"):
            return tree.IsNull(left, negated, at=at)
        if self.take_word("DISTINCT", "FROM"):
            op = "IS NOT DISTINCT FROM" if negated else "IS DISTINCT FROM"
            return tree.Compare(op, left, self.expression(0), at=at)
        for word, truth in (("TRUE", True), ("FALSE", False), ("UNKNOWN", None)):
            if self.take_word(word):
                return tree.IsTruth(left, truth, negated, at=at)
        expected = "NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM after IS"
        raise self.wrong(f"expected {expected}, found {self.token_text()}")

    def in_list(self, left: Node, at: int, *, negated: bool) -> Node:
        self.expect("(", "and values such as (1, 2) after IN")
        if self.token.upper in {"SELECT", "WITH"}:
            raise self.wrong("a subquery is not a filter; list the values: x IN (1, 2)")
        if self.is_sign(")"):
            raise self.wrong("IN needs a value: x IN (1, 2)")
        if self.token.kind is not Kind.LIST:
            return tree.InList(left, self.items(")"), negated, at=at)
        listed = self.advance()
        constants = read_list(listed.value, listed.at)
        self.nodes += len(constants)
        self.expect(")", "after the list")
        return self.count(tree.InList(left, constants, negated, at=at))

    def items(self, closing: str) -> tuple[Node, ...]:
        """Read expressions between commas, up to the closing bracket."""
        items: list[Node] = []
        while not self.take(closing):
            if items:
                self.expect(",", f"or {closing!r} after a value")
            items.append(self.expression(0))
        return tuple(items)

    def like(self, left: Node, at: int, *, negated: bool, ignore_case: bool) -> Node:
        pattern = self.expression(LIKE)
        escape = "\\"
        if self.take_word("ESCAPE"):
            token = self.advance()
            if token.kind is not Kind.TEXT or len(token.value) != 1:
                raise self.wrong("ESCAPE takes one character: LIKE '50!%' ESCAPE '!'", token.at)
            escape = token.value
        return tree.Like(left, pattern, escape, negated, ignore_case, at=at)

    def subscript(self, left: Node, at: int) -> Node:
        index = self.expression(0)
        if self.is_sign(":"):
            raise self.wrong(
                "a slice is not part of the language; call array_slice(list, from, to)"
            )
        self.expect("]", "after the subscript")
        return tree.Subscript(left, index, at=at)

    def member(self, left: Node, at: int) -> Node:
        token = self.advance()
        if token.kind not in {Kind.WORD, Kind.QUOTED}:
            raise self.wrong("expected a name after '.'", token.at)
        return tree.Member(left, token.value, at=at)

    def operand(self) -> Node:
        token = self.advance()
        match token.kind:
            case Kind.NUMBER:
                return self.count(number_of(token))
            case Kind.TEXT:
                return self.count(tree.Literal(token.value, pa.string(), at=token.at))
            case Kind.BYTES:
                value = bytes.fromhex(token.value)
                return self.count(tree.Literal(value, pa.binary(), at=token.at))
            case Kind.QUOTED:
                called = self.is_sign("(")
                return self.count(self.called(token) if called else self.name(token))
            case Kind.WORD:
                return self.count(self.word(token))
            case Kind.SIGN:
                return self.sign(token)
            case _:
                raise self.wrong("the expression ends where a value is expected", token.at)

    def sign(self, token: Token) -> Node:
        if token.value == "(":
            if self.token.upper in {"SELECT", "WITH"}:
                raise self.wrong("a subquery is not a filter", token.at)
            node = self.expression(0)
            if self.is_sign(","):
                raise self.wrong("a tuple is not a filter; compare column by column", token.at)
            self.expect(")", f"for the bracket at {token.at + 1}")
            return node
        if token.value == "-":
            number = self.token.kind is Kind.NUMBER
            node = self.expression(TIMES)
            if number and isinstance(node, tree.Literal):
                value = -node.value
                if not isinstance(value, int):
                    return Literal(value, node.type, at=token.at)
                if value >= -(1 << 63):
                    return Literal(value, pa.int64(), at=token.at)
                return Literal(float(value), pa.float64(), at=token.at)
            return self.count(tree.Negative(node, at=token.at))
        if token.value == "+":
            return self.expression(TIMES)
        if token.value == "[":
            return self.count(tree.ListOf(self.items("]"), at=token.at))
        if token.value in {"?", ":", "$", "@"}:
            raise self.wrong("a filter has no parameters; put the value into the text", token.at)
        advice = "; write NOT" if token.value in {"!", "~"} else ""
        raise self.wrong(f"expected a value, found {token.value!r}{advice}", token.at)

    def word(self, token: Token) -> Node:
        word, at = token.upper, token.at
        if word == "NOT":
            return tree.Not(self.expression(NOT), at=at)
        if word == "NULL":
            return tree.Literal(None, pa.null(), at=at)
        if word in {"TRUE", "FALSE"}:
            return tree.Literal(word == "TRUE", pa.bool_(), at=at)
        if word in NO_OPERAND:
            raise self.wrong(
                f"expected a value, found {token.value!r}; write a column of this name in "
                "back-ticks",
                at,
            )
        if word == "ARRAY" and self.take("["):
            return tree.ListOf(self.items("]"), at=at)
        if self.is_sign("("):
            return self.called(token)
        if self.token.kind is Kind.TEXT:
            return self.typed(token)
        if word in {"CASE", "SELECT"} and self.token.kind in {Kind.WORD, Kind.NUMBER, Kind.QUOTED}:
            subject = "CASE" if word == "CASE" else "a subquery"
            raise self.wrong(f"{subject} is not a filter; use AND, OR and NOT", at)
        if word == "CURRENT_DATE":
            return tree.Call("current_date", (), at=at)
        if word == "CURRENT_TIMESTAMP":
            return tree.Call("now", (), at=at)
        return self.name(token)

    def arguments(self) -> tuple[Node, ...]:
        """Read the arguments of a call, up to the closing bracket."""
        self.calls += 1
        at = self.token.at
        arguments = self.items(")")
        self.calls -= 1
        if len(arguments) > MAX_ARGUMENTS:
            raise self.wrong(
                f"a call has {len(arguments)} arguments, at most {MAX_ARGUMENTS} are supported; a "
                "list in brackets, [1, 2, 3], may have more items",
                at,
            )
        return arguments

    def name(self, token: Token) -> Node:
        parts = [token.value]
        while self.is_sign("."):
            self.advance()
            part = self.advance()
            if part.kind not in {Kind.WORD, Kind.QUOTED}:
                raise self.wrong("expected a name after '.'", part.at)
            parts.append(part.value)
            if len(parts) > MAX_DEPTH:
                raise self.wrong(f"a name has more than {MAX_DEPTH} parts")
        exact = token.kind is Kind.QUOTED or token.upper in KEYWORDS
        return tree.Name(tuple(parts), exact, at=token.at)

    def called(self, token: Token) -> Node:
        word, at = token.upper, token.at
        if word == "EXISTS":
            raise self.wrong("a subquery is not a filter", at)
        if word in {"TIMESTAMP", "DATETIME", "DECIMAL", "NUMERIC"} and self.is_typed_literal():
            return self.typed(token)
        self.advance()
        if word in {"CAST", "TRY_CAST"}:
            operand = self.expression(0)
            if not self.take_word("AS"):
                raise self.wrong(
                    f"expected AS and a type after the value of {word}, found {self.token_text()}"
                )
            kind = self.type()
            self.expect(")", "after the type")
            return tree.Cast(operand, kind, word == "TRY_CAST", at=at)
        if word == "EXTRACT":
            part = self.advance()
            if part.kind not in {Kind.WORD, Kind.TEXT} or not self.take_word("FROM"):
                raise self.wrong(
                    "EXTRACT is written EXTRACT(YEAR FROM x), or date_part('year', x)", at
                )
            name = tree.Literal(part.value.lower(), pa.string(), at=part.at)
            arguments: tuple[Node, ...] = (name, *self.arguments())
            return tree.Call("date_part", arguments, at=at)
        if self.is_sign("*"):
            raise self.wrong(f"{token.value}(*) is an aggregate; compute it in SQL", at)
        call = tree.Call(token.value.lower(), self.arguments(), at=at)
        if self.token.upper in {"OVER", "FILTER"}:
            raise self.wrong(
                f"{token.value} is a window function or an aggregate, not a filter", at
            )
        return call

    def typed(self, token: Token) -> Node:
        """Read ``date '2024-01-01'``, after the name of the type."""
        if token.upper == "INTERVAL":
            return self.interval(token.at)
        digits = self.is_sign("(")
        self.next -= 1
        kind = self.type()
        text = self.advance()
        if text.kind is not Kind.TEXT:
            raise self.wrong("expected a string after the type", text.at)
        if self.calls and not digits and kind == _MICROSECONDS:
            # Lance plans arguments of calls differently. A coarser constant would truncate the
            # values of a nanosecond column in functions like coalesce.
            kind = _NANOSECONDS if is_timestamp(text.value, _NANOSECONDS) else kind
        return tree.Cast(tree.Literal(text.value, pa.string(), at=text.at), kind, at=token.at)

    def interval(self, at: int) -> Node:
        """Read ``interval '2 days'`` or ``interval '2' day``."""
        if not self.calls:
            raise self.wrong(
                "an interval can only be an argument of a function, such as "
                "date_bin(interval '1 hour', t); compare with a date or a timestamp",
                at,
            )
        text = self.advance().value
        if self.token.kind is Kind.WORD and text.strip().lstrip("+-").isdecimal():
            text = f"{text} {self.advance().value}"
        from glaive.expr.functions.library import engine_cast

        try:
            kind = pa.month_day_nano_interval()
            value: Any = engine_cast(pa.array([text]), kind, attempt=False)[0]
        except FilterError as error:
            raise self.wrong(str(error), at) from None
        return tree.Literal(value, value.type, at=at)


# --- Render trees as text in a normal form, which parses as the same tree ---------------

_PRIMARY = 100
_BINDING = {
    "+": PLUS,
    "-": PLUS,
    "*": TIMES,
    "/": TIMES,
    "%": TIMES,
    "||": TIMES,
    "<<": SHIFT,
    ">>": SHIFT,
}
_PLAIN = re.compile(r"[^\W\d]\w*")
_UNORDERED = 1
"""Precedence of IS DISTINCT FROM, which includes all that follows."""


def render(node: Node) -> str:
    """Return the text of an expression."""
    return _text(node)[0]


def _in(node: Node, tightness: int) -> str:
    """Return the text of an operand, in brackets unless it binds at least as tightly."""
    text, binding = _text(node)
    return text if binding >= tightness else f"({text})"


def _text(node: Node) -> tuple[str, int]:  # noqa: C901, PLR0911, PLR0912  # as many classes
    """Return the text, and the precedence of its outermost operator."""
    match node:
        case tree.Name(parts, exact):
            first = _name(parts[0], always=exact)
            return ".".join([first, *(_name(part) for part in parts[1:])]), _PRIMARY
        case tree.Column(path):
            return path if _PLAIN.fullmatch(path) or "." in path else _name(path), _PRIMARY
        case Literal():
            return _literal(node)
        case tree.ListOf(items):
            return f"[{', '.join(map(render, items))}]", _PRIMARY
        case tree.Compare(op, left, right):
            if op.startswith("IS"):
                return f"{_in(left, IS)} {op} {_in(right, OR)}", _UNORDERED
            return f"{_in(left, EQUAL)} {op} {_in(right, EQUAL + 1)}", EQUAL
        case tree.Arithmetic(op, left, right):
            binding = _BINDING[op]
            return f"{_in(left, binding)} {op} {_in(right, binding + 1)}", binding
        case tree.Negative(operand):
            bare = isinstance(operand, Literal) and not render(operand).startswith("-")
            inner = f"({render(operand)})" if bare else _in(operand, TIMES + 1)
            return f"- {inner}" if inner.startswith("-") else f"-{inner}", TIMES
        case tree.And(operands):
            return " AND ".join(_in(operand, AND + 1) for operand in operands), AND
        case tree.Or(operands):
            return " OR ".join(_in(operand, OR + 1) for operand in operands), OR
        case tree.Not(operand):
            return f"NOT {_in(operand, NOT)}", NOT
        case tree.IsNull(operand, negated):
            return f"{_in(operand, IS)} IS {_not(negated)}NULL", IS
        case tree.IsTruth(operand, truth, negated):
            word = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[truth]
            return f"{_in(operand, IS)} IS {_not(negated)}{word}", IS
        case tree.InList(operand, items, negated):
            listed = ", ".join(_listed(items))
            return f"{_in(operand, EQUAL)} {_not(negated)}IN ({listed})", EQUAL
        case tree.Between(operand, low, high, negated):
            between = f"{_in(low, EQUAL + 1)} AND {_in(high, EQUAL + 1)}"
            return f"{_in(operand, EQUAL)} {_not(negated)}BETWEEN {between}", EQUAL
        case tree.Like():
            return _like(node)
        case tree.Cast(operand, kind, attempt):
            word = "TRY_CAST" if attempt else "CAST"
            return f"{word}({render(operand)} AS {type_text(kind)})", _PRIMARY
        case tree.Call(name, arguments):
            return f"{name}({', '.join(map(render, arguments))})", _PRIMARY
        case tree.Member(operand, name):
            inner = (
                f"({render(operand)})"
                if isinstance(operand, tree.Name | Literal)
                else _in(operand, _PRIMARY)
            )
            return f"{inner}.{_name(name)}", _PRIMARY
        case tree.Subscript(operand, index):
            return f"{_in(operand, _PRIMARY)}[{render(index)}]", _PRIMARY


def _not(negated: bool) -> str:  # noqa: FBT001  # the word itself
    return "NOT " if negated else ""


def _like(node: tree.Like) -> tuple[str, int]:
    word = "ILIKE" if node.ignore_case else "LIKE"
    escape = "" if node.escape == "\\" else f" ESCAPE {_quoted(node.escape)}"
    text = f"{_in(node.operand, LIKE)} {_not(node.negated)}{word} {_in(node.pattern, LIKE + 1)}"
    return f"{text}{escape}", LIKE


def _name(name: str, *, always: bool = False) -> str:
    if not always and _PLAIN.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return quoted_name(name)


def _listed(items: Sequence[Node]) -> Iterable[str]:
    if isinstance(items, ConstantList):
        if is_string(items.type):
            return map(_quoted, items.values)
        if pa.types.is_integer(items.type):
            return map(str, items.values)
        if pa.types.is_floating(items.type) and all(map(math.isfinite, items.values)):
            return map(repr, items.values)
    return map(render, items)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal(node: Literal) -> tuple[str, int]:
    value, kind = node.value, node.type
    if value is None:
        return "NULL", _PRIMARY
    if isinstance(value, bool):
        return str(value).upper(), _PRIMARY
    if isinstance(value, str):
        return _quoted(value), _PRIMARY
    if isinstance(value, bytes):
        return f"x'{value.hex()}'", _PRIMARY
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, tuple):
        items = [Literal(item, kind.value_type) for item in value]  # type: ignore[attr-defined]  # a list's
        return f"[{', '.join(map(render, items))}]", _PRIMARY
    if isinstance(value, int) and pa.types.is_integer(kind):
        return str(value), _PRIMARY if value >= 0 else TIMES
    if isinstance(value, Decimal):
        return f"{type_text(kind)} '{value:f}'", _PRIMARY
    return _typed(node), _PRIMARY


def _float(value: float) -> tuple[str, int]:
    if not math.isfinite(value):
        return f"double '{value}'", _PRIMARY
    return repr(value), TIMES if repr(value).startswith("-") else _PRIMARY


def _typed(node: Literal) -> str:
    scalar: Any = node.scalar()
    if pa.types.is_nested(scalar.type):
        return str(scalar.as_py())
    if pa.types.is_interval(scalar.type):
        months, days, nanos = scalar.as_py()
        return f"interval '{months} months {days} days {nanos} nanoseconds'"
    text = value_texts(pa.repeat(scalar, 1))[0].as_py()
    return f"{type_text(node.type)} '{text}'"
