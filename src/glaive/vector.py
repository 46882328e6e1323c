"""Tables of vectors, under the names of ``lance.vector``."""

from __future__ import annotations

from glaive.compat.absent import absent_names
from glaive.compat.refusals import REFUSED
from glaive.dataset.vectors_table import vec_to_table

__all__ = ["vec_to_table"]

__getattr__ = absent_names(__name__, REFUSED[__name__], globals())
