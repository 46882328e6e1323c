"""Number byte strings in the order of their first appearance, across many calls."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.entropy import hash_secret
from glaive.errors import CapacityError, SchemaError
from glaive.kernels._addresses import address
from glaive.kernels._bounds import outside
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import vocabulary as compiled
from glaive.kernels.string_records import NumberRanges
from glaive.memory import as_array, as_buffer
from glaive.types import Int64s, UInt8s, UInt32s, UInt64s

__all__ = ["Vocabulary", "exercise"]

_FIRST_ITEMS: Final = 512
_FIRST_BYTES: Final = 8192
_MAX_ITEMS: Final = 1 << 31


class Vocabulary:
    """Distinct byte strings, numbered from 0 on. Not safe to share between threads."""

    def __init__(self) -> None:
        self._slots: UInt32s = np.zeros(2 * _FIRST_ITEMS, np.uint32)
        self._hashes: UInt64s = np.zeros(_FIRST_ITEMS, np.uint64)
        self._ends: Int64s = np.zeros(_FIRST_ITEMS + 1, np.int64)
        self._pool: UInt8s = np.zeros(_FIRST_BYTES, np.uint8)
        self._items = np.zeros(1, np.int64)
        self._secret = hash_secret()
        self._hashed = 0
        """Items that the slots have: none while they are numbered without the compiled kernel."""
        self._by_bytes: dict[bytes, int] = {}
        """Items by their bytes, while they are numbered without it."""

    def __len__(self) -> int:
        return int(self._items[0])

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        arrays = (self._slots, self._hashes, self._ends, self._pool)
        return sum(array.nbytes for array in arrays)

    def strings(self, first: int = 0) -> pa.Array:
        """The items from ``first`` on, as ``large_binary``; a copy."""
        ends = self._ends[first : len(self) + 1]
        data = self._pool[int(ends[0]) : int(ends[-1])].copy()
        buffers = [None, as_buffer(ends - ends[0]), as_buffer(data)]
        return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, buffers)

    def number(self, data: pa.Buffer, starts: Int64s, sizes: UInt32s) -> UInt32s:
        """The numbers of byte strings, ``uint32``; those not seen before get the next ones.

        Parameters
        ----------
        data
            Memory of all strings.
        starts, sizes
            First byte of each, ``int64``, and how many it has, ``uint32``.

        Raises
        ------
        SchemaError
            A string leaves ``data``.
        CapacityError
            There are 2^31 distinct strings.
        """
        if len(starts) != len(sizes):
            raise SchemaError(f"{len(starts)} starts for {len(sizes)} sizes")
        if outside(starts, sizes.astype(np.int64), data.size).any():
            raise SchemaError(f"tokens that leave their {data.size} bytes of text")
        if not use_compiled(len(starts)):
            return self._number_python(as_array(data), starts, sizes)
        if self._hashed < len(self):
            self._hash_all()
        return self._number_hashed(data, np.ascontiguousarray(starts), np.ascontiguousarray(sizes))

    def _number_hashed(self, data: pa.Buffer, starts: Int64s, sizes: UInt32s) -> UInt32s:
        numbers = np.empty(len(starts), np.uint32)
        first = 0
        while first < len(starts):
            call = NumberRanges(
                data=address(data), data_size=data.size, starts=address(starts),
                sizes=address(sizes), first=first, stop=len(starts), slots=address(self._slots),
                slot_count=len(self._slots), hashes=address(self._hashes),
                ends=address(self._ends), max_items=len(self._hashes), pool=address(self._pool),
                pool_size=len(self._pool), items=address(self._items), numbers=address(numbers),
                secret=self._secret,
            )  # fmt: skip
            first = compiled.number_ranges(*call)
            self._hashed = len(self)
            if first < len(starts):
                self._make_room(1, int(sizes[first]))
        return numbers

    def _number_python(self, data: UInt8s, starts: Int64s, sizes: UInt32s) -> UInt32s:
        """One string at a time, with a dictionary."""
        if len(self._by_bytes) < len(self):
            items: list[Any] = self.strings().to_pylist()
            self._by_bytes = {item: number for number, item in enumerate(items)}
        text, known = data.tobytes(), len(self)
        stops = (starts + sizes.astype(np.int64)).tolist()
        numbers = [
            self._by_bytes.setdefault(text[start:stop], len(self._by_bytes))
            for start, stop in zip(starts.tolist(), stops, strict=True)
        ]
        new = list(self._by_bytes)[known:]
        joined = b"".join(new)
        self._make_room(len(new), len(joined))
        begin = int(self._ends[known])
        ends = begin + np.cumsum(np.array([len(item) for item in new], np.int64))
        self._ends[known + 1 : known + 1 + len(new)] = ends
        self._pool[begin : begin + len(joined)] = np.frombuffer(joined, np.uint8)
        self._items[0] = known + len(new)
        return np.array(numbers, np.uint32)

    def _hash_all(self) -> None:
        """Number the items again with the compiled kernel, which finds them by their hashes."""
        known = len(self)
        ends, data = self._ends[: known + 1].copy(), self._pool.copy()
        self._items[0], self._hashed, self._by_bytes = 0, 0, {}
        self._slots[:] = 0
        self._number_hashed(as_buffer(data), ends[:-1], np.diff(ends).astype(np.uint32))

    def _make_room(self, items: int, size: int) -> None:
        """Make room for so many more items, of so many bytes."""
        known = len(self)
        used = int(self._ends[known])
        if size > len(self._pool) - used:
            pool = np.zeros(max(2 * len(self._pool), used + size), np.uint8)
            pool[:used] = self._pool[:used]
            self._pool = pool
        room = len(self._hashes)
        if known + items <= room:
            return
        while room < known + items:
            room *= 2
        if room > _MAX_ITEMS:
            raise CapacityError.of(known + items, "distinct tokens", where="an index")
        more = room - len(self._hashes)
        self._hashes = np.concatenate((self._hashes, np.zeros(more, np.uint64)))
        self._ends = np.concatenate((self._ends, np.zeros(more, np.int64)))
        self._slots = np.zeros(2 * room, np.uint32)
        if self._hashed:
            hashes = address(self._hashes)
            compiled.enter_items(address(self._slots), len(self._slots), hashes, self._hashed)


def exercise() -> None:
    """Call every wrapper once with little data."""
    count = 2 * _FIRST_ITEMS
    data = pa.py_buffer(np.arange(count, dtype=np.uint16).tobytes())
    starts = 2 * np.arange(count, dtype=np.int64)
    Vocabulary().number(data, starts, np.full(count, 2, np.uint32))
