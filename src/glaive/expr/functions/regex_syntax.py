r"""Translate regular expressions of the reference implementation to those of Arrow's engine.

Both engines run in linear time. Their syntax is the same except for the following, which are
translated

========================  ==============================================================
``\d \w \s``              match digits, letters and spaces of all scripts
``\u0041 \U00000041``     a character by its code
groups                    get names, so that each can be extracted
========================  ==============================================================

and the following, which are refused because Arrow's engine interprets them differently or does
not support them: set operations in classes (``&&``, ``--``, ``~~``, nested classes), flags
``x``, ``u`` and ``R``, word boundaries with braces or angles, octal escapes, ``\C``, ``\Q``,
and a brace that does not begin a repetition. ``\b`` and ``\B`` are refused on rows with
characters beyond ASCII, because Arrow's engine would treat only ASCII letters as letters.
"""

from __future__ import annotations

import re
from functools import lru_cache

from glaive.dataclass import dataclass
from glaive.errors import FilterError
from glaive.expr.functions.regex_reach import Reach
from glaive.expr.functions.regex_width import MAX_WIDTH, WIDE, Width

__all__ = ["MAX_LENGTH", "Pattern", "translate"]

_CLASSES = {
    "d": r"\p{Nd}",
    "w": r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}",
    "s": r"\x{09}-\x{0D}\x{20}\x{85}\p{Z}",
}
_REPETITION = re.compile(r"\{(\d+)(,(\d*))?\}")
_CODE = re.compile(r"u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[uUx]\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})")
_FLAGS = re.compile(r"\?([A-Za-z-]+)([:)])")
_NAMED = re.compile(r"\?P?<([A-Za-z_][A-Za-z0-9_.\[\]]*)>")
_PLAIN = frozenset(r"\.+*?()|[]{}^$#&-~/ " + "\"'!%,:;=@_`")


_WIDE = frozenset("wWpP")
"""Escapes of classes with hundreds of ranges."""

_HUNDREDS = re.compile(r"\\[pP](?!\{(?:Z|Nd)\})")
"""The same within a class; spaces and digits of all scripts are a few dozen ranges."""

MAX_LENGTH = 1 << 20
"""Characters of a pattern, each of which is read here; the engine compiles few patterns of more."""

