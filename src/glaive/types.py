"""Small values that every layer uses: versions, ranges, positions in files.

``ReaderLike`` is pylance's name for what ``write_dataset`` takes, for annotations.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.named_tuple import NamedTuple

if TYPE_CHECKING:
    ReaderLike = Any

__all__ = [
    "MAX_OFFSET",
    "MAX_WIDTH",
    "ByteRange",
    "Flags",
    "Float32s",
    "FormatVersion",
    "Int64s",
    "ReaderLike",
    "RowRange",
    "UInt8s",
    "UInt16s",
    "UInt32s",
    "UInt64s",
    "VersionIdentity",
    "Where",
    "integer_of",
]

Flags = NDArray[np.bool_]
Float32s = NDArray[np.float32]
Int64s = NDArray[np.int64]
UInt8s = NDArray[np.uint8]
UInt16s = NDArray[np.uint16]
UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]

VersionIdentity = tuple[int, int, int, str]
"""Number of a version, its time in seconds and nanoseconds, and its transaction."""

MAX_OFFSET: Final = 2**31 - 1
"""Bytes or items that offsets of 32 bits can count: Arrow's are signed."""

MAX_WIDTH: Final = 2**28 - 1
"""Bytes of a value of fixed width at most: Arrow counts their bits with 32, and wraps around."""


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


def integer_of(value: Any) -> int | None:
    """An integer, of Python or of another library, such as NumPy; None for all else, and bools."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:  # arrays have the method, and refuse
        return None


def __getattr__(name: str) -> Any:
    if name != "ReaderLike":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pyarrow as pa  # not for those who only want the values above

    return pa.Table | pa.RecordBatch | pa.RecordBatchReader | object
