r"""Whether the engine of a regular expression may read far beyond each of its matches.

To find one match takes a time linear in the text. To find all takes as long for each, if the engine
reads on to the end of the text where a match was found early: of ``a.*b|a`` the second part matches
a letter, and the first, which comes first, may do so up to the end. That takes a repetition without
end and something that must follow it, and a way to match without both: they are in one of several
alternatives, or in a group that may be left out or repeated. Or a group is repeated, as in
``(..)*b``, and where it begins decides whether a match is seen. Elsewhere, as in ``<[^>]*>`` and
``\w+(,|$)``, what was read is part of the match, or of no match that follows.
"""

from __future__ import annotations

from dataclasses import field

from glaive.dataclass import dataclass

__all__ = ["Reach"]


@dataclass(slots=True)
class _Part:
    """One part of a sequence."""

    required: bool = False
    """It must match something."""
    endless: bool = False
    """It may go on without end, at its end."""
    in_steps: bool = False
    """The same, of a group."""
    followed: bool = False
    """In it something must follow a repetition without end."""
    is_group: bool = False
    is_repeated: bool = False


@dataclass(slots=True)
class _Level:
    """What was read of a group: of its alternatives before, and of the current one."""

    last: _Part = field(default_factory=_Part)
    required: bool = False
    endless: bool = False
    in_steps: bool = False
    followed: bool = False
    may_be_empty: bool = False
    any_endless: bool = False
    any_in_steps: bool = False
    has_alternatives: bool = False


class Reach:
    """Follows a pattern while it is read from the left."""

    def __init__(self) -> None:
        self._levels = [_Level()]
        self._is_far = False

    def part(self) -> None:
        """Count a character, a class or an anchor."""
        self._next(_Part(required=True))

    def alternative(self) -> None:
        """Go on with the next alternative."""
        self._end_alternative()
        self._levels[-1].has_alternatives = True

    def begin(self) -> None:
        """A group begins."""
        self._levels.append(_Level())

    def end(self) -> None:
        """A group ends; without effect if none began."""
        if len(self._levels) == 1:
            return
        self._end_level()
        level = self._levels.pop()
        required = not level.may_be_empty
        endless, in_steps = level.any_endless, level.any_in_steps
        self._next(_Part(required, endless, in_steps, level.followed, is_group=True))

    def repeat(self, least: int, most: int | None) -> None:
        """The last part is repeated; None for any number of times."""
        last = self._levels[-1].last
        if last.is_repeated:  # the sign of a repetition that takes as little as it can
            return
        last.is_repeated = True
        last.required = last.required and least > 0
        last.endless = last.endless or most is None
        last.in_steps = last.in_steps or (last.is_group and most is None)
        if last.followed and (least, most) != (1, 1):
            self._is_far = True

    def is_far(self) -> bool:
        """Whether it may, once all was read."""
        while len(self._levels) > 1:
            self.end()
        self._end_level()
        return self._is_far

    def _next(self, part: _Part) -> None:
        level = self._levels[-1]
        last = level.last
        if last.followed or (last.required and level.endless):
            level.followed = True
        if last.required and level.in_steps:
            self._is_far = True
        level.required = level.required or last.required
        level.endless = level.endless or last.endless
        level.in_steps = level.in_steps or last.in_steps
        level.last = part

    def _end_alternative(self) -> None:
        self._next(_Part())
        level = self._levels[-1]
        level.may_be_empty = level.may_be_empty or not level.required
        level.any_endless = level.any_endless or level.endless
        level.any_in_steps = level.any_in_steps or level.in_steps
        level.required = level.endless = level.in_steps = False

    def _end_level(self) -> None:
        self._end_alternative()
        level = self._levels[-1]
        if level.has_alternatives and level.followed:
            self._is_far = True
