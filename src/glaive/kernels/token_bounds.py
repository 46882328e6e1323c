"""Find tokens in texts: the longest runs of characters of some set."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from glaive.errors import CapacityError, SchemaError
from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import token_bounds as compiled
from glaive.kernels.string_records import FindTokens
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.memory import as_array, as_buffer
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt8s, UInt32s

__all__ = ["CHARACTERS", "TokenBounds", "character_set", "exercise", "find_tokens"]

CHARACTERS: Final = 0x110000
"""Code points of Unicode."""

_MAX_TEXT: Final = 1 << 32
"""Bytes of a text, less than this: sizes of tokens have 32 bits."""


class TokenBounds(NamedTuple):
    """Where tokens are.

    Parameters
    ----------
    starts, sizes
        First byte of each token, ``int64``, and how many it has, ``uint32``.
    counts
        Tokens of each text, ``int64``.
    """

    starts: Int64s
    sizes: UInt32s
    counts: Int64s


def character_set(ranges: Int64s) -> UInt8s:
    """A set of characters as a bitmap.

    Parameters
    ----------
    ranges
        ``int64`` of shape ``(ranges, 2)``: first code point of each, and that after the last.
    """
    change = np.zeros(CHARACTERS + 1, np.int8)
    change[ranges[:, 0]] += 1
    change[ranges[:, 1]] -= 1
    return np.packbits(np.cumsum(change[:-1], dtype=np.int8).astype(np.bool_), bitorder="little")


def find_tokens(strings: Strings, count: int, characters: UInt8s) -> TokenBounds:
    """Find the longest runs of characters of a set in each of ``count`` texts of UTF-8.

    Bytes that are not UTF-8 are no part of any token, or of one as other characters.

    Parameters
    ----------
    strings, count
        Offsets and bytes, and how many texts there are.
    characters
        As :func:`character_set` returns it.

    Raises
    ------
    SchemaError
        Offsets descend, or leave the data.
    CapacityError
        A text has 4 GiB or more.
    """
    offsets, bits, data = strings
    check_offsets(offsets, bits, data, count)
    if len(characters) != CHARACTERS // 8:
        raise SchemaError(f"a set of characters has {CHARACTERS} bits, not {8 * len(characters)}")
    ends = as_offsets(offsets, bits)[: count + 1].astype(np.int64)
    if count and int(np.diff(ends).max()) >= _MAX_TEXT:
        raise CapacityError.of(int(np.diff(ends).max()), "bytes of one text", where="an index")
    size = int(ends[-1] - ends[0]) if count else 0
    if not use_compiled(size):
        return _find_numpy(as_array(data), ends, characters)
    capacity = (size + count) // 2 + 1
    starts, sizes = np.empty(capacity, np.int64), np.empty(capacity, np.uint32)
    counts = np.zeros(count, np.int64)
    call = FindTokens(
        offsets=address(offsets), width=bits // 8, data=address(data), documents=count,
        parts=address(characters), starts=address(starts), sizes=address(sizes),
        counts=address(counts),
    )  # fmt: skip
    found = compiled.find_tokens(*call)
    return TokenBounds(starts[:found], sizes[:found], counts)


def _find_numpy(data: UInt8s, ends: Int64s, characters: UInt8s) -> TokenBounds:
    """One text at a time: characters, whether each is part of a token, and where that changes."""
    flags = np.unpackbits(characters, bitorder="little").astype(np.bool_)
    starts, sizes, counts = [], [], []
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        numbers, places = [], []
        at = begin
        while at < end:
            lead = int(data[at])
            size = 1 if lead < 0xC0 or lead >= 0xF8 else 2 if lead < 0xE0 else 3 + (lead >= 0xF0)
            if size > end - at:
                size = 1
            number = lead if lead < 128 else CHARACTERS
            if size > 1:
                number = lead & (0x7F >> size)
                for byte in data[at + 1 : at + size].tolist():
                    number = number << 6 | byte & 0x3F
            numbers.append(min(number, CHARACTERS))
            places.append(at)
            at += size
        part = np.append(flags, False)[np.array(numbers, np.int64)]
        edges = np.flatnonzero(np.diff(part, prepend=False, append=False))
        bounds = np.array([*places, end], np.int64)[edges].reshape(-1, 2)
        starts.append(bounds[:, 0])
        sizes.append(bounds[:, 1] - bounds[:, 0])
        counts.append(len(bounds))
    none = np.zeros(0, np.int64)
    return TokenBounds(
        np.concatenate([none, *starts]),
        np.concatenate([none, *sizes]).astype(np.uint32),
        np.array(counts, np.int64),
    )


def exercise() -> None:
    """Call every wrapper once with little data."""
    strings = Strings(as_buffer(np.array([0, 3], np.int32)), 32, pa.py_buffer(b"a b"))
    find_tokens(strings, 1, character_set(np.array([[97, 123]])))
