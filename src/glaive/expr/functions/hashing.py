"""Digests of strings and bytes."""

from __future__ import annotations

from glaive.expr.functions.coercion import BINARY, TEXT, signature
from glaive.expr.functions.library import library
from glaive.expr.functions.untyped import pa

__all__: list[str] = []

library("md5", takes=signature(BINARY, result=pa.string_view()))
for _name in ("sha224", "sha256", "sha384", "sha512"):
    library(_name, takes=signature(BINARY, result=pa.binary()))
library("digest", takes=signature(BINARY, TEXT, result=pa.binary()))
