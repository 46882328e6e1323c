"""Words that every text has that a regular expression matches.

Only what is certain is used: plain characters that stand one after the other outside of groups,
alternatives and repetitions. Of an expression with anything that is not known here, nothing is.

Specification: "NGRAM" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import re

__all__ = ["required_words"]

_PIECE = re.compile(
    r"""
    (?P<escaped>\\[^0-9A-Za-z<>])        # a plain character that has a meaning otherwise
  | (?P<class>\\[dDwWsSbBAz])           # a class of characters, or a place
  | (?P<any>[.^$])
  | (?P<set>\[\^?\]?[^\[\]\\]*\])
  | (?P<repeat>(?:[*?+]|\{\d+(?:,\d*)?\})+)
  | (?P<plain>[^\\.^$*+?{}\[\]()|])
    """,
    re.VERBOSE | re.DOTALL,
)


def required_words(pattern: str) -> list[str]:
    """Words that a text must have to be matched; none if that is not known."""
    words: list[str] = []
    word = ""
    at = 0
    while at < len(pattern):
        piece = _PIECE.match(pattern, at)
        if piece is None:
            return []
        at = piece.end()
        kind, text = piece.lastgroup, piece.group()
        if kind in ("plain", "escaped"):
            word += text[-1]
            continue
        if kind == "repeat":
            # The last character may be absent, or be followed by itself.
            words.append(word if text in {"+", "+?"} else word[:-1])
        else:
            words.append(word)
        word = ""
    return [one for one in [*words, word] if one]
