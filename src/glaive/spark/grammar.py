"""Patterns of SQL statements, matched against the words of a text.

Spark evaluates conditions and values exactly as the user wrote them, so patterns cut slices out of
the text instead of building a tree. sqlglot's tokenizer reads the words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

from glaive.dataclass import dataclass
from glaive.errors import MissingDependencyError, OptionError

try:
    from sqlglot import tokenize
    from sqlglot.errors import SqlglotError
except ImportError as error:
    raise MissingDependencyError(
        f'glaive.spark.sql needs sqlglot ({error}). Install it: pip install "glaive[spark]"'
    ) from error

# --- Words of a text --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Word:
    """A word, name, literal or sign.

    Parameters
    ----------
    text
        The word; without quotes if it had some.
    start, stop
        Where it is in the statement.
    kind
        Names in backticks are of kind ``name``.
    """

    text: str
    start: int
    stop: int
    kind: Literal["word", "name", "string", "number", "sign"]


_KINDS: Final[dict[str, Literal["name", "string", "number"]]] = {
    "IDENTIFIER": "name",
    "STRING": "string",
    "RAW_STRING": "string",
    "NUMBER": "number",
}

_OPENING: Final = {"(": ")", "[": "]", "{": "}"}


def words_of(text: str) -> list[Word]:
    """Return the words of a statement, without a semicolon at its end.

    Raises
    ------
    OptionError
        A quote or a comment lacks its end.
    """
    found: list[Word] = []
    # The tokenizer takes all after a first word such as OPTIMIZE for a string.
    try:
        tokens = tokenize("(" + text, dialect="databricks")[1:]
    except SqlglotError as error:
        raise OptionError(f"query: {error}. Check its quotes and comments") from error
    for token in tokens:
        start, stop = token.start - 1, token.end
        kind = _KINDS.get(token.token_type.name)
        last = found[-1] if found else None
        if kind == "string" and last is not None and (last.kind, last.stop) == (kind, start):
            # Spark reads two quotes within a string as one.
            both = last.text + text[start] + token.text
            found[-1] = Word(both, last.start, stop, kind)
        elif kind is not None:
            found.append(Word(token.text, start, stop, kind))
        else:
            found += _parts(text, start, stop)
    while found and (found[-1].text, found[-1].kind) == (";", "sign"):
        found.pop()
    return found


def split_statements(text: str) -> list[str]:
    """Return the statements of a text with their semicolons, and the rest after the last one.

    Raises
    ------
    OptionError
        A quote or a comment lacks its end.
    """
    found: list[str] = []
    while True:
        words = words_of(text + "\n_")  # a last word keeps the semicolons at the end
        stop = next((word.stop for word in words if (word.text, word.kind) == (";", "sign")), None)
        if stop is None:
            return [*found, text]
        found.append(text[:stop])
        text = text[stop:]


def _parts(text: str, start: int, stop: int) -> Iterator[Word]:
    """Yield the words of a phrase such as ``ORDER BY``, which the tokenizer takes for one."""
    for part in re.finditer(r"\S+", text[start:stop]):
        kind: Literal["word", "sign"] = "word" if re.fullmatch(r"\w+", part[0]) else "sign"
        yield Word(part[0], start + part.start(), start + part.end(), kind)


@dataclass(frozen=True, slots=True)
class Words:
    """A statement and its words.

    Parameters
    ----------
    text
        The statement.
    words
        Its words.
    after
        For each word the position after it; for an opening bracket or ``CASE`` after its end.
    """

    text: str
    words: list[Word]
    after: list[int]

    @classmethod
    def of(cls, text: str) -> Words:
        """Read a statement."""
        words = words_of(text)
        after, opened = list(range(1, len(words) + 1)), list[int]()
        for at, word in enumerate(words):
            if word.kind not in ("word", "sign"):
                continue
            sign = word.text.upper()
            if sign in _OPENING or sign == "CASE":
                opened.append(at)
            elif opened and sign == _OPENING.get(words[opened[-1]].text, "END"):
                after[opened.pop()] = at + 1
        return cls(text, words, after)

    def is_word(self, at: int, *texts: str) -> bool:
        """Return whether one of some keywords or signs is at a position."""
        if at >= len(self.words) or self.words[at].kind not in ("word", "sign"):
            return False
        return self.words[at].text.upper() in texts

    def slice(self, at: int, stop: int) -> str:
        """Return the text from one position to another."""
        return "" if at >= stop else self.text[self.words[at].start : self.words[stop - 1].stop]

    def spans(self, at: int, stop: int, *, types: bool = False) -> list[tuple[int, int]]:
        """Return the spans between commas outside of brackets; ``types``: and of ``map<…>``."""
        cuts, index, angles = [at], at, 0
        while index < stop:
            word = self.words[index]
            if word.kind == "sign":
                angles += types * (word.text.count("<") - word.text.count(">"))
                if word.text == "," and angles <= 0:
                    cuts.append(index + 1)
            index = self.after[index]
        spans = zip(cuts, [*cuts[1:], stop + 1], strict=True)
        return [(start, end - 1) for start, end in spans] if at < stop else []


# --- Slots of patterns ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Version:
    """A version by number, name or time, as an expression of Spark."""

    kind: Literal["VERSION", "TIMESTAMP"]
    value: str


@dataclass(frozen=True, slots=True)
class Table:
    """The name of a table in a statement.

    Parameters
    ----------
    parts
        Its names.
    version
        The version after it, also as ``orders@v3``.
    """

    parts: tuple[str, ...]
    version: Version | None = None


_RESERVED = """
AS BY CLUSTER COMMENT FOR FROM LIMIT ON OPTIONS REPLACE SELECT SET TBLPROPERTIES TIMESTAMP TO USING
VALUES VERSION WHEN WHERE WITH
"""
RESERVED: Final = frozenset(_RESERVED.split())
"""Words that cannot be an alias."""

_QUERY: Final = ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "(")

_KINDS_OF_VERSIONS: Final[dict[str, Literal["VERSION", "TIMESTAMP"]]] = {
    "VERSION": "VERSION",
    "SYSTEM_VERSION": "VERSION",
    "TIMESTAMP": "TIMESTAMP",
    "SYSTEM_TIME": "TIMESTAMP",
}

Ends = Iterator[tuple[int, Any]]


def version_after(words: Words, at: int) -> tuple[int, Version | None]:
    """Return the version at a position, and the position after it."""
    if words.is_word(at, "@") and at + 1 < len(words.words):
        name = words.words[at + 1].text
        return at + 2, _version(name)
    index = at + words.is_word(at, "FOR")
    if not (words.is_word(index, *_KINDS_OF_VERSIONS) and words.is_word(index + 1, "AS")):
        return at, None
    kind = _KINDS_OF_VERSIONS[words.words[index].text.upper()]
    index += 1 + 2 * words.is_word(index + 2, "OF")
    stop = _value_end(words, index)
    return (at, None) if stop == index else (stop, Version(kind, words.slice(index, stop)))


def with_versions(query: str) -> str:
    """Return a query with ``AS OF`` instead of ``@v3`` after names, which sqlglot cannot read."""
    if "@" not in query:
        return query
    words, pieces, done = words_of(query), list[str](), 0
    for at, word in enumerate(words):
        if at and word.text == "@" and words[at - 1].stop == word.start and at + 1 < len(words):
            cut, stop, version = word.start, words[at + 1].stop, _version(words[at + 1].text)
        elif word.kind == "name" and (named := _AT.fullmatch(word.text)):
            cut, stop, version = word.start, word.stop, _version(named[2])
        else:
            continue
        pieces.append(query[done:cut])
        pieces.append("" if word.kind != "name" else f"`{word.text.rpartition('@')[0]}`")
        pieces.append(f" {version.kind} AS OF {version.value}")
        done = stop
    return "".join([*pieces, query[done:]])


_AT: Final = re.compile(r"(.+)@(v\d+|\d{17})")
"""A path with a version after it."""


def _version(name: str) -> Version:
    """Return the version that a name after ``@`` means: ``v3``, 17 digits of a time, or a ref."""
    if re.fullmatch(r"v\d+", name):
        return Version("VERSION", name[1:])
    if re.fullmatch(r"\d{17}", name):
        return Version("TIMESTAMP", f"to_timestamp('{name}', 'yyyyMMddHHmmssSSS')")
    quoted = name.replace("'", "\\'")
    return Version("VERSION", f"'{quoted}'")


def _value_end(words: Words, at: int) -> int:
    """Return the position after a literal or a call, and intervals added to it."""
    if at >= len(words.words):
        return at
    stop = at + 1
    if words.words[at].kind == "word" and stop < len(words.words):
        if words.is_word(stop, "("):
            stop = words.after[stop]
        elif words.words[stop].kind == "string":  # TIMESTAMP '…'
            stop += 1
    elif words.is_word(at, "("):
        stop = words.after[at]
    while words.is_word(stop, "+", "-") and words.is_word(stop + 1, "INTERVAL"):
        units = stop + 3 < len(words.words) and words.words[stop + 3].kind == "word"
        unit = units and words.words[stop + 3].text.upper().rstrip("S") in _UNITS
        stop += 3 + unit
    return min(stop, len(words.words))


_UNITS = ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")


def _table(words: Words, at: int) -> Ends:
    parts, index = [], at
    while index < len(words.words) and words.words[index].kind in ("word", "name"):
        parts.append(words.words[index].text)
        index += 1
        if not words.is_word(index, "."):
            break
        index += 1
    if not parts:
        return
    stop, version = version_after(words, index)
    if version is None and (named := _AT.fullmatch(parts[-1])):
        parts[-1], version = named[1], _version(named[2])
    yield stop, Table(tuple(parts), version)


def _as_of(words: Words, at: int) -> Ends:
    stop, version = version_after(words, at)
    if version is not None:
        yield stop, version


def _name(words: Words, at: int) -> Ends:
    if at < len(words.words) and words.words[at].kind in ("word", "name"):
        yield at + 1, words.words[at].text


def _alias(words: Words, at: int) -> Ends:
    return iter(()) if words.is_word(at, *RESERVED) else _name(words, at)


def _path(words: Words, at: int) -> Ends:
    """Yield a column or the path of a member: ``s.x``."""
    for first, name in _name(words, at):
        path, stop = [name], first
        while words.is_word(stop, ".") and stop + 1 < len(words.words):
            path.append(words.words[stop + 1].text)
            stop += 2
        yield stop, ".".join(path)


def _text(words: Words, at: int) -> Ends:
    """Yield the texts from a position, the shortest first."""
    stop = at
    while stop < len(words.words) and not words.is_word(stop, ")"):
        stop = words.after[stop]
        if not (words.is_word(stop - 1, ".") or words.is_word(stop, ".")):
            yield stop, words.slice(at, stop)


def _bracketed(words: Words, at: int) -> Ends:
    if words.is_word(at, "("):
        yield words.after[at], words.slice(at + 1, words.after[at] - 1)


def _assignments(words: Words, at: int) -> Ends:
    for stop, _ in _text(words, at):
        if stop < len(words.words) and not words.is_word(stop, "WHERE"):
            continue
        found = {}
        for start, end in words.spans(at, stop):
            cut = next((n for n in range(start, end) if words.is_word(n, "=")), start)
            found[words.slice(start, cut)] = words.slice(cut + 1, end)
        if all(found) and all(found.values()):
            yield stop, found


def _list(words: Words, at: int, *, types: bool = False) -> Ends:
    if words.is_word(at, "(") and words.is_word(words.after[at] - 1, ")"):
        stop = words.after[at]
        yield stop, [words.slice(*span) for span in words.spans(at + 1, stop - 1, types=types)]


def _definitions(words: Words, at: int) -> Ends:
    return _list(words, at, types=True)


def _unbracketed(words: Words, at: int) -> Ends:
    stop = len(words.words)
    yield stop, [words.slice(*span) for span in words.spans(at, stop, types=True)]


def _names(words: Words, at: int) -> Ends:
    for stop, texts in _list(words, at):
        found = [matched("{column}", Words.of(text)) for text in texts]
        if found and None not in found:
            yield stop, [one["column"] for one in found if one is not None]


def _literal(words: Words, at: int) -> Ends:
    if at < len(words.words) and words.words[at].kind in ("string", "number"):
        yield at + 1, words.words[at].text


def _integer(words: Words, at: int) -> Ends:
    minus = words.is_word(at, "-")
    for stop, text in _literal(words, at + minus):
        if text.isdecimal():
            yield stop, -int(text) if minus else int(text)


def _sequence(words: Words, at: int) -> Ends:
    """Yield the options of an identity column: ``(START WITH 10 INCREMENT BY 5)``."""
    for stop, text in _bracketed(words, at):
        found = matched("(START [WITH] {start}|INCREMENT [BY] {step})*", Words.of(text))
        if found is not None:
            yield stop, {key: found[key] for key in ("start", "step") if key in found}


def _properties(words: Words, at: int) -> Ends:
    """Yield strings by key: ``('a' = '1', b = 2, c '3')``; empty for keys without a value."""
    for stop, texts in _list(words, at):
        found = {}
        for text in texts:
            one = Words.of(text).words
            last = len(one) - (len(one) > 1 and one[-1].kind == "string")
            cut = next((n for n, word in enumerate(one) if word.text == "="), last)
            value = one[cut:] if cut == last else one[cut + 1 :]
            found["".join(word.text for word in one[:cut])] = "".join(word.text for word in value)
        yield stop, found


def _query(words: Words, at: int) -> Ends:
    end = len(words.words)
    inner = at + 1 if words.is_word(at, "(") else at
    if words.is_word(inner, *_QUERY):
        yield end, words.slice(at, end)


def _clauses(words: Words, at: int) -> Ends:
    """Yield the clauses of a merge, each as the words from ``WHEN`` on."""
    if not words.is_word(at, "WHEN"):
        return
    starts, index = [], at
    while index < len(words.words):
        if words.is_word(index, "WHEN"):
            starts.append(index)
        index = words.after[index]
    ends = [*starts[1:], len(words.words)]
    yield len(words.words), [words.slice(*span) for span in zip(starts, ends, strict=True)]


_SLOTS: Final[Mapping[str, Callable[[Words, int], Ends]]] = {
    "alias": _alias,
    "source_alias": _alias,
    "name": _name,
    "new": _name,
    "kind": _name,
    "catalogue": _table,
    "table": _table,
    "origin": _table,
    "target": _table,
    "column": _path,
    "columns": _names,
    "keys": _names,
    "definitions": _definitions,
    "values": _list,
    "arguments": _list,
    "definition": _unbracketed,
    "condition": _text,
    "source": _text,
    "type": _text,
    "expression": _text,
    "default": _text,
    "generated": _bracketed,
    "sequence": _sequence,
    "start": _integer,
    "step": _integer,
    "check": _bracketed,
    "assignments": _assignments,
    "query": _query,
    "version": _as_of,
    "clauses": _clauses,
    "properties": _properties,
    "options": _properties,
    "number": _literal,
    "text": _literal,
    "pattern": _literal,
}

# --- Patterns ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slot:
    """A part of a pattern that the statement fills: ``{table}``."""

    name: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A part of a pattern with several forms: ``[AS]``, ``(INTO|OVERWRITE)``.

    With ``*`` after it, any number of its forms follow each other.
    """

    forms: tuple[tuple[Any, ...], ...]
    repeats: bool = False


