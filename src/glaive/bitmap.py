"""Sets of integers, under the name of ``lance.bitmap``."""

from __future__ import annotations

from glaive.dataset.fragments.metadata import Bitmap

__all__ = ["Bitmap"]
