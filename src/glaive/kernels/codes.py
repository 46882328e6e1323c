"""Compare a query with the codes of vectors: by tables of distances, or by the bytes themselves.

Codes are rows of bytes. With tables, each byte of a row selects an entry of a table of its
own, and the entries add up to the distance; without, bytes are numbers.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import codes as compiled
from glaive.types import Float32s, UInt8s

__all__ = [
    "MAX_WIDTH",
    "dot_bytes",
    "encode_numbers",
    "exercise",
    "gap_bytes",
    "part_products",
    "sum_tables",
]

MAX_WIDTH: Final = 1 << 15
"""Bytes of a row, up to which squared distances fit 31 bits."""

_ENTRIES: Final = 256


def sum_tables(codes: UInt8s, tables: Float32s, start: Float32s) -> Float32s:
    """For each row the sum of what its bytes select.

    Parameters
    ----------
    codes
        ``uint8`` of shape ``(rows, width)``, contiguous.
    tables
        ``float32`` of shape ``(width, 256)``, contiguous.
    start
        ``float32`` of shape ``(rows,)``: added to the sums.
    """
    rows, width = _check(codes)
    if tables.shape != (width, _ENTRIES) or not _is_plain(tables) or start.shape != (rows,):
        raise ValueError(f"tables {tables.shape} and {start.shape} for codes {codes.shape}")
    if not use_compiled(codes.size):
        with np.errstate(all="ignore"):
            sums: Float32s = start + tables[np.arange(width), codes].sum(axis=1, dtype=np.float32)
            return sums
    out = np.array(start, np.float32)
    compiled.sum_tables(address(codes), rows, width, address(tables), address(out))
    return out


def part_products(
    entries: Float32s, vector: Float32s, factor: float = 1, center: Float32s | None = None
) -> Float32s:
    """Products of the parts of a vector with the entries of a codebook, times a factor.

    Parameters
    ----------
    entries
        ``float32`` of shape ``(parts, width, entries)``, contiguous: those of a part number by
        number.
    vector
        ``float32`` of shape ``(parts * width,)``.
    center
        Of the same shape: taken off the vector.

    Returns
    -------
    numpy.ndarray
        ``float32`` of shape ``(parts, entries)``.
    """
    right = entries.ndim == 3 and _is_plain(entries) and _is_plain(vector)
    parts, width, count = entries.shape if right else (0, 0, 0)
    if not right or vector.shape != (parts * width,):
        raise ValueError(f"a vector {vector.shape} for entries {entries.shape}")
    if center is not None and not (_is_plain(center) and center.shape == vector.shape):
        raise ValueError(f"a center {center.shape} of a vector {vector.shape}")
    if not use_compiled(entries.size):
        with np.errstate(all="ignore"):
            beyond = vector if center is None else vector - center
            scaled = np.float32(factor) * beyond.reshape(parts, 1, width)
            return np.asarray((scaled @ entries)[:, 0], np.float32)
    out = np.empty((parts, count), np.float32)
    compiled.part_products(
        address(entries), parts, width, count, address(vector),
        0 if center is None else address(center), np.float32(factor), address(out),
    )  # fmt: skip
    return out


def dot_bytes(codes: UInt8s, query: Float32s) -> Float32s:
    """Product of each row with a query of ``float32``."""
    rows, width = _check(codes)
    if query.shape != (width,) or not _is_plain(query):
        raise ValueError(f"a query {query.shape} for codes {codes.shape}")
    if not use_compiled(codes.size):
        with np.errstate(all="ignore"):
            products: Float32s = codes.astype(np.float32) @ query
            return products
    out = np.empty(rows, np.float32)
    compiled.dot_bytes(address(codes), rows, width, address(query), address(out))
    return out


def gap_bytes(codes: UInt8s, query: UInt8s) -> Float32s:
    """Squared distance of each row from a query of bytes."""
    rows, width = _check(codes)
    if query.shape != (width,) or query.dtype != np.uint8 or not query.flags.c_contiguous:
        raise ValueError(f"a query {query.shape} of {query.dtype} for codes {codes.shape}")
    if not use_compiled(codes.size):
        gaps = codes.astype(np.int32) - query
        far: Float32s = np.square(gaps).sum(axis=1).astype(np.float32)
        return far
    out = np.empty(rows, np.float32)
    compiled.gap_bytes(address(codes), rows, width, address(query), address(out))
    return out


def encode_numbers(numbers: Float32s, start: float, step: float) -> tuple[UInt8s, float]:
    """The byte of each number, and the sum of all: how many steps it is above a start.

    Of lower numbers, and of NaN, 0; of greater ones 255. The step is not 0.
    """
    if numbers.ndim != 1 or not _is_plain(numbers) or not step:
        raise ValueError(f"numbers {numbers.shape} of {numbers.dtype}, step {step}")
    if not use_compiled(len(numbers)):
        with np.errstate(all="ignore"):
            wide = numbers.astype(float)
            places = np.fmin(np.fmax((wide - start) / step, 0), 255)
            return places.astype(np.uint8), float(wide.sum())
    out = np.empty(len(numbers), np.uint8)
    total = compiled.encode_numbers(address(numbers), len(numbers), start, step, address(out))
    return out, total


def _is_plain(numbers: Float32s) -> bool:
    return numbers.dtype == np.float32 and bool(numbers.flags.c_contiguous)


def _check(codes: UInt8s) -> tuple[int, int]:
    if codes.ndim != 2 or codes.dtype != np.uint8 or not codes.flags.c_contiguous:
        raise ValueError(f"codes of {codes.dtype} and shape {codes.shape}")
    if codes.shape[1] > MAX_WIDTH:
        raise ValueError(f"codes of {codes.shape[1]} bytes, more than {MAX_WIDTH}")
    return codes.shape


def exercise() -> None:
    """Call every wrapper once with little data."""
    codes = np.zeros((2, 4), np.uint8)
    sum_tables(codes, np.zeros((4, _ENTRIES), np.float32), np.zeros(2, np.float32))
    part_products(np.zeros((2, 2, 3), np.float32), np.zeros(4, np.float32))
    dot_bytes(codes, np.zeros(4, np.float32))
    gap_bytes(codes, codes[0])
    encode_numbers(np.zeros(4, np.float32), 0.0, 1.0)