_MEMBERS = 16
"""Characters of a class, as Arrow's engine gets it, that count as one place."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for Arrow's engine.

    Parameters
    ----------
    text
        The pattern.
    groups
        The pattern with a name for each group: ``g1``, ``g2``, …
    names
        The names of the groups in the original pattern, None for those without.
    bounded
        It has a word boundary, and so works for ASCII text only.
    width
        Places that the engine may have to follow at once.
    is_far
        The engine may read far beyond each match.
    """

    text: str
    groups: str
    names: tuple[str | None, ...]
    bounded: bool
    width: int
    is_far: bool


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0
        self.text: list[str] = []
        self.groups: list[str] = []
        self.names: list[str | None] = []
        self.bounded = False
        self.width = Width()
        self.reach = Reach()

    def refuse(self, problem: str) -> FilterError:
        return FilterError(
            f"regular expression {self.source!r:.100}: {problem}, at character {self.at + 1}; "
            "docs/guide/functions.md lists what is supported"
        )

    def put(self, text: str, taken: int, groups: str | None = None) -> None:
        self.text.append(text)
        self.groups.append(text if groups is None else groups)
        self.at += taken

    def read(self) -> None:
        while self.at < len(self.source):
            letter = self.source[self.at]
            if letter == "\\":
                self.escape(inside=False)
            elif letter == "[":
                self.klass()
            elif letter == "(":
                self.group()
            elif letter == "{":
                repetition = _REPETITION.match(self.source, self.at)
                if repetition is None:
                    raise self.refuse("a brace that does not begin a repetition; write \\{")
                self.width.repeat(int((repetition[3] or repetition[1])[:9]))
                endless = repetition[2] == ","
                most = int((repetition[3] or repetition[1])[:9])
                self.reach.repeat(int(repetition[1][:9]), None if endless else most)
                self.put(repetition[0], len(repetition[0]))
            else:
                self.mark(letter)
                self.put(letter, 1)

    def mark(self, letter: str) -> None:
        """Count a character outside of classes."""
        if letter in "*+?":
            self.width.repeat()
            self.reach.repeat(int(letter == "+"), 1 if letter == "?" else None)
        elif letter == "|":
            self.width.alternative()
            self.reach.alternative()
        elif letter == ")":
            self.width.end()
            self.reach.end()
        elif letter in ".^$":
            self.width.part()
            self.reach.part()
        else:
            self.width.letter(letter)
            self.reach.part()

    def escape(self, *, inside: bool) -> None:
        letter = self.source[self.at + 1 : self.at + 2]
        if not inside:
            self.count_escaped(letter)
        code = _CODE.match(self.source, self.at + 1)
        if code is not None:
            digits = next(part for part in code.groups() if part is not None)
            self.put(f"\\x{{{digits}}}", 1 + len(code[0]))
        elif letter.lower() in _CLASSES and letter:
            members = _CLASSES[letter.lower()]
            negated = letter.isupper()
            if inside and negated:
                if letter == "D":
                    self.put(r"\P{Nd}", 2)
                    return
                raise self.refuse(f"\\{letter} in a class")
            self.put(members if inside else f"[{'^' * negated}{members}]", 2)
        elif letter in ("b", "B") and not inside:
            if self.source[self.at + 2 : self.at + 3] == "{":
                raise self.refuse("a word boundary with braces")
            self.bounded = True
            self.put(f"\\{letter}", 2)
        elif letter in ("p", "P"):
            end = self.at + 3
            if self.source[self.at + 2 : self.at + 3] == "{":
                end = self.source.find("}", self.at) + 1 or len(self.source)
            self.put(self.source[self.at : end], end - self.at)
        elif letter in tuple("afnrtv") or (letter in ("A", "z") and not inside):
            self.put(f"\\{letter}", 2)
        elif letter and letter in _PLAIN:
            self.put(re.escape(letter) if letter.isascii() else letter, 2)
        else:
            raise self.refuse(f"the escape \\{letter}")

    def count_escaped(self, letter: str) -> None:
        self.reach.part()
        if letter and letter in _PLAIN:
            self.width.letter(letter)
        else:
            self.width.part(WIDE if letter in _WIDE else 1)

    def klass(self) -> None:
        start, before = self.at, len(self.text)
        negated = self.source[self.at + 1 : self.at + 2] == "^"
        self.put("[^" if negated else "[", 2 if negated else 1)
        first = True
        while True:
            letter = self.source[self.at : self.at + 1]
            pair = self.source[self.at : self.at + 2]
            if not letter:
                self.at = start
                raise self.refuse("a class that is not closed")
            if letter == "]" and not first:
                self.put("]", 1)
                # Its members are ranges of bytes, each of which is compared.
                members = "".join(self.text[before:])
                wide = WIDE if _HUNDREDS.search(members) else 1
                self.width.part(wide + len(members) // _MEMBERS)
                self.reach.part()
                return
            if letter == "[":
                self.named_class()
            elif pair in ("&&", "--", "~~"):
                raise self.refuse(f"the set operation {pair}")
            elif letter == "\\":
                self.escape(inside=True)
            else:
                self.put("\\]" if letter == "]" else letter, 1)
            first = False

    def named_class(self) -> None:
        end = self.source.find(":]", self.at)
        if self.source[self.at + 1 : self.at + 2] != ":" or end < 0:
            raise self.refuse("a class in a class")
        self.put(self.source[self.at : end + 2], end + 2 - self.at)

    def group(self) -> None:
        named = _NAMED.match(self.source, self.at + 1)
        flags = _FLAGS.match(self.source, self.at + 1)
        if flags is not None and set(flags[1]) - set("imsU-"):
            raise self.refuse(f"the flags {flags[1]}")
        if flags is None or flags[2] == ":":
            self.width.begin()
            self.reach.begin()
        if flags is not None:
            self.put(f"({flags[0]}", 1 + len(flags[0]))
        elif self.source.startswith("(?:", self.at):
            self.put("(?:", 3)
        elif named is not None or not self.source.startswith("(?", self.at):
            self.names.append(named[1] if named is not None else None)
            taken = 1 + (len(named[0]) if named is not None else 0)
            self.put("(", taken, f"(?P<g{len(self.names)}>")
        else:
            raise self.refuse("a group of an unknown kind")


@lru_cache(maxsize=256)
def translate(source: str, flags: str) -> Pattern:
    """Translate a pattern; ``flags`` are letters of ``imsU``.

    Raises
    ------
    FilterError
        The pattern is wrong, or Arrow's engine does not support it.
    """
    if len(source) > MAX_LENGTH:
        raise FilterError(
            f"regular expression {source[:100]!r:.100}: it has {len(source)} characters, at most "
            f"{MAX_LENGTH} are supported"
        )
    reader = _Reader(source)
    unknown = set(flags) - set("imsU")
    if unknown:
        raise reader.refuse(f"unknown or unsupported flags {''.join(sorted(unknown))!r}")
    reader.read()
    width = reader.width.total()
    if width > MAX_WIDTH:
        raise FilterError(
            f"regular expression {source!r:.100}: it has {width} places, at most {MAX_WIDTH} are "
            "supported, as each character of a text may be compared with all: characters and "
            "classes, as often as they may be repeated. A list of words that is not repeated, "
            "(?:one|two|three), may be long"
        )
    before = f"(?{flags})" if flags else ""
    return Pattern(
        before + "".join(reader.text),
        before + "".join(reader.groups),
        tuple(reader.names),
        reader.bounded,
        width,
        reader.reach.is_far(),
    )
