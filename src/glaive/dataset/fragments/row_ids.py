"""Stable row ids, and versions of rows, as fragments carry them from user to user.

Specification: "Row ids" in ``docs/format/rowids.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import OptionError
from glaive.format.rowids import count_row_ids, decode_row_ids, encode_row_ids

__all__ = ["RowDatasetVersionMeta", "RowIdMeta", "RowIdSequence"]

_PLACE: Final = "row ids of a fragment"


@dataclass(slots=True, eq=True)
class _Kept:
    """Values of the rows of a fragment: in wire form, or in a hidden column of its files."""

    _INLINE: ClassVar[str]
    _COLUMN: ClassVar[str]

    inline: bytes | None = field(default=None, repr=False)
    """The wire form; ``None`` where they are in a column."""

    def asdict(self) -> dict[str, Any]:
        """As values that JSON has."""
        if self.inline is None:
            return {self._COLUMN: {}}
        return {self._INLINE: list(self.inline)}

    def json(self) -> str:
        """As JSON."""
        return json.dumps(self.asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, json: str) -> Self:
        """Read what :meth:`json` gave.

        Raises
        ------
        OptionError
            It is nothing of the kind.
        """
        from json import loads

        try:
            found = loads(json)
        except (TypeError, ValueError) as error:
            raise OptionError(f"{cls.__name__}: expected JSON, found {json!r:.60}") from error
        return cls._read(found)

    @classmethod
    def _read(cls, found: Any) -> Self:
        if found == cls._COLUMN:
            return cls()
        try:
            ((key, value),) = found.items()
            if key == cls._COLUMN:
                return cls()
            if key == cls._INLINE and not isinstance(value, int):  # as many zeros otherwise
                return cls(bytes(value))
        except (AttributeError, TypeError, ValueError):
            pass  # said below
        raise OptionError(
            f"{cls.__name__}: expected {cls._INLINE!r} with bytes or {cls._COLUMN!r}, found "
            f"{found!r:.60}"
        )

    __hash__ = None  # type: ignore[assignment]  # compared by value, and not frozen


@dataclass(slots=True, eq=True)
class RowIdMeta(_Kept):
    """The stable row ids of a fragment; :class:`RowIdSequence` makes and reads them."""

    _INLINE: ClassVar[str] = "Inline"
    _COLUMN: ClassVar[str] = "Column"

    @classmethod
    def from_dict(cls, dict: Mapping[str, Any]) -> Self:  # noqa: A002  # pylance's name
        """Read what :meth:`asdict` gave.

        Raises
        ------
        OptionError
            It is nothing of the kind.
        """
        return cls._read(dict)


@dataclass(slots=True, eq=True)
class RowDatasetVersionMeta(_Kept):
    """The version each row of a fragment was created, or last changed, in."""

    _INLINE: ClassVar[str] = "inline"
    _COLUMN: ClassVar[str] = "column"


class RowIdSequence:
    """Stable row ids of the rows of one fragment, in their order.

    For fragments made by hand whose rows were there before: the rows keep their ids when
    the fragment is given ``row_id_meta=RowIdSequence(ids).to_inline_metadata()``. Rows beyond
    those that have one get new ids by the commit.

    Parameters
    ----------
    row_ids
        The ids, each once: a range, an array, or numbers.

    Raises
    ------
    OptionError
        There is a null, a number that is no row id, or one twice.
    """

    __slots__ = ("_ids",)

    def __init__(self, row_ids: range | pa.Array | pa.ChunkedArray | Iterable[int]) -> None:
        run = isinstance(row_ids, range) and row_ids.step == 1 and row_ids.start >= 0
        self._ids: Any = row_ids if run else _numbers(row_ids)

    @staticmethod
    def from_inline_metadata(metadata: RowIdMeta) -> RowIdSequence:
        """Read the ids of a fragment.

        Raises
        ------
        OptionError
            They are in a column of its files.
        CorruptFileError
            They cannot be read.
        """
        if metadata.inline is None:
            raise OptionError(
                "row ids: this fragment keeps them in a column of its files. Read _rowid with a "
                "scan of the fragment."
            )
        made = RowIdSequence(())
        count = count_row_ids(metadata.inline, where=_PLACE)
        made._ids = decode_row_ids(metadata.inline, count, where=_PLACE)
        return made

    def to_inline_metadata(self) -> RowIdMeta:
        """The ids as ``FragmentMetadata`` takes them."""
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
        shown = [str(one) for one, _ in zip(self, range(10), strict=False)]
        return f"RowIdSequence([{', '.join(shown)}{', …' if len(self) > 10 else ''}])"

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
        raise OptionError(f"row_ids: expected integers ≥ 0 ({error})") from error
    ordered = np.sort(ids)
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(again):
        raise OptionError(f"row_ids: {int(ordered[again[0]])} is there more than once")
    return ids.astype(np.uint64, copy=True)
