"""Digests of text and bytes, in a loop over values around the C library's; blake3 is Python."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from glaive.errors import FilterError
from glaive.expr.functions.blake3 import blake3
from glaive.expr.functions.coercion import BINARY, TEXT, signature
from glaive.expr.functions.registry import function
from glaive.expr.functions.untyped import pa
from glaive.expr.functions.values import constant

__all__: list[str] = []

_ALGORITHMS: dict[str, Callable[[bytes], bytes]] = {
    "md5": lambda raw: hashlib.md5(raw, usedforsecurity=False).digest(),
    "sha224": lambda raw: hashlib.sha224(raw).digest(),
    "sha256": lambda raw: hashlib.sha256(raw).digest(),
    "sha384": lambda raw: hashlib.sha384(raw).digest(),
    "sha512": lambda raw: hashlib.sha512(raw).digest(),
    "blake2s": lambda raw: hashlib.blake2s(raw).digest(),
    "blake2b": lambda raw: hashlib.blake2b(raw).digest(),
    "blake3": blake3,
}


def _digests(algorithm: str, values: Any) -> Any:
    compute = _ALGORITHMS[algorithm]
    made = [None if raw is None else compute(raw) for raw in values.to_pylist()]
    return pa.array(made, pa.binary())


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
    digests = _digests("md5", values)
    made = [None if raw is None else raw.hex() for raw in digests.to_pylist()]
    return pa.array(made, pa.string())


@function("digest", takes=signature(BINARY, TEXT, result=pa.binary()))
def _digest(values: Any, algorithm: Any) -> Any:
    name = algorithm.as_py() if constant(algorithm) else None
    if name not in _ALGORITHMS:
        found = repr(name) if constant(algorithm) else "a column"
        raise FilterError(
            f"digest: the algorithm must be one of {', '.join(_ALGORITHMS)}, found {found}"
        )
    return _digests(name, values)
