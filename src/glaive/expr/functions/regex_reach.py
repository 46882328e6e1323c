"""Whether the engine of a regular expression may read far beyond each of its matches.

To find one match takes a time linear in the text. To find all takes as long for each, if the engine
reads on to the end of the text where a match was found early: of ``a.*b|a`` the second part matches
a letter, and the first, which comes first, may do so up to the end. That takes a repetition without
end, something that must follow it, and another way to match: alternatives, or a group that may be
left out or repeated. Where a pattern is a mere sequence, what was read is part of a match that
follows, or of none.
"""

from __future__ import annotations

from dataclasses import field

from glaive.dataclass import dataclass

__all__ = ["Reach"]


@dataclass(slots=True)
class _Part:
    """One part of a sequence: whether it must match, and may go on without end at its end."""

    required: bool = False
    endless: bool = False
    is_group: bool = False
    is_repeated: bool = False


@dataclass(slots=True)
class _Level:
    """What was read of a group: of its alternatives before, and of the current one."""

    last: _Part = field(default_factory=_Part)
    required: bool = False
    endless: bool = False
    may_be_empty: bool = False
    any_endless: bool = False


class Reach:
    """Follows a pattern while it is read from the left."""

    def __init__(self) -> None:
        self._levels = [_Level()]
        self._is_followed = False
        self._has_choice = False

    def part(self) -> None:
        """Count a character, a class or an anchor."""
        self._next(_Part(required=True))

    def alternative(self) -> None:
        """Go on with the next alternative."""
        self._has_choice = True
        self._end_alternative()

    def begin(self) -> None:
        """A group begins."""
        self._levels.append(_Level())

    def end(self) -> None:
        """A group ends; without effect if none began."""
        if len(self._levels) == 1:
            return
        self._end_alternative()
        level = self._levels.pop()
        self._next(_Part(not level.may_be_empty, level.any_endless, is_group=True))

    def repeat(self, least: int, most: int | None) -> None:
        """The last part is repeated; None for any number of times."""
        last = self._levels[-1].last
        if last.is_repeated:  # the sign of a repetition that takes as little as it can
            return
        last.is_repeated = True
        last.required = last.required and least > 0
        last.endless = last.endless or most is None
        self._has_choice = self._has_choice or (last.is_group and (least, most) != (1, 1))

    def is_far(self) -> bool:
        """Whether it may, once all was read."""
        while len(self._levels) > 1:
            self.end()
        self._end_alternative()
        return self._is_followed and self._has_choice

    def _next(self, part: _Part) -> None:
        level = self._levels[-1]
        last = level.last
        if last.required and level.endless:
            self._is_followed = True
        level.required = level.required or last.required
        level.endless = level.endless or last.endless
        level.last = part

    def _end_alternative(self) -> None:
        self._next(_Part())
        level = self._levels[-1]
        level.may_be_empty = level.may_be_empty or not level.required
        level.any_endless = level.any_endless or level.endless
        level.required = level.endless = False
