"""The names of ``lance.torch.kmeans``, which are refused at their first use."""

from __future__ import annotations

from glaive.compat.absent import absent_names
from glaive.compat.refusals import REFUSED

__all__: list[str] = []

__getattr__ = absent_names(__name__, REFUSED[__name__], globals())
