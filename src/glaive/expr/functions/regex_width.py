"""How many places of a regular expression its engine may have to follow at once.

The engine of Arrow takes linear time: by the text, but also by the pattern. Where a table of its
states gets too large, each character of the text is compared with every place of the pattern that
may be reached there, and that is up to all of them. So the places are counted while a pattern is
read:

- a character, a class or an anchor is one; a class of letters of all scripts, which is hundreds of
  ranges of bytes, counts as several;
- repetitions count as often as they may be repeated;
- a list of words (``one|two|three``) follows few of them at once, however many there are: of the
  largest such list, which must not be repeated, only the longest word and the first letters count.
"""

from __future__ import annotations

from dataclasses import field

from glaive.dataclass import dataclass

__all__ = ["MAX_GROUPED_WIDTH", "MAX_WIDTH", "WIDE", "Width"]

MAX_WIDTH = 3_000
"""Places of a pattern: tens of microseconds for each byte of text, where all are followed."""

MAX_GROUPED_WIDTH = 50_000
"""Places times groups, where the places of groups are asked for: each place has those of all."""

WIDE = 10
"""Places that a class of letters or words counts as."""


@dataclass(slots=True)
class _Level:
    """What was read of a group: of its alternatives before, and of the current one.

    Parameters
    ----------
    places
        Of all alternatives before.
    saved
        The most that a list of words within saves.
    current, last
        Places of the current alternative, and of its last part, which a repetition repeats.
    words
        Whether all that was read is letters and ``|``.
    longest, firsts
        Letters of the longest word, and the first letters.
    """

    places: int = 0
    saved: int = 0
    current: int = 0
    last: int = 0
    last_saved: int = 0
    words: bool = True
    longest: int = 0
    firsts: set[str] = field(default_factory=set)

    def next_alternative(self) -> None:
        self.places += self.current
        self.longest = max(self.longest, self.current)
        self.current = self.last = self.last_saved = 0

    def result(self) -> tuple[int, int]:
        """Places, and how many of them a list of words saves."""
        self.next_alternative()
        saved = self.places - self.longest - len(self.firsts) if self.words else 0
        return self.places, max(self.saved, saved)


class Width:
    """Counts the places of a pattern while it is read from the left."""

    def __init__(self) -> None:
        self._levels = [_Level()]

    def letter(self, letter: str) -> None:
        """Count a character that stands for itself."""
        level = self._levels[-1]
        if not level.current:
            level.firsts.add(letter)
        level.current += 1
        level.last, level.last_saved = 1, 0

    def part(self, places: int = 1) -> None:
        """Count a class, an anchor or anything else that is no letter."""
        level = self._levels[-1]
        level.words = False
        level.current += places
        level.last, level.last_saved = places, 0

    def alternative(self) -> None:
        """Go on with the next alternative."""
        self._levels[-1].next_alternative()

    def begin(self) -> None:
        """A group begins."""
        self._levels[-1].words = False
        self._levels.append(_Level())

    def end(self) -> None:
        """A group ends; without effect if none began."""
        if len(self._levels) == 1:
            return
        places, saved = self._levels.pop().result()
        level = self._levels[-1]
        level.current += places
        level.last, level.last_saved = places, saved
        level.saved = max(level.saved, saved)

    def repeat(self, times: int = 1) -> None:
        """The last part is repeated so many times at most; 1 for any number of times."""
        level = self._levels[-1]
        level.words = False
        if level.last_saved and level.saved == level.last_saved:
            level.saved = 0
        level.current += level.last * (max(times, 1) - 1)
        level.last, level.last_saved = level.last * max(times, 1), 0

    def total(self) -> int:
        """The places of what was read."""
        while len(self._levels) > 1:
            self.end()
        places, saved = self._levels[0].result()
        return places - saved
