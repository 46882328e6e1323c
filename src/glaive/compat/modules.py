"""Empty modules under pylance's names: a table of their names, and a loader.

``import glaive.bitmap`` works as for a file. Editors find the names in the stubs ``glaive-stubs``,
which ``python -m tests.docs.stubs`` writes out of the table.
"""

from __future__ import annotations

from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from glaive.compat.absent import REFUSED, absent_names, needs_package

MODULES: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "_datagen": (
        "Random rows; pylance's wheels have none either.",
        {"dataset.pylance_members": "is_datagen_supported rand_batches"},
    ),
    "_dataset": ("Batches for training loops of older programs.", {}),
    "_dataset.cache": (
        "A stream of batches that can be read again.",
        {"torch.batch_cache": "CachedDataset"},
    ),
    "_dataset.sharded_batch_iterator": (
        "One process's share of a dataset.",
        {"torch.batch_cache": "ShardedBatchIterator"},
    ),
    "bitmap": ("Sets of integers.", {"dataset.fragment_metadata": "Bitmap"}),
    "blob": (
        "Columns of large values.",
        {
            "dataset.blobs": "BlobColumn BlobIterator blob_array blob_field",
            "format.blobs": "Blob BlobArray BlobType",
            "scan.blob_files": "BlobFile LanceBlobFile=BlobFile DEFAULT_BLOB_BUFFER_SIZE",
        },
    ),
    "commit": ("Commits.", {"errors": "CommitConflictError", "table.root": "CommitLock"}),
    "debug": (
        "Texts for people who look for a fault.",
        {"dataset.layout": "format_fragment format_manifest format_schema list_transactions"},
    ),
    "download": ("Names that are refused at their first use: nothing is downloaded.", {}),
    "fragment": (
        "Fragments.",
        {
            "dataset.columns.udf": "BatchUDF",
            "dataset.fragment": "FragmentSession LanceFragment",
            "dataset.fragment_metadata": (
                "Bitmap DataFile DeletionFile FragmentMetadata RowDatasetVersionMeta RowIdMeta "
                "RowIdSequence"
            ),
            "dataset.writing.fragments": "FragmentWriteProgress NoopFragmentWriteProgress",
            "dataset.writing.plan": "DEFAULT_MAX_BYTES_PER_FILE",
            "dataset.transactions": "write_fragments",
            "scan.snapshot": "Session",
        },
    ),
    "indices": (
        "Building vector indices step by step.",
        {
            "dataset.indexing.builder": "IndicesBuilder",
            "dataset.indexing.create": "IndexConfig IndexFileVersion SupportedDistributedIndices",
            "dataset.indexing.describe": "IndexSegmentDescription",
            "dataset.indexing.vector_models": "IvfModel PqModel",
            "dataset.lance_operation": "IndexSegment=Index",
            "indices.builder": "builder=",
            "indices.ivf": "ivf=",
            "indices.pq": "pq=",
        },
    ),
    "indices.builder": (
        "Building vector indices step by step.",
        {
            "dataset.indexing.builder": "IndicesBuilder RESIDUAL_COLUMN",
            "dataset.indexing.create": "IndexConfig",
            "dataset.indexing.vector_models": "IvfModel PARTITION_COLUMN=PARTITION PqModel",
            "index.vector.storage": "PQ_COLUMN=PRODUCT",
        },
    ),
    "indices.ivf": (
        "Partitions of vector indices.",
        {"dataset.indexing.vector_models": "IvfModel", "file": "LanceFileReader LanceFileWriter"},
    ),
    "indices.pq": (
        "Codebooks of product quantization.",
        {"dataset.indexing.vector_models": "PqModel", "file": "LanceFileReader LanceFileWriter"},
    ),
    "indices.training": (
        "Steps of building vector indices as functions.",
        {
            "dataset.indexing.builder": (
                "build_rq_model get_ivf_model train_ivf_model train_pq_model"
            ),
            "dataset.indexing.create": "IndexConfig",
            "dataset.indexing.describe": "IndexDescription IndexSegmentDescription",
            "dataset.indexing.vector_models": "IvfModel",
            "dataset.lance_operation": "IndexSegment=Index",
        },
    ),
    "lance": (
        "The names of pylance's compiled module, which some packages import from.",
        {
            "arrow": "BFloat16 bfloat16_array",
            "compat": "__version__=PYLANCE_VERSION",
            "dataset.fragment_metadata": (
                "Bitmap DeletionFile RowDatasetVersionMeta RowIdMeta RowIdSequence"
            ),
            "dataset.layout": "format_fragment format_manifest format_schema list_transactions",
            "dataset.monitoring": (
                "MetricDescription MetricPoint bytes_read_counter iops_counter "
                "lance_metrics_catalog register_lance_metrics_recorder simd_info "
                "snapshot_lance_metrics"
            ),
            "dataset.pylance_members": "manifest_needs_migration",
            "dataset.cleanup": (
                "CleanupCandidateFile CleanupExplanation CleanupReferencedBranch CleanupStats"
            ),
            "dataset.writing.plan": "DatasetBasePath",
            "file": (
                "LanceBufferDescriptor LanceColumnMetadata LanceFileMetadata LanceFileReader "
                "LanceFileSession LanceFileStatistics LanceFileWriter LancePageMetadata "
                "stable_version"
            ),
            "format.fields": "LanceSchema",
            "index.text.tokenizers": "FtsToken tokenize",
            "indices.training": "indices=",
            "io.store": "IOStats",
            "optimize": "Compaction CompactionMetrics CompactionPlan CompactionTask RewriteResult",
            "scan.blob_files": "LanceBlobFile=BlobFile",
            "scan.options": "ScanStatistics",
            "tracing": "TraceEvent capture_trace_events shutdown_tracing trace_to_chrome",
        },
    ),
    "log": (
        "Set-up of logging.",
        {
            "tracing": (
                "ENV_NAME_PYLANCE_LOGGING_LEVEL LOGGER get_log_level get_python_log_level "
                "set_logger"
            )
        },
    ),
    "mem_wal": ("Names that are refused at their first use.", {}),
    "optimize": (
        "Compaction.",
        {
            "dataset.compact": "Compaction",
            "dataset.compaction_tasks": (
                "CompactionMetrics CompactionOptions=CompactionKeywords CompactionPlan "
                "CompactionTask RewriteResult"
            ),
        },
    ),
    "otel": (
        "Metrics for OpenTelemetry.",
        {
            "dataset.monitoring": (
                "MetricDescription MetricPoint instrument_lance_metrics lance_metrics_catalog "
                "register_lance_metrics_recorder snapshot_lance_metrics"
            )
        },
    ),
    "progress": (
        "Progress of writes and of index builds.",
        {
            "dataset.indexing.task": "IndexProgress",
            "dataset.writing.fragments": (
                "FileSystemFragmentWriteProgress FragmentWriteProgress NoopFragmentWriteProgress"
            ),
        },
    ),
    "query": (
        "Queries of full-text search, which ``full_text_query`` takes, and of similar texts.",
        {
            "scan.nearest.options": "MinHashQuery",
            "scan.text_queries": (
                "BooleanQuery BoostQuery CombinedFieldsQuery DocumentGranularity FullTextOperator "
                "FullTextQuery FullTextQueryType MatchQuery MultiMatchQuery Occur PhraseQuery"
            ),
        },
    ),
    "schema": (
        "Schemas.",
        {"format.extension": "json_to_schema schema_to_json", "format.fields": "LanceSchema"},
    ),
    "torch.async_dataset": (
        "A dataset read by a process of its own.",
        {"torch.datasets": "AsyncDataset async_dataset"},
    ),
    "torch.bench_utils": (
        "True neighbours and recall.",
        {"torch.vectors": "ground_truth infer_vector_column recall sort_tensors"},
    ),
    "torch.data": (
        "Datasets of PyTorch over Lance datasets, and names that have no torch in them.",
        {
            "sampler": (
                "FullScanSampler Sampler ShardedBatchSampler ShardedFragmentSampler maybe_sample"
            ),
            "torch.batch_cache": "CachedDataset",
            "torch.datasets": "LanceDataset LanceLoader SafeLanceDataset get_safe_loader",
            "torch.dist": "get_global_rank get_global_world_size",
            "torch.tensors": "TensorDataset concat_batches to_tensor",
        },
    ),
    "torch.distance": (
        "Distances between tensors of vectors.",
        {
            "torch.vectors": (
                "argmin_l2 cosine_distance dot_distance l2_distance pairwise_cosine pairwise_l2"
            )
        },
    ),
    "torch.kmeans": ("Clusters of vectors on any device of torch.", {"torch.vectors": "KMeans"}),
    "udf": (
        "Functions that make columns.",
        {"dataset.columns.udf": "BatchUDF BatchUDFCheckpoint batch_udf"},
    ),
    "util": (
        "K-means, a check of vector indices, and times.",
        {
            "dataset.indexing.duplicates": "KMeans validate_vector_index",
            "dataset.version": "sanitize_ts td_to_micros",
        },
    ),
    "vector": (
        "Tables of vectors, near duplicates, training on accelerators.",
        {
            "dataset.indexing.duplicates": (
                "find_duplicate_pairs find_duplicate_pairs_in_partition get_ivf_partition_info "
                "hamming_clustering_for_ivf_partition hamming_clustering_for_range "
                "hamming_clustering_for_sample"
            ),
            "dataset.writing.source": "vec_to_table",
            "dataset.write": "write_dataset",
            "torch.vectors": (
                "compute_partitions compute_pq_codes one_pass_assign_ivf_pq_on_accelerator "
                "one_pass_train_ivf_pq_on_accelerator train_ivf_centroids_on_accelerator "
                "train_pq_codebook_on_accelerator"
            ),
        },
    ),
}
"""Topic of each module, and its names by the module that has them.

``name=other`` is another module's ``other``; ``name=`` is that module itself.
"""