@lru_cache(maxsize=256)
def compiled(pattern: str) -> tuple[Any, ...]:
    """Return the parts of a pattern: keywords, slots and choices."""
    parts = re.findall(r"\{\w+\}|\)\*|[\[\]()|.]|[^\s\[\](){}|.]+", pattern)
    forms, at = _compiled(parts, 0)
    if at < len(parts) or len(forms) > 1:
        raise AssertionError(pattern)
    return forms[0]


def _compiled(parts: Sequence[str], at: int) -> tuple[list[tuple[Any, ...]], int]:
    forms: list[tuple[Any, ...]] = [()]
    while at < len(parts) and parts[at] not in ("]", ")", ")*"):
        part = parts[at]
        if part == "|":
            forms.append(())
        elif part in ("[", "("):
            inner, at = _compiled(parts, at + 1)
            optional = parts[at] in ("]", ")*")
            forms[-1] += (Choice((*inner, ()) if optional else tuple(inner), parts[at] == ")*"),)
        else:
            forms[-1] += (Slot(part[1:-1]) if part[0] == "{" else part.upper(),)
        at += 1
    return forms, at


def matched(pattern: str, words: Words) -> dict[str, Any] | None:
    """Return the values of the slots and the keywords of a statement; ``None`` if it differs.

    Keywords in the result are ``True``.
    """
    for stop, found in _matches(compiled(pattern), words, 0):
        if stop == len(words.words):
            return found
    return None


