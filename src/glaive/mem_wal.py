"""The names of ``lance.mem_wal``, which are refused at their first use."""

from __future__ import annotations

from glaive.compat.absent import REFUSED, absent_names

__all__: list[str] = []

__getattr__ = absent_names(__name__, REFUSED[__name__], globals())
