"""Read a filter as text: tokens, signs and words with their positions in the source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Any

import pyarrow as pa

from glaive.dataclass import NamedTuple
from glaive.errors import FilterError
from glaive.expr.coerce import DECIMALS, SIMPLE, TIMED, sized
from glaive.expr.constants import LONG_LIST
from glaive.expr.tree import MAX_JOINED, MAX_TEXT, Literal

# --- Errors that show a position in the source text -------------------------------------

_BEFORE, _AFTER = 50, 30
"""Characters displayed around the position."""


def failure(problem: str, text: str, at: int) -> FilterError:
    """An error with the problem and its position in the text, if that is known."""
    return FilterError(f"{problem}{position_text(text, at)}")


def position_text(text: str, at: int) -> str:
    """Line and column, the line and a caret below the position; empty without a text."""
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
    position = f"column {at - start + 1}" if "\n" not in text else f"line {line}, {at - start + 1}"
    excerpt = "".join(c if c.isprintable() else " " for c in left + right)
    return f" ({position})\n  {excerpt}\n  {' ' * len(left)}^"


def close_names(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'a', 'b'?``, or an empty string."""
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
    """``value``: the name, the contents of a string without quotes, the digits, the sign.

    A long list of constants in the brackets of ``IN (…)`` is one token.
    """

    kind: Kind
    value: str
    at: int
    end: int

    @property
    def upper(self) -> str:
        """A word in upper case; empty for other tokens, quoted names included."""
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


_JOINED = re.compile(
    r"""(?:'[^']*+')++|(?:"[^"]*+")++|(?:`[^`]*+`)++|--[^\n]*+"""
    r"""|(?P<comment>/\*)|\b(?P<word>and|or)\b""",
    re.IGNORECASE,
)
"""What joins tests, and what may contain such words without joining any."""

_SHORTEST = len("a or")

AHEAD = 64
"""Tokens after the current one that a parser may look at."""

_AT_A_TIME = 1024


class Tokens:
    """The tokens of a text, split off some at a time.

    So a text that is refused early costs no more than what was read of it. ``found`` are those
    split off so far; the last of all is the end. Until ``more`` is called, the parser may go on to
    number ``limit``.

    Raises
    ------
    FilterError
        The text is too long, or has characters that are not part of a token.
    """

    __slots__ = ("_at", "_text", "found", "limit")

    def __init__(self, text: str) -> None:
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
            # The text is not shown: it cannot be written to a terminal or a log either.
            raise failure(
                f"character {error.start + 1} of the filter, {text[error.start]!a}, is half of a "
                "pair of UTF-16 and no character",
                "",
                -1,
            ) from None
        _check_joined(text)
        self._text, self._at = text, 0
        self.found: list[Token] = []
        self.limit = 0
        self.more()

    def more(self) -> None:
        """Split off some more; without effect after the end."""
        text, at, tokens = self._text, self._at, self.found
        full = len(tokens) + _AT_A_TIME
        while at < len(text) and len(tokens) < full:
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
            at = end
        self._at, self.limit = at, len(tokens) - AHEAD
        if at == len(text):
            if not tokens or tokens[-1].kind is not Kind.END:
                tokens.append(Token(Kind.END, "", at, at))
            self.limit = len(tokens)


def _check_joined(text: str) -> None:
    """Refuse a text that joins too many tests before any of it is parsed."""
    if len(text) < _SHORTEST * MAX_JOINED:
        return
    joined = 0
    for match in _JOINED.finditer(text):
        joined += match.lastgroup == "word"
        if joined > MAX_JOINED:
            raise failure(
                f"the filter has more than {MAX_JOINED} words AND and OR: compare with a list "
                "(IN), or join with a table of the values instead",
                text,
                match.start(),
            )
        if match.lastgroup == "comment":  # what follows is counted while it is parsed
            return


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
    names = {"'": "text", '"': "text", "`": "name"}
    if character in names:
        return f"a {names[character]} is not closed: {character} is missing at its end"
    return f"{character!r} has no meaning in a filter"


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


class Cursor:
    """A text and a position in it.

    ``depth`` is the current nesting depth, ``calls`` the number of function calls around the
    position, ``nodes`` the number of nodes made so far.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._source = Tokens(text)
        self.tokens = self._source.found
        self.next = 0
        self.depth = 0
        self.nodes = 0
        self.calls = 0

    @property
    def token(self) -> Token:
        """The current token."""
        return self.tokens[self.next]

    def is_end(self) -> bool:
        """Whether this is the end of the text."""
        return self.tokens[self.next].kind is Kind.END

    def advance(self) -> Token:
        """Return the current token and go to the next."""
        token = self.tokens[self.next]
        if token.kind is not Kind.END:
            self._skip(1)
        return token

    def _skip(self, count: int) -> None:
        self.next += count
        if self.next >= self._source.limit:
            self._source.more()

    def is_sign(self, sign: str) -> bool:
        """Whether the current token is this sign."""
        token = self.tokens[self.next]
        return token.kind is Kind.SIGN and token.value == sign

    def take(self, sign: str) -> bool:
        """Go past this sign if it is the current token; returns whether it was."""
        present = self.is_sign(sign)
        if present:
            self._skip(1)
        return present

    def expect(self, sign: str, after: str) -> None:
        """Go past this sign, which must be the current token."""
        if not self.take(sign):
            raise self.wrong(f"expected {sign!r} {after}, found {self.token_text()}")

    def take_word(self, *words: str) -> bool:
        """Go past these words (in upper case) if they follow; returns whether they did."""
        present = all(
            self.tokens[min(self.next + i, len(self.tokens) - 1)].upper == word
            for i, word in enumerate(words)
        )
        if present:
            self._skip(len(words))
        return present

    def token_text(self) -> str:
        """The current token, for errors."""
        token = self.token
        is_end = token.kind is Kind.END
        return str(token.kind.value) if is_end else repr(self.text[token.at : token.end][:40])

    def wrong(self, problem: str, at: int | None = None) -> FilterError:
        """An error at the current token, or at ``at``."""
        return failure(problem, self.text, self.token.at if at is None else at)

    def is_typed_literal(self) -> bool:
        """Whether ``(digits) 'text'`` follows."""
        at = self.next + 1
        last = min(self.next + AHEAD, len(self.tokens)) - 2
        while at < last and (
            self.tokens[at].kind is Kind.NUMBER or self.tokens[at].value in {",", "-"}
        ):
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


def number_of(token: Token) -> Literal:
    """The constant of a number token."""
    digits = token.value
    if digits.isdecimal():
        # No 64-bit integer has more than 20 digits, and int() is slow for many digits.
        value = int(digits) if len(digits.lstrip("0")) <= 20 else 1 << 64
        if value < 1 << 64:
            kind = pa.int64() if value < 1 << 63 else pa.uint64()
            return Literal(value, kind, at=token.at)
    return Literal(float(digits), pa.float64(), at=token.at)


def negated_number(literal: Literal, at: int) -> Literal:
    """The number with a minus before it, which is at ``at``."""
    value = -literal.value
    if not isinstance(value, int):
        return Literal(value, literal.type, at=at)
    if value >= -(1 << 63):
        return Literal(value, pa.int64(), at=at)
    return Literal(float(value), pa.float64(), at=at)
