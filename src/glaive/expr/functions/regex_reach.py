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
    """A part of a pattern: a character, a group, or a sequence of parts."""

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

    def then(self, part: _Part) -> None:
        """Add a part to a sequence."""
        self.followed = self.followed or part.followed or (part.required and self.endless)
        self.required = self.required or part.required
        self.endless = self.endless or part.endless
        self.in_steps = self.in_steps or part.in_steps

    def either(self, other: _Part) -> None:
        """Add another alternative."""
        self.required = self.required and other.required
        self.endless = self.endless or other.endless
        self.in_steps = self.in_steps or other.in_steps
        self.followed = self.followed or other.followed


@dataclass(slots=True)
class _Level:
    """What was read of a group."""

    last: _Part = field(default_factory=_Part)
    """Its last part, which may be repeated yet."""
    sequence: _Part = field(default_factory=_Part)
    """The current alternative, without that part."""
    before: _Part | None = None
    """The alternatives before."""


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
        level = self._levels[-1]
        level.before = self._alternatives()
        level.sequence, level.last = _Part(), _Part()

    def begin(self) -> None:
        """A group begins."""
        self._levels.append(_Level())

    def end(self) -> None:
        """A group ends; without effect if none began."""
        if len(self._levels) > 1:
            group = self._whole()
            group.is_group = True
            self._levels.pop()
            self._next(group)

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
        self._whole()
        return self._is_far

    def _next(self, part: _Part) -> None:
        """Begin the next part: the last one can be repeated no more."""
        level = self._levels[-1]
        if level.last.required and level.sequence.in_steps:
            self._is_far = True
        level.sequence.then(level.last)
        level.last = part

    def _alternatives(self) -> _Part:
        """The alternatives of the last group so far, the current one included."""
        self._next(_Part())
        level = self._levels[-1]
        if level.before is None:
            return level.sequence
        level.before.either(level.sequence)
        return level.before

    def _whole(self) -> _Part:
        """The last group, at its end."""
        has_alternatives = self._levels[-1].before is not None
        whole = self._alternatives()
        if has_alternatives and whole.followed:
            self._is_far = True
        return whole
