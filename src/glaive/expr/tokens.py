"""Split filter text into tokens."""

from __future__ import annotations

import re
from enum import Enum

from glaive.expr.constant_list import LONG_LIST
from glaive.expr.source_position import failure
from glaive.expr.tree import MAX_JOINED, MAX_TEXT
from glaive.named_tuple import NamedTuple

__all__ = ["AHEAD", "Kind", "Token", "Tokens"]


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
