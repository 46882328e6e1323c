"""Capital and small letters, one by one, as of Unicode 17.

Python's own tables may be of an older version, and ``str.lower`` looks at neighbours.

Specification: "Filters" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import Final

__all__ = ["is_capital", "is_small", "lower_case"]

_LATER: Final = {
    0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7CC: 0xA7CD, 0xA7CE: 0xA7CF, 0xA7D2: 0xA7D3,
    0xA7D4: 0xA7D5, 0xA7DA: 0xA7DB, 0xA7DC: 0x19B,
    **{capital: capital + 0x20 for capital in range(0x10D50, 0x10D66)},
    **{capital: capital + 0x1B for capital in range(0x16EA0, 0x16EB9)},
}  # fmt: skip
"""Small letters of capitals of Unicode 15 to 17."""

_LOWER: Final = {ord("\N{GREEK CAPITAL LETTER SIGMA}"): 0x3C3, **_LATER}

_LATER_SMALL: Final = frozenset(
    chain(
        _LATER.values(), (0x10FC, 0xAB69), range(0xA7F1, 0xA7F5), range(0x1DF25, 0x1DF2B),
        range(0x1E030, 0x1E06E),
    )
)  # fmt: skip
_NO_LONGER_SMALL: Final = 0x295


def lower_case(token: str) -> str:
    """The token in small letters, each letter by itself."""
    return token.lower() if token.isascii() else token.translate(_LOWER).lower()


@cache
def is_capital(character: str) -> bool:
    """Whether a character has the property Uppercase."""
    return character.isupper() or ord(character) in _LATER


@cache
def is_small(character: str) -> bool:
    """Whether a character has the property Lowercase."""
    number = ord(character)
    return number != _NO_LONGER_SMALL and (character.islower() or number in _LATER_SMALL)
