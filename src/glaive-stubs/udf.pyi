"""Functions that make columns."""

from typing import Any

from glaive.dataset.columns.udf import BatchUDF as BatchUDF
from glaive.dataset.columns.udf import BatchUDFCheckpoint as BatchUDFCheckpoint
from glaive.dataset.columns.udf import batch_udf as batch_udf

def __getattr__(name: str) -> Any: ...
