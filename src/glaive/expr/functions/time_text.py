"""Format points in time, and parse them: loops over distinct values.

Formats are those of ``strftime``; supported are

``%Y %C %y %m %b %h %B %d %e %a %A %j %u %w %U %W %V %G %g %q``, ``%H %k %I %l %p %P %M %S``,
``%f %.f %.3f %.6f %.9f %3f %6f %9f``, ``%D %F %T %R %r %c %x %X %v``, ``%s %z %:z %Z``,
``%n %t %%``, and ``-``, ``_`` or ``0`` between ``%`` and the letter of a number.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from functools import lru_cache

from glaive.errors import FilterError

__all__ = ["Moment", "format_moment", "parse_moment"]

Moment = tuple[dt.datetime, int]
"""A date and time of day in whole seconds, in its own zone where it has one, and nanoseconds."""

_SPEC = re.compile(r"%(:z|\.?[369]?f|[-_0]?[A-Za-z%])|(%)", re.DOTALL)
_MONTHS = "January February March April May June July August September October November December"
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
_MAX_FORMAT = 1_000
"""Characters of a format."""

_LONG = {
    "D": "%m/%d/%y",
    "x": "%m/%d/%y",
    "F": "%Y-%m-%d",
    "T": "%H:%M:%S",
    "X": "%H:%M:%S",
    "R": "%H:%M",
    "r": "%I:%M:%S %p",
    "c": "%a %b %e %H:%M:%S %Y",
    "v": "%e-%b-%Y",
}


def _offset(moment: dt.datetime, colon: str) -> str:
    zone = moment.utcoffset()
    if zone is None:
        raise FilterError("to_char: %z needs a timestamp with a time zone")
    minutes = round(zone.total_seconds() / 60)
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02}{colon}{abs(minutes) % 60:02}"


def _epoch(moment: dt.datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return int((moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(seconds=1))


def _week(moment: dt.datetime, first: int) -> int:
    """Number of weeks of the year that begin on weekday ``first`` (0 is Monday)."""
    return (moment.timetuple().tm_yday + 6 - (moment.weekday() - first) % 7) // 7


_STRINGS: dict[str, Callable[[dt.datetime], str]] = {
    "b": lambda m: _MONTHS.split()[m.month - 1][:3],
    "h": lambda m: _MONTHS.split()[m.month - 1][:3],
    "B": lambda m: _MONTHS.split()[m.month - 1],
    "a": lambda m: _DAYS.split()[m.weekday()][:3],
    "A": lambda m: _DAYS.split()[m.weekday()],
    "p": lambda m: "AM" if m.hour < 12 else "PM",
    "P": lambda m: "am" if m.hour < 12 else "pm",
    "z": lambda m: _offset(m, ""),
    ":z": lambda m: _offset(m, ":"),
    "Z": lambda m: _offset(m, ":"),
    "n": lambda _: "\n",
    "t": lambda _: "\t",
    "%": lambda _: "%",
}
_NUMBERS: dict[str, tuple[Callable[[dt.datetime], int], int, str]] = {
    "Y": (lambda m: m.year, 4, "0"),
    "C": (lambda m: m.year // 100, 2, "0"),
    "y": (lambda m: m.year % 100, 2, "0"),
    "m": (lambda m: m.month, 2, "0"),
    "d": (lambda m: m.day, 2, "0"),
    "e": (lambda m: m.day, 2, " "),
    "j": (lambda m: m.timetuple().tm_yday, 3, "0"),
    "u": (lambda m: m.isoweekday(), 1, "0"),
    "w": (lambda m: m.isoweekday() % 7, 1, "0"),
    "U": (lambda m: _week(m, 6), 2, "0"),
    "W": (lambda m: _week(m, 0), 2, "0"),
    "V": (lambda m: m.isocalendar().week, 2, "0"),
    "G": (lambda m: m.isocalendar().year, 4, "0"),
    "g": (lambda m: m.isocalendar().year % 100, 2, "0"),
    "q": (lambda m: (m.month + 2) // 3, 1, "0"),
    "H": (lambda m: m.hour, 2, "0"),
    "k": (lambda m: m.hour, 2, " "),
    "I": (lambda m: (m.hour + 11) % 12 + 1, 2, "0"),
    "l": (lambda m: (m.hour + 11) % 12 + 1, 2, " "),
    "M": (lambda m: m.minute, 2, "0"),
    "S": (lambda m: m.second, 2, "0"),
    "s": (_epoch, 1, "0"),
}
_DATE_ONLY = frozenset("YCymdejuwUWVGgqbhBaAs")


def format_moment(moment: Moment, pattern: str, *, clock_only: bool = False) -> str:
    """Return a point in time as a string.

    Raises
    ------
    FilterError
        The format has an unknown part, or one that a time of day does not have.
    """
    seconds, nanos = moment
    _check_format(pattern, "to_char")

    def written(match: re.Match[str]) -> str:
        spec = match[1]
        if spec is None:
            raise FilterError(f"to_char: the format {pattern!r} has a % without a letter")
        if spec in _LONG:
            return _SPEC.sub(written, _LONG[spec])
        if spec.endswith("f") and (spec[0] in ".369f"):
            return _fraction(spec, nanos)
        if clock_only and spec[-1] in _DATE_ONLY:
            raise FilterError(f"to_char: a time of day has no %{spec}")
        if spec in _STRINGS:
            return _STRINGS[spec](seconds)
        flag, letter = (spec[0], spec[1]) if len(spec) == 2 else ("", spec)
        if letter not in _NUMBERS:
            raise FilterError(f"to_char: the format {pattern!r} has %{spec}, which is not known")
        number, width, filling = _NUMBERS[letter]
        filling = {"-": "", "_": " ", "0": "0"}.get(flag, filling)
        return str(number(seconds)).rjust(width, filling) if filling else str(number(seconds))

    return _SPEC.sub(written, pattern)


def _check_format(pattern: str, name: str) -> None:
    """Refuse formats whose parts would take time for each of many values."""
    if len(pattern) > _MAX_FORMAT:
        raise FilterError(
            f"{name}: the format {pattern!r:.60} has {len(pattern)} characters, at most "
            f"{_MAX_FORMAT} are supported"
        )


def _fraction(spec: str, nanos: int) -> str:
    digits = f"{nanos:09}"
    width = next((int(letter) for letter in spec if letter in "369"), 0)
    if width:
        return ("." if spec[0] == "." else "") + digits[:width]
    if spec == "f":
        return digits
    # Groups of three digits, without trailing groups of zeros.
    for width in (0, 3, 6):
        if not nanos % 10 ** (9 - width):
            return f".{digits[:width]}" if width else ""
    return f".{digits}"


_FIELDS = {
    "Y": r"(?P<Y>[+-]?\d{1,6})",
    "y": r"(?P<y>\d{2})",
    "m": r"(?P<m>\d{1,2})",
    "b": r"(?P<b>[A-Za-z]{3,9})",
    "B": r"(?P<b>[A-Za-z]{3,9})",
    "h": r"(?P<b>[A-Za-z]{3,9})",
    "d": r"\s*(?P<d>\d{1,2})",
    "e": r"\s*(?P<d>\d{1,2})",
    "a": r"[A-Za-z]{3,9}",
    "A": r"[A-Za-z]{3,9}",
    "j": r"(?P<j>\d{1,3})",
    "H": r"\s*(?P<H>\d{1,2})",
    "k": r"\s*(?P<H>\d{1,2})",
    "I": r"\s*(?P<I>\d{1,2})",
    "l": r"\s*(?P<I>\d{1,2})",
    "p": r"(?P<p>[AaPp][Mm])",
    "P": r"(?P<p>[AaPp][Mm])",
    "M": r"\s*(?P<M>\d{1,2})",
    "S": r"\s*(?P<S>\d{1,2})",
    "f": r"(?P<n>\d{1,9})",
    ".f": r"(?:\.(?P<f>\d{1,9})\d*)?",
    ".3f": r"\.(?P<f>\d{3})",
    ".6f": r"\.(?P<f>\d{6})",
    ".9f": r"\.(?P<f>\d{9})",
    "3f": r"(?P<f>\d{3})",
    "6f": r"(?P<f>\d{6})",
    "9f": r"(?P<f>\d{9})",
    "s": r"(?P<s>-?\d{1,18})",
    "z": r"(?P<z>[+-]\d{2}:?\d{2})",
    ":z": r"(?P<z>[+-]\d{2}:?\d{2})",
    "n": r"\s+",
    "t": r"\s+",
    "%": "%",
}


@lru_cache(maxsize=128)
def _reader(pattern: str) -> re.Pattern[str]:
    _check_format(pattern, "parsing a date or time")
    for letter, longer in _LONG.items():
        pattern = pattern.replace(f"%{letter}", longer)
    patterns, at = [], 0
    for match in _SPEC.finditer(pattern):
        spec = match[1].lstrip("-_0") if match[1] else None
        if spec not in _FIELDS:
            raise FilterError(f"the format {pattern!r} has {match[0]}, which cannot be read")
        patterns += [re.escape(pattern[at : match.start()]), _FIELDS[spec]]
        at = match.end()
    patterns.append(re.escape(pattern[at:]))
    try:
        return re.compile("".join(patterns))
    except re.error:
        raise FilterError(f"the format {pattern!r} has a part twice") from None


def parse_moment(text: str, pattern: str) -> int | None:
    """Return nanoseconds since 1970 of a string; None if it does not match the format."""
    match = _reader(pattern).fullmatch(text)
    if match is None:
        return None
    parts = {name: value for name, value in match.groupdict().items() if value is not None}
    nanos = int(parts["n"]) if "n" in parts else int(parts.get("f", "0").ljust(9, "0"))
    if "s" in parts:
        return int(parts["s"]) * 10**9 + nanos
    try:
        moment = dt.datetime(*_date(parts), *_clock(parts), tzinfo=dt.UTC)
    except (ValueError, KeyError):
        return None
    seconds = _epoch(moment)
    if "z" in parts:
        digits = parts["z"].replace(":", "")
        ahead = int(digits[1:3]) * 3600 + int(digits[3:5]) * 60
        seconds -= -ahead if digits[0] == "-" else ahead
    return seconds * 10**9 + nanos


def _date(parts: dict[str, str]) -> tuple[int, int, int]:
    if not parts.keys() & {"Y", "y", "m", "b", "d", "j"}:
        return 1970, 1, 1
    if "Y" in parts:
        year = int(parts["Y"])
    else:
        year = int(parts["y"])
        year += 2000 if year < 70 else 1900
    if "j" in parts:
        day = dt.date.fromordinal(dt.date(year, 1, 1).toordinal() + int(parts["j"]) - 1)
        if day.year != year:
            raise ValueError("the year has no such day")
        return day.year, day.month, day.day
    if "b" in parts:
        names = [name[: len(parts["b"])].lower() for name in _MONTHS.split()]
        return year, names.index(parts["b"].lower()) + 1, int(parts["d"])
    return year, int(parts["m"]), int(parts["d"])


def _clock(parts: dict[str, str]) -> tuple[int, int, int]:
    hour = int(parts.get("H", "0"))
    if "I" in parts:
        hour = int(parts["I"]) % 12 + (12 if parts["p"].lower() == "pm" else 0)
    return hour, int(parts.get("M", "0")), int(parts.get("S", "0"))
