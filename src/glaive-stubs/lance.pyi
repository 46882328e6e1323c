"""The names of pylance's compiled module, which some packages import from."""

from typing import Any

from glaive.arrow import BFloat16 as BFloat16
from glaive.arrow import bfloat16_array as bfloat16_array
from glaive.compat import PYLANCE_VERSION as __version__
from glaive.dataset.fragment_metadata import Bitmap as Bitmap
from glaive.dataset.fragment_metadata import DeletionFile as DeletionFile
from glaive.dataset.fragment_metadata import RowDatasetVersionMeta as RowDatasetVersionMeta
from glaive.dataset.fragment_metadata import RowIdMeta as RowIdMeta
from glaive.dataset.fragment_metadata import RowIdSequence as RowIdSequence
from glaive.dataset.layout import format_fragment as format_fragment
from glaive.dataset.layout import format_manifest as format_manifest
from glaive.dataset.layout import format_schema as format_schema
from glaive.dataset.layout import list_transactions as list_transactions
from glaive.dataset.monitoring import MetricDescription as MetricDescription
from glaive.dataset.monitoring import MetricPoint as MetricPoint
from glaive.dataset.monitoring import bytes_read_counter as bytes_read_counter
from glaive.dataset.monitoring import iops_counter as iops_counter
from glaive.dataset.monitoring import lance_metrics_catalog as lance_metrics_catalog
from glaive.dataset.monitoring import register_lance_metrics_recorder as register_lance_metrics_recorder
from glaive.dataset.monitoring import simd_info as simd_info
from glaive.dataset.monitoring import snapshot_lance_metrics as snapshot_lance_metrics
from glaive.dataset.pylance_members import manifest_needs_migration as manifest_needs_migration
from glaive.dataset.cleanup import CleanupCandidateFile as CleanupCandidateFile
from glaive.dataset.cleanup import CleanupExplanation as CleanupExplanation
from glaive.dataset.cleanup import CleanupReferencedBranch as CleanupReferencedBranch
from glaive.dataset.cleanup import CleanupStats as CleanupStats
from glaive.dataset.writing.plan import DatasetBasePath as DatasetBasePath
from glaive.file import LanceBufferDescriptor as LanceBufferDescriptor
from glaive.file import LanceColumnMetadata as LanceColumnMetadata
from glaive.file import LanceFileMetadata as LanceFileMetadata
from glaive.file import LanceFileReader as LanceFileReader
from glaive.file import LanceFileSession as LanceFileSession
from glaive.file import LanceFileStatistics as LanceFileStatistics
from glaive.file import LanceFileWriter as LanceFileWriter
from glaive.file import LancePageMetadata as LancePageMetadata
from glaive.file import stable_version as stable_version
from glaive.format.fields import LanceSchema as LanceSchema
from glaive.index.text.tokenizers import FtsToken as FtsToken
from glaive.index.text.tokenizers import tokenize as tokenize
from glaive.indices import training as indices
from glaive.io.store import IOStats as IOStats
from glaive.optimize import Compaction as Compaction
from glaive.optimize import CompactionMetrics as CompactionMetrics
from glaive.optimize import CompactionPlan as CompactionPlan
from glaive.optimize import CompactionTask as CompactionTask
from glaive.optimize import RewriteResult as RewriteResult
from glaive.scan.blob_files import BlobFile as LanceBlobFile
from glaive.scan.options import ScanStatistics as ScanStatistics
from glaive.tracing import TraceEvent as TraceEvent
from glaive.tracing import capture_trace_events as capture_trace_events
from glaive.tracing import shutdown_tracing as shutdown_tracing
from glaive.tracing import trace_to_chrome as trace_to_chrome

def __getattr__(name: str) -> Any: ...
