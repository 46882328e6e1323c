"""Tables of vectors, under the names of ``lance.vector``."""

from __future__ import annotations

from glaive.dataset.vectors_table import vec_to_table

__all__ = ["vec_to_table"]
