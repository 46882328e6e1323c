"""Reading a filter token by token: signs, words and names of types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from glaive.errors import FilterError
from glaive.expr.source_position import failure
from glaive.expr.sqltypes import DECIMALS, SIMPLE, TIMED, sized
from glaive.expr.tokens import Kind, Token, tokenize
from glaive.expr.tree import Literal

__all__ = ["Cursor", "negated_number", "number_of"]


class Cursor:
    """A text and a place in it.

    ``depth`` is how deep the reader is, ``calls`` how many of these are calls of functions,
    ``nodes`` what it made.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.next = 0
        self.depth = 0
        self.nodes = 0
        self.calls = 0

    # ----------------------------------------------------------------- tokens

    @property
    def token(self) -> Token:
        """The token at this place."""
        return self.tokens[self.next]

    def is_end(self) -> bool:
        """Whether nothing is left."""
        return self.tokens[self.next].kind is Kind.END

    def advance(self) -> Token:
        """The token at this place; go past it."""
        token = self.tokens[self.next]
        if token.kind is not Kind.END:
            self.next += 1
        return token

    def is_sign(self, sign: str) -> bool:
        """Whether a sign stands here."""
        token = self.tokens[self.next]
        return token.kind is Kind.SIGN and token.value == sign

    def take(self, sign: str) -> bool:
        """Go past a sign, if it stands here."""
        found = self.is_sign(sign)
        self.next += found
        return found

    def expect(self, sign: str, after: str) -> None:
        """Go past a sign that must stand here."""
        if not self.take(sign):
            raise self.wrong(f"expected {sign!r} {after}, found {self.found()}")

    def take_word(self, *words: str) -> bool:
        """Go past words, in upper case, if they stand here."""
        found = all(
            self.tokens[min(self.next + i, len(self.tokens) - 1)].upper == word
            for i, word in enumerate(words)
        )
        self.next += len(words) if found else 0
        return found

    def found(self) -> str:
        """What stands here, for errors."""
        token = self.token
        return (
            token.kind.value
            if token.kind is Kind.END
            else repr(self.text[token.at : token.end][:40])
        )

    def wrong(self, what: str, at: int | None = None) -> FilterError:
        """An error about this place, or another."""
        return failure(what, self.text, self.token.at if at is None else at)

    def is_typed_literal(self) -> bool:
        """Whether ``(digits) 'text'`` follows."""
        at = self.next + 1
        while self.tokens[at].kind is Kind.NUMBER or self.tokens[at].value == ",":
            at += 1
        return self.tokens[at].value == ")" and self.tokens[at + 1].kind is Kind.TEXT

    # -------------------------------------------------------------------- types

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
        """Read what stands in brackets after the name of a type."""
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
        found = sized(name, tuple(sizes))
        if isinstance(found, str):
            raise self.wrong(found, token.at)
        if self.take_word("WITH") or self.take_word("AT"):
            raise self.wrong("a timestamp with a time zone cannot be written; leave the zone out")
        return found


def number_of(token: Token) -> Literal:
    """The constant that a number stands for."""
    digits = token.value
    if digits.isdecimal():
        # Beyond 20 digits no 64-bit number is left, and int() takes its time.
        value = int(digits) if len(digits.lstrip("0")) <= 20 else 1 << 64
        if value < 1 << 64:
            kind = pa.int64() if value < 1 << 63 else pa.uint64()
            return Literal(value, kind, at=token.at)
    return Literal(float(digits), pa.float64(), at=token.at)


def negated_number(literal: Literal, at: int) -> Literal:
    """The number with a minus before it, which stands at ``at``."""
    value = -literal.value
    if not isinstance(value, int):
        return Literal(value, literal.type, at=at)
    if value >= -(1 << 63):
        return Literal(value, pa.int64(), at=at)
    return Literal(float(value), pa.float64(), at=at)
