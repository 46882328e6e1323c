"""Files of other formats become rows of a dataset: plan, picklable tasks, one commit."""

from glaive.ingestion.drift import DriftRule
from glaive.ingestion.formats.registry import FORMATS
from glaive.ingestion.job import IngestResult, ingest
from glaive.ingestion.plan import IngestMode
from glaive.ingestion.rejects import BAD_RECORDS
from glaive.ingestion.task import IngestTask

__all__ = [
    "BAD_RECORDS",
    "FORMATS",
    "DriftRule",
    "IngestMode",
    "IngestResult",
    "IngestTask",
    "ingest",
]
