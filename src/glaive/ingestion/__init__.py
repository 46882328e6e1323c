"""Files of other formats become rows of a dataset: plan, picklable tasks, one commit."""

from glaive.ingestion.formats import FORMATS
from glaive.ingestion.job import ingest
from glaive.ingestion.plan import DriftRule, IngestMode
from glaive.ingestion.sources import BAD_RECORDS
from glaive.ingestion.task import IngestResult, IngestTask

__all__ = [
    "BAD_RECORDS",
    "FORMATS",
    "DriftRule",
    "IngestMode",
    "IngestResult",
    "IngestTask",
    "ingest",
]
