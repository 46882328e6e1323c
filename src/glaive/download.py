"""The names of ``lance.download``, which are refused at their first use: nothing is downloaded."""

from __future__ import annotations

from glaive.compat.absent import REFUSED, absent_names

__all__: list[str] = []

__getattr__ = absent_names(__name__, REFUSED[__name__], globals())
