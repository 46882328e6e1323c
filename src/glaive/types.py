"""Small values every layer speaks in: versions, ranges, places in files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ByteRange", "FormatVersion", "RowRange", "Where"]


class ByteRange(NamedTuple):
    """``size`` bytes from ``offset`` on."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """First byte after the range."""
        return self.offset + self.size


class RowRange(NamedTuple):
    """Rows ``start`` (inclusive) to ``stop`` (exclusive)."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class FormatVersion:
    """A data storage version, shown as ``"2.1"``.

    Without an order: what a version permits is asked of its profile, ``glaive.file.versions``.
    """

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, slots=True)
class Where:
    """Where bytes came from; only looked at when something is wrong."""

    path: str
    column: int | None = None
    name: str | None = None
    page: int | None = None
    note: str | None = None

    def __str__(self) -> str:
        text = self.path
        if self.column is not None:
            text += f", column {self.column}"
        if self.name is not None:
            text += f" {self.name!r}"
        if self.page is not None:
            text += f", page {self.page}"
        if self.note is not None:
            text += f", {self.note}"
        return text
