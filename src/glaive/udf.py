"""Functions that make columns, under the names of ``lance.udf``."""

from __future__ import annotations

from glaive.compat.absent import REFUSED, absent_names
from glaive.dataset.columns.udf import BatchUDF, BatchUDFCheckpoint, batch_udf

__all__ = ["BatchUDF", "BatchUDFCheckpoint", "batch_udf"]

__getattr__ = absent_names(__name__, REFUSED[__name__], globals())
