"""Digests of strings and bytes: a loop over values that calls hashlib; blake3 is pure Python."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from glaive.expr.functions.blake3 import blake3
from glaive.expr.functions.coercion import BINARY, TEXT, signature
from glaive.expr.functions.encoding import hex_text
from glaive.expr.functions.registry import function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import constant_name
from glaive.expr.sizes import check_bytes

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
    """Digests of all values; nulls stay nulls."""
    compute = _ALGORITHMS[algorithm]
    bounds, raw = _bytes(values)
    check_bytes(algorithm, 64 * len(values), len(values), pa.binary())
    hashes = [compute(raw[begin:end]) for begin, end in pairwise(bounds)]
    size = len(hashes[0]) if hashes else 0
    offsets = pa.array(np.arange(len(hashes) + 1, dtype=np.int32) * size, pa.int32())
    buffers = [None, offsets.buffers()[1], pa.py_buffer(b"".join(hashes))]
    digests = pa.Array.from_buffers(pa.binary(), len(hashes), buffers)
    return pc.if_else(values.is_valid(), digests, None) if values.null_count else digests


def _bytes(values: Any) -> tuple[list[int], Any]:
    """The bounds of each value, and the bytes; those of nulls are arbitrary."""
    _, offsets, data = values.buffers()
    wide = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    start = values.offset * np.dtype(wide).itemsize
    bounds = np.frombuffer(offsets, wide, len(values) + 1, start)
    return bounds.tolist(), memoryview(data if data is not None else b"")


for _name in ("sha224", "sha256", "sha384", "sha512"):
    function(_name, takes=signature(BINARY, result=pa.binary()))(partial(_digests, _name))


@function("md5", takes=signature(BINARY, result=pa.string_view()))
def _md5(values: Any) -> Any:
    return hex_text(_digests("md5", values))


@function("digest", takes=signature(BINARY, TEXT, result=pa.binary()))
def _digest(values: Any, algorithm: Any) -> Any:
    return _digests(constant_name("digest: the algorithm", algorithm, _ALGORITHMS), values)
