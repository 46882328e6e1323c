"""Read a filter token by token: signs, words and names of types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from glaive.errors import FilterError
from glaive.expr.source_position import failure
from glaive.expr.sqltypes import DECIMALS, SIMPLE, TIMED, sized
from glaive.expr.tokens import AHEAD, Kind, Token, Tokens
from glaive.expr.tree import Literal

__all__ = ["Cursor", "negated_number", "number_of"]


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
