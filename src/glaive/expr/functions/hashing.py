"""Digests of text and bytes, in a loop over values around the C library's; blake3 is Python."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from glaive.errors import FilterError
from glaive.expr.functions.blake3 import blake3
from glaive.expr.functions.coercion import BINARY, TEXT, signature
from glaive.expr.functions.encoding import hex_text
from glaive.expr.functions.registry import function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.rows import constant
from glaive.expr.sizes import reserve

__all__: list[str] = []

_ALGORITHMS: dict[str, Callable[[Any], bytes]] = {
    "md5": lambda raw: hashlib.md5(raw, usedforsecurity=False).digest(),
    "sha224": lambda raw: hashlib.sha224(raw).digest(),
    "sha256": lambda raw: hashlib.sha256(raw).digest(),
    "sha384": lambda raw: hashlib.sha384(raw).digest(),
    "sha512": lambda raw: hashlib.sha512(raw).digest(),
    "blake2s": lambda raw: hashlib.blake2s(raw).digest(),
    "blake2b": lambda raw: hashlib.blake2b(raw).digest(),
    "blake3": lambda raw: blake3(bytes(raw)),
}


def _digests(algorithm: str, values: Any) -> Any:
    """Digests of all values, null for null ones."""
    compute = _ALGORITHMS[algorithm]
    bounds, raw = _bytes(values)
    reserve(algorithm, 64 * len(values), len(values), pa.binary())
    made = [compute(raw[begin:end]) for begin, end in pairwise(bounds)]
    size = len(made[0]) if made else 0
    offsets = pa.array(np.arange(len(made) + 1, dtype=np.int32) * size, pa.int32())
    buffers = [None, offsets.buffers()[1], pa.py_buffer(b"".join(made))]
    digests = pa.Array.from_buffers(pa.binary(), len(made), buffers)
    return pc.if_else(values.is_valid(), digests, None) if values.null_count else digests


def _bytes(values: Any) -> tuple[list[int], Any]:
    """Where each value begins, and the bytes; nulls are empty or something else."""
    _, offsets, data = values.buffers()
    wide = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    start = values.offset * np.dtype(wide).itemsize
    bounds = np.frombuffer(offsets, wide, len(values) + 1, start)
    return bounds.tolist(), memoryview(data if data is not None else b"")


def _define() -> None:
    def define(algorithm: str) -> None:
        @function(algorithm, takes=signature(BINARY, result=pa.binary()))
        def _sha(values: Any) -> Any:
            return _digests(algorithm, values)

    for algorithm in ("sha224", "sha256", "sha384", "sha512"):
        define(algorithm)


_define()


@function("md5", takes=signature(BINARY, result=pa.string_view()))
def _md5(values: Any) -> Any:
    return hex_text(_digests("md5", values))


@function("digest", takes=signature(BINARY, TEXT, result=pa.binary()))
def _digest(values: Any, algorithm: Any) -> Any:
    name = algorithm.as_py() if constant(algorithm) else None
    if name not in _ALGORITHMS:
        found = repr(name) if constant(algorithm) else "a column"
        raise FilterError(
            f"digest: the algorithm must be one of {', '.join(_ALGORITHMS)}, found {found}"
        )
    return _digests(name, values)
