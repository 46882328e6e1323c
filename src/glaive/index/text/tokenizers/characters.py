"""Sets of characters that are parts of tokens.

Specification: "Tokenizers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Final

import numpy as np

from glaive.arrow.letters import alphanumeric_ranges
from glaive.kernels.token_bounds import CHARACTERS, character_set
from glaive.types import Int64s, UInt8s

__all__ = ["all_characters", "alphanumeric", "alphanumeric_and", "is_alphanumeric", "not_space"]

_SPACES: Final = b"\t\n\f\r "


@cache
def alphanumeric() -> UInt8s:
    """Letters, numbers and vowel signs, as a bitmap."""
    return _frozen(alphanumeric_ranges())


@cache
def alphanumeric_and(more: str) -> UInt8s:
    """The same and some characters of ASCII, as a bitmap."""
    single = np.array([(ord(character), ord(character) + 1) for character in more], np.int64)
    characters: UInt8s = alphanumeric() | character_set(single)
    characters.flags.writeable = False
    return characters


@cache
def all_characters() -> UInt8s:
    """All characters, as a bitmap."""
    return _frozen(np.array([(0, CHARACTERS)], np.int64))


def is_alphanumeric(character: str) -> bool:
    """Whether a character is one of :func:`alphanumeric`."""
    number = ord(character)
    return bool(alphanumeric()[number >> 3] >> (number & 7) & 1)


@cache
def not_space() -> UInt8s:
    """All characters but the white space of ASCII, as a bitmap."""
    bounds = [-1, *sorted(_SPACES), CHARACTERS]
    ranges = [(before + 1, after) for before, after in pairwise(bounds)]
    return _frozen(np.array(ranges, np.int64))


def _frozen(ranges: Int64s) -> UInt8s:
    characters = character_set(ranges)
    characters.flags.writeable = False
    return characters
