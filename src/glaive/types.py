"""Small values that every layer uses: versions, ranges, positions in files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ByteRange", "FormatVersion", "Int64s", "RowRange", "Where"]

Int64s = NDArray[np.int64]


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
    """A data storage version, displayed as ``"2.1"``.

    Without an order: the profile of a version, in ``glaive.file.versions``, has its permissions.
    """

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, slots=True)
class Where:
    """Where bytes came from, for error messages."""

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
