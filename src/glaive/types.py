"""Small values that all layers use: versions, ranges, positions in files.

``ReaderLike`` is pylance's name for the inputs of ``write_dataset``, for annotations.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple, dataclass

if TYPE_CHECKING:
    ReaderLike = Any


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
"""Most bytes or items for 32-bit offsets, which are signed in Arrow."""

MAX_WIDTH: Final = 2**28 - 1
"""Most bytes of a fixed-width value: Arrow counts its bits with 32 bits, and wraps around."""


class ByteRange(NamedTuple):
    """A range of ``size`` bytes from ``offset`` on."""

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

    Compare versions only for equality: the profile of a version, in ``glaive.file.versions``, lists
    its features.
    """

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, slots=True)
class Where:
    """Origin of bytes, for error messages."""

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
    """Return a Python or NumPy integer as ``int``; ``None`` for other values, also bools."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:  # arrays have the method, but refuse
        return None


def __getattr__(name: str) -> Any:
    if name != "ReaderLike":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pyarrow as pa  # only here, for the functions below

    return pa.Table | pa.RecordBatch | pa.RecordBatchReader | object


# --- Memory as Arrow buffers and as NumPy arrays that share it; memory from Arrow's pool --
# Called some dozen times for each row of a take, so these call Arrow or NumPy directly.
_from_buffer: Final[Callable[..., NDArray[Any]]] = cast("Any", np.frombuffer)

as_buffer: Final[Callable[[NDArray[Any] | bytes], pa.Buffer]] = cast("Any", pa.py_buffer)
"""View the memory of a contiguous array as a buffer, which keeps it alive."""

allocate: Final[Callable[[int], pa.Buffer]] = cast("Any", pa.allocate_buffer)
"""Allocate uninitialised memory from Arrow's pool, which keeps pages warm."""


def as_array(buffer: pa.Buffer, dtype: Any = np.uint8) -> NDArray[Any]:
    """View a buffer as a one-dimensional array; a partial last item is ignored."""
    dtype = np.dtype(dtype)
    count = buffer.size // dtype.itemsize
    return _from_buffer(buffer, dtype, count) if count else np.empty(0, dtype)


def items_of(buffer: pa.Buffer, dtype: Any, count: int, start: int = 0) -> NDArray[Any]:
    """View items of a buffer as a one-dimensional array.

    Parameters
    ----------
    buffer
        Memory of all items.
    dtype
        Type of an item.
    count
        Number of items.
    start
        Bytes before the first item, of any alignment.
    """
    return _from_buffer(buffer, dtype, count, start) if count else np.empty(0, dtype)


def copy_of(buffer: pa.Buffer) -> pa.Buffer:
    """Copy the bytes of a buffer to new memory from Arrow's pool."""
    copy = allocate(buffer.size)
    as_array(copy)[:] = as_array(buffer)
    return copy
