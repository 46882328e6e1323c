"""Functions that make columns, under the names of ``lance.udf``."""

from __future__ import annotations

from glaive.compat.absent import absent_names
from glaive.compat.refusals import REFUSED
from glaive.dataset.columns.udf import BatchUDF, batch_udf
from glaive.dataset.columns.udf_checkpoint import BatchUDFCheckpoint

__all__ = ["BatchUDF", "BatchUDFCheckpoint", "batch_udf"]

__getattr__ = absent_names(__name__, REFUSED[__name__], globals())
