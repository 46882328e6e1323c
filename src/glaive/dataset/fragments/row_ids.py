"""Stable row ids and row versions in fragments that users construct.

Specification: "Row ids" in ``docs/format/rowids.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import OptionError, OptionRangeError
from glaive.format.rowids import count_row_ids, decode_row_ids, encode_row_ids

__all__ = ["RowDatasetVersionMeta", "RowIdMeta", "RowIdSequence"]

_WHERE: Final = "row ids of a fragment"


@dataclass(slots=True, eq=True)
class _RowValues:
    """Values of the rows of a fragment: in wire format, or in a hidden column of its files."""

    _INLINE: ClassVar[str]
    _COLUMN: ClassVar[str]

    inline: bytes | None = field(default=None, repr=False)
    """The wire format; ``None`` if the values are in a column."""

    def asdict(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        if self.inline is None:
            return {self._COLUMN: {}}
        return {self._INLINE: list(self.inline)}

    def json(self) -> str:
        """Encode as JSON."""
        return json.dumps(self.asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, json: str) -> Self:
        """Decode the output of :meth:`json`.

        Raises
        ------
        OptionError
            The text is no such output.
        """
        from json import loads

        try:
            values = loads(json)
        except (RecursionError, TypeError, ValueError) as error:
            raise OptionError(f"{cls.__name__}: expected JSON, found {json!r:.60}") from error
        return cls._read(values)

    @classmethod
    def _read(cls, values: Any) -> Self:
        if values == cls._COLUMN:
            return cls()
        try:
            ((key, value),) = values.items()
            if key == cls._COLUMN:
                return cls()
            if key == cls._INLINE and not isinstance(value, int):  # bytes(3) would be three zeros
                return cls(bytes(value))
        except (AttributeError, TypeError, ValueError):
            pass  # reported below
        raise OptionError(
            f"{cls.__name__}: expected {cls._INLINE!r} with bytes or {cls._COLUMN!r}, found "
            f"{values!r:.60}"
        )

    __hash__ = None  # type: ignore[assignment]  # compared by value, and not frozen


@dataclass(slots=True, eq=True)
class RowIdMeta(_RowValues):
    """The stable row ids of a fragment; :class:`RowIdSequence` encodes and decodes them."""

    _INLINE: ClassVar[str] = "Inline"
    _COLUMN: ClassVar[str] = "Column"

    @classmethod
    def from_dict(cls, dict: Mapping[str, Any]) -> Self:  # noqa: A002  # pylance's name
        """Decode the output of :meth:`asdict`.

        Raises
        ------
        OptionError
            The argument is no such output.
        """
        return cls._read(dict)


@dataclass(slots=True, eq=True)
class RowDatasetVersionMeta(_RowValues):
    """For each row of a fragment the version that created, or last updated, it."""

    _INLINE: ClassVar[str] = "inline"
    _COLUMN: ClassVar[str] = "column"


class RowIdSequence:
    """Stable row ids of the rows of one fragment, in their order.

    Rewritten rows keep their ids if their new fragment has
    ``row_id_meta=RowIdSequence(ids).to_inline_metadata()``. The commit assigns new ids to rows
    beyond the last id.

    Parameters
    ----------
    row_ids
        Unique ids: a range, an array, or integers.

    Raises
    ------
    OptionError
        There is a null, an invalid id, or a duplicate.
    """

    __slots__ = ("_ids",)

    def __init__(self, row_ids: range | pa.Array | pa.ChunkedArray | Iterable[int]) -> None:
        run = isinstance(row_ids, range) and row_ids.step == 1 and row_ids.start >= 0
        self._ids: Any = row_ids if run else _numbers(row_ids)

    @staticmethod
    def from_inline_metadata(metadata: RowIdMeta) -> RowIdSequence:
        """Decode the ids of a fragment.

        Raises
        ------
        OptionError
            They are in a column of its files.
        CorruptFileError
            They cannot be decoded.
        """
        if metadata.inline is None:
            raise OptionError(
                "row ids: this fragment keeps them in a column of its files. Read _rowid with a "
                "scan of the fragment."
            )
        sequence = RowIdSequence(())
        count = count_row_ids(metadata.inline, where=_WHERE)
        sequence._ids = decode_row_ids(metadata.inline, count, where=_WHERE)
        return sequence

    def to_inline_metadata(self) -> RowIdMeta:
        """The ids for use in a ``FragmentMetadata``."""
        return RowIdMeta(encode_row_ids(self._ids))

    def to_pyarrow(self) -> pa.UInt64Array:
        """The ids as an array."""
        return pa.array(np.asarray(self._ids, np.uint64), pa.uint64())

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids if isinstance(self._ids, range) else self._ids.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowIdSequence):
            return NotImplemented
        return len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # compared by value

    def __repr__(self) -> str:
        first_ids = [str(row_id) for row_id, _ in zip(self, range(10), strict=False)]
        return f"RowIdSequence([{', '.join(first_ids)}{', …' if len(self) > 10 else ''}])"

    def __reduce__(self) -> tuple[object, ...]:
        ids = self._ids if isinstance(self._ids, range) else self.to_pyarrow()
        return (RowIdSequence, (ids,))


def _numbers(given: Any) -> NDArray[np.uint64]:
    try:
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        array = given if isinstance(given, pa.Array) else pa.array(list(given), pa.uint64())
        if array.null_count:
            raise OptionError(f"row_ids: expected no nulls, found {array.null_count}")
        ids: NDArray[np.uint64] = array.cast(pa.uint64()).to_numpy(zero_copy_only=False)
    except (OverflowError, TypeError, pa.ArrowException) as error:
        kind = OptionRangeError if isinstance(error, OverflowError) else OptionError
        raise kind(f"row_ids: expected integers ≥ 0 ({error})") from error
    ordered = np.sort(ids)
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(repeated):
        raise OptionError(f"row_ids: {int(ordered[repeated[0]])} occurs more than once")
    return ids.astype(np.uint64, copy=True)
