"""Functions that make columns, under the names of ``lance.udf``."""

from __future__ import annotations

from glaive.dataset.columns.udf import BatchUDF, batch_udf

__all__ = ["BatchUDF", "batch_udf"]