def _matches(parts: tuple[Any, ...], words: Words, at: int) -> Iterator[tuple[int, dict[str, Any]]]:
    if not parts:
        yield at, {}
        return
    first, rest = parts[0], parts[1:]
    if isinstance(first, Choice):
        for form in first.forms:
            again = (first,) if first.repeats and form else ()
            yield from _matches(form + again + rest, words, at)
    elif isinstance(first, Slot):
        for stop, value in _SLOTS[first.name](words, at):
            for end, others in _matches(rest, words, stop):
                yield end, {first.name: value} | others
    elif words.is_word(at, first):
        for end, others in _matches(rest, words, at + 1):
            yield end, {first: True} | others


def keywords(pattern: str) -> list[str]:
    """Return the words in capitals of a pattern."""
    return re.findall(r"(?<!\{)\b[A-Z_]+\b", pattern)


# --- The table of statements ------------------------------------------------------------

Found = Mapping[str, Any]
"""The slots and keywords of a statement."""

Run = Callable[[Any, Found], Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """A form of statements.

    Parameters
    ----------
    form
        The statement: keywords in capitals, optional parts in ``[]``, alternatives in ``()``.
    method
        What runs it: a method of ``LanceTable``, or another public function.
    run
        The function that calls it, given the tables and the slots of the form.
    """

    form: str
    method: str
    run: Run


STATEMENTS: Final[list[Statement]] = []
"""All statements except queries, in the order of :func:`runs`."""


def runs(*forms: str, by: str) -> Callable[[Run], Run]:
    """Add a function to :data:`STATEMENTS`.

    Parameters
    ----------
    by
        The method that the function calls.
    """

    def add(run: Run) -> Run:
        STATEMENTS.extend(Statement(form, by, run) for form in forms)
        return run

    return add