_NEED_TORCH: Final = ("torch.datasets", "torch.tensors", "torch.vectors")


def _has_torch() -> bool:
    try:
        import_module("torch")
    except ImportError:
        return False
    return True


class Loader:
    """Loader of such a module; each name is looked up on first use."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let the import system make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its names."""
        about, homes = MODULES[module.__name__.removeprefix("glaive.")]
        entries = {
            entry.partition("=")[0]: (home, entry)
            for home, listed in homes.items()
            for entry in listed.split()
        }
        own = vars(module)
        refused = absent_names(module.__name__, REFUSED.get(module.__name__, ()), own)

        def find(name: str) -> Any:
            if name not in entries:
                return refused(name)
            home, entry = entries[name]
            _, is_other, other = entry.partition("=")
            if home in _NEED_TORCH and not _has_torch():
                stand_in = needs_package(module.__name__, name, "torch", "pip install torch")
                return own.setdefault(name, stand_in)
            found = import_module(f"glaive.{home}")
            value = getattr(found, other or name) if other or not is_other else found
            return own.setdefault(name, value)

        own["__doc__"] = f"{about} Under the names of ``lance{module.__name__[6:]}``."
        own["__all__"] = sorted(entries)
        own["__getattr__"] = find
        own["__dir__"] = lambda: sorted({*own, *entries})


def spec_of(name: str) -> ModuleSpec | None:
    """Return the specification of a module of the table; ``None`` for other modules."""
    short = name.removeprefix("glaive.")
    if short not in MODULES:
        return None
    is_package = any(other.startswith(f"{short}.") for other in MODULES)
    return ModuleSpec(name, Loader(), is_package=is_package)  # type: ignore[arg-type]  # has the methods
