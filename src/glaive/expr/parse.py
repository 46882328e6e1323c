"""Parse the filter language: text to tree.

Operators have the precedences of the reference implementation; higher numbers bind tighter. The
right operand is read with the operator's precedence: equal operators group to the left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from glaive.errors import FilterError
from glaive.expr import tree
from glaive.expr.constant_list import read_list
from glaive.expr.cursor import Cursor, negated_number, number_of
from glaive.expr.intervals import read_interval
from glaive.expr.read_text import is_timestamp
from glaive.expr.tokens import Kind, Token
from glaive.expr.tree import MAX_ARGUMENTS, MAX_DEPTH, MAX_NODES, Node
from glaive.expr.vocabulary import (
    COMPARISONS,
    EQUAL,
    INSTEAD,
    IS,
    KEYWORDS,
    LIKE,
    NEGATABLE,
    NO_OPERAND,
    NOT,
    SIGNS,
    TIMES,
    WORDS,
)

__all__ = ["parse"]

_MICROSECONDS: Final = pa.timestamp("us")
_NANOSECONDS: Final = pa.timestamp("ns")


def parse(text: str) -> Node:
    """The tree of a text.

    Raises
    ------
    FilterError
        It is not in the language, too long (``MAX_TEXT``, ``MAX_NODES``) or nested too deeply
        (``MAX_DEPTH``); the message shows the position.
    """
    return _Parser(text).parse()


class _Parser(Cursor):
    """Parses one text."""

    def parse(self) -> Node:
        if self.is_end():
            raise self.wrong("the filter is empty")
        node = self.expression(0)
        while self.take(";"):
            pass
        if not self.is_end():
            advice = INSTEAD.get(self.token.upper or self.token.value)
            if advice is None and self._is_between_words():
                advice = "a name with spaces or signs is written in back-ticks, as `Order Date`"
            hint = f"; {advice}" if advice else ""
            raise self.wrong(f"expected an operator or the end, found {self.token_text()}{hint}")
        return node

    def _is_between_words(self) -> bool:
        """Whether this word comes after another, as in a name with spaces."""
        before = self.tokens[self.next - 1]
        return self.token.kind is before.kind is Kind.WORD

    def expression(self, tighter: int) -> Node:
        """An operand and all operators after it that bind tighter."""
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
            raise self.wrong(
                f"the filter has more than {MAX_NODES} names, constants and operations"
            )
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
                raise self.wrong(
                    f"expected AND after the lower bound of BETWEEN, found {self.token_text()}"
                )
            return tree.Between(left, low, self.expression(EQUAL), negated, at=at)
        return self.like(left, at, negated=negated, ignore_case=word == "ILIKE")

    def chain(
        self, word: str, join: Callable[..., Node], left: Node, at: int, binding: int
    ) -> Node:
        operands = [left, self.expression(binding)]
        while self.take_word(word):
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
        self.expect("(", "after IN")
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
        """Expressions between commas, up to the closing bracket."""
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
                return negated_number(node, token.at)
            return self.count(tree.Negative(node, at=token.at))
        if token.value == "+":
            return self.expression(TIMES)
        if token.value == "[":
            return self.count(tree.ListOf(self.items("]"), at=token.at))
        if token.value in {"?", ":", "$", "@"}:
            raise self.wrong("a filter has no parameters; put the value into the text", token.at)
        advice = "; NOT is written NOT" if token.value in {"!", "~"} else ""
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
        """The arguments of a call, up to the closing bracket."""
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
            raise self.wrong(f"{token.value}(*) is an aggregate, not a filter", at)
        call = tree.Call(token.value.lower(), self.arguments(), at=at)
        if self.token.upper in {"OVER", "FILTER"}:
            raise self.wrong(
                f"{token.value} is a window function or an aggregate, not a filter", at
            )
        return call

    def typed(self, token: Token) -> Node:
        """``date '2024-01-01'``, after the name of the type."""
        if token.upper == "INTERVAL":
            return self.interval(token.at)
        digits = self.is_sign("(")
        self.next -= 1
        kind = self.type()
        text = self.advance()
        if text.kind is not Kind.TEXT:
            raise self.wrong("expected a string after the type", text.at)
        if self.calls and not digits and kind == _MICROSECONDS:
            # The reference plans arguments of calls otherwise. A coarser constant would cut the
            # values of a column of nanoseconds in coalesce and its like.
            kind = _NANOSECONDS if is_timestamp(text.value, _NANOSECONDS) else kind
        return tree.Cast(tree.Literal(text.value, pa.string(), at=text.at), kind, at=token.at)

    def interval(self, at: int) -> Node:
        """``interval '2 days'``, ``interval '2' day``."""
        if not self.calls:
            raise self.wrong(
                "an interval can only be an argument of a function, such as "
                "date_bin(interval '1 hour', t); compare with a date or a timestamp",
                at,
            )
        text = self.advance().value
        if self.token.kind is Kind.WORD and text.strip().lstrip("+-").isdecimal():
            text = f"{text} {self.advance().value}"
        try:
            value = read_interval(text)
        except FilterError as error:
            raise self.wrong(str(error), at) from None
        return tree.Literal(value, value.type, at=at)
