"""Bodies of responses of object stores, never longer than what was asked for or stated.

A server may state any length and send another one. Memory is taken for bytes that arrived, and
one that goes on after the last byte it owes is left: its bytes are not waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import obstore

from glaive.io.side_by_side import side_by_side

__all__ = ["LARGEST_OBJECT", "body_of_object", "body_of_ranges", "body_of_tail"]

LARGEST_OBJECT: Final = 1 << 62
"""Bytes of an object at most, far more than any store takes."""


def body_of_object(store: Any, key: str) -> bytes:
    """A whole object: as many bytes as the server stated.

    Raises
    ------
    ValueError
        The server sends more than that, or fewer.
    """
    response = obstore.get(store, key)
    return _checked(response, response.meta["size"])


def body_of_tail(store: Any, key: str, size: int) -> tuple[int, bytes]:
    """Size of the object, and its last bytes, ``size`` of them at most."""
    response = obstore.get(store, key, options={"range": {"suffix": size}})
    total = response.meta["size"]
    return total, _checked(response, min(size, total))


def body_of_ranges(
    store: Any, key: str, starts: Sequence[int], lengths: Sequence[int]
) -> list[bytes]:
    """One body per range, in order, requested side by side."""
    ranges = list(zip(starts, lengths, strict=True))

    def read(of: tuple[int, int]) -> bytes:
        start, length = of
        response = obstore.get(store, key, options={"range": (start, start + length)})
        return _checked(response, length, shorter=True)

    return side_by_side(read, ranges)


def _checked(response: Any, size: int, *, shorter: bool = False) -> bytes:
    """The body; one chunk of it ends with the body, or as soon as it has a byte too many."""
    if size > LARGEST_OBJECT:
        raise ValueError(f"the server stated {size} bytes, more than an object has")
    data: bytes = next(iter(response.stream(min_chunk_size=size + 1)), b"")
    if len(data) > size:
        raise ValueError(f"the server sent more bytes than the {size} that it had to")
    if len(data) < size and not shorter:
        raise ValueError(f"incomplete: the server sent {len(data)} bytes of {size}")
    return data
