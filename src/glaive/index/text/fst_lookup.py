"""Look up one token in an FST: a step per letter, and no token is decoded.

Specification: "Token sets" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.index.text.fst_constants import COMMON, FOOTER, HEADER, INDEX, MANY, VERSION

__all__ = ["Fst"]

_LETTERS = COMMON.tolist()
_WIDEST = 8


class Fst:
    """The bytes of an FST, of which head and foot are checked.

    Parameters
    ----------
    data
        All bytes.
    where
        The file, for errors.

    Raises
    ------
    CorruptFileError
        It is too short, of another version, or its root is outside.
    """

    __slots__ = ("_data", "_root", "count", "nbytes", "where")

    def __init__(self, data: pa.Buffer, where: object) -> None:
        self._data, self.where, self.nbytes = memoryview(data).cast("B"), where, data.size
        self._check(data.size >= HEADER + FOOTER, f"{data.size} bytes")
        foot = data.size - FOOTER
        version = self._number(0, 8)
        self.count, self._root = self._number(foot, 8), self._number(foot + 8, 8)
        self._check(version == VERSION, f"version {version}")
        self._check(self._root == 0 or HEADER <= self._root < foot, f"root at {self._root}")

    def find(self, token: bytes) -> int | None:
        """The number of a token; ``None`` if it is not in the set.

        Raises
        ------
        CorruptFileError
            A node on the way leads outside.
        """
        address, total = self._root, 0
        for letter in token:
            step = self._step(address, letter)
            if step is None:
                return None
            address, added = step
            total += added
        ends, added = self._end(address)
        return total + added if ends else None

    def _step(self, address: int, letter: int) -> tuple[int, int] | None:
        """Where a letter leads from a node, and what that adds."""
        if address == 0:
            return None
        data = self._data
        state = data[address]
        low = state & 63
        first = address if low else address - 1
        if state >= 128:
            found = _LETTERS[low] if low else data[address - 1]
            if found != letter:
                return None
            if state >= 192:
                return self._target(first, 1), 0
            deep, wide = self._sizes(first - 1)
            start = first - 1 - deep - wide
            self._check(start >= HEADER, "nodes before the first")
            return (
                self._target(start, self._number(start + wide, deep)),
                self._number(start, wide),
            )
        count, sizes = self._shape(address)
        if count == 0:
            return None
        deep, wide = self._sizes(sizes)
        letters = sizes - (INDEX if count > MANY else 0)
        start = letters - count * (1 + deep + wide) - (wide if state & 64 else 0)
        self._check(start >= HEADER, "nodes before the first")
        # The first transition is the nearest to the end, in each of the three lists.
        place = bytes(data[letters - count : letters]).rfind(letter)
        if place < 0:
            return None
        place = count - 1 - place
        steps = letters - count - (place + 1) * deep
        sums = letters - count - count * deep - (place + 1) * wide
        return self._target(start, self._number(steps, deep)), self._number(sums, wide)

    def _end(self, address: int) -> tuple[bool, int]:
        """Whether a token ends at a node, and what that adds."""
        if address == 0:
            return True, 0
        state = self._data[address]
        if state >= 128 or not state & 64:
            return False, 0
        count, sizes = self._shape(address)
        deep, wide = self._sizes(sizes)
        start = sizes - (INDEX if count > MANY else 0) - count * (1 + deep + wide) - wide
        self._check(start >= HEADER, "nodes before the first")
        return True, self._number(start, wide)

    def _shape(self, address: int) -> tuple[int, int]:
        """Transitions of a node with any number of them, and where their sizes are."""
        low = self._data[address] & 63
        if low:
            return low, address - 1
        count = self._data[address - 1]
        return (INDEX if count == 1 else count), address - 2

    def _sizes(self, at: int) -> tuple[int, int]:
        self._check(at >= HEADER - 1, "nodes before the first")
        deep, wide = self._data[at] >> 4, self._data[at] & 15
        self._check(deep <= _WIDEST and wide <= _WIDEST, "numbers too wide")
        return deep, wide

    def _target(self, first: int, step: int) -> int:
        """Transitions only lead backwards, so that each way ends."""
        if step == 0:
            return 0
        self._check(HEADER <= first - step < first, "transitions that lead outside")
        return first - step

    def _number(self, at: int, width: int) -> int:
        return int.from_bytes(self._data[at : at + width], "little")

    def _check(self, good: bool, found: str) -> None:  # noqa: FBT001  # a condition
        if not good:
            raise CorruptFileError(
                "token set of an index", expected="a sound FST", found=found, where=self.where
            )
