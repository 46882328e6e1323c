"""The names of pylance that glaive does not have, by module, with the reason and the way round.

``docs/guide/names.md`` lists all of pylance's names; tests compare it with both libraries.
"""

from __future__ import annotations

from typing import Final

from glaive.compat.absent import Absence

__all__ = ["REFUSED", "REFUSED_MEMBERS"]

_WAL = (
    "memory-WAL tables are another kind of table",
    "Write with write_dataset(mode='append') or merge_insert, which commit each call",
)
_SHARDS = Absence(
    *_WAL,
    "CompactedSsTable ExecutionPlan LsmPointLookupPlanner LsmScanner LsmVectorSearchPlanner "
    "ShardSnapshot ShardWriter ShardingField ShardingSpec evaluate_sharding_spec",
)
_BLOB_WRITERS = Absence(
    "files of blobs are written with the rows that own them",
    "Pass blob_array(...) to write_dataset or fragment.write_fragments, which pack the values",
    "BlobDescriptor BlobDescriptorArrayBuilder DedicatedBlobWriter PackedBlobWriter",
)
_TABLE_PROVIDER = Absence(
    "it hands a pointer to pylance's own Rust library",
    "Register dataset.to_pyarrow_dataset() with DataFusion: ctx.register_dataset(name, …)",
    "FFILanceTableProvider",
)
_TOKENS = Absence(
    "tokenizers work inside of full-text indices",
    "Search with full_text_query, or tokenize the texts by a library for that",
    "FtsToken tokenize",
)
_SEARCH_QUERY = Absence(
    "search and filter are options of their own",
    "Use scanner(nearest=…, filter=…) or scanner(full_text_query=…, filter=…)",
    "PySearchFilter VectorSearchQuery",
)
_PARTITIONS = (
    "rows of a vector index are read by searches only",
    "Search with scanner(nearest=…), or take vectors with to_table(columns=…)",
)
_MODELS = Absence(
    "glaive downloads nothing",
    "Install the extra 'jieba' or 'icu' for these tokenizers",
    "check_lindera download_jieba download_lindera import_requests language_model_home main "
    "LANGUAGE_MODEL_HOME",
)
_TRANSFORM = Absence(
    "an inner step of add_columns, which takes functions, expressions and rows as they are",
    "Call dataset.add_columns(…)",
    "normalize_transform",
)
_NATIVE = (
    "it is an inner object of pylance's Rust library",
    "Use the public classes of glaive.dataset, glaive.file and glaive.namespace",
)

REFUSED: Final[dict[str, tuple[Absence, ...]]] = {
    "glaive": (_SHARDS, _BLOB_WRITERS, _TABLE_PROVIDER, _TOKENS),
    "glaive.blob": (_BLOB_WRITERS,),
    "glaive.dataset": (
        _SEARCH_QUERY,
        _TRANSFORM,
        Absence(*_PARTITIONS, "VectorIndexReader"),
        Absence(
            "kinds of indices and their parameters are text",
            "Use glaive.indices.IndexConfig, or the name of the kind such as 'IVF_PQ'",
            "SupportedDistributedIndices",
        ),
        Absence(
            "an inner step of scans and commits of pylance",
            "Use dataset.scanner(…) and dataset.take",
            "serialize_row_addrs",
        ),
    ),
    "glaive.download": (_MODELS,),
    "glaive.fragment": (_TRANSFORM,),
    "glaive.lance": (
        _BLOB_WRITERS,
        _TABLE_PROVIDER,
        _TOKENS,
        Absence(
            *_NATIVE,
            "BitmapIterator LanceFileWriteSummary PyDirectoryNamespace PyFullTextQuery "
            "PyRestAdapter PyRestNamespace PySearchFilter RowIdSequenceIterator "
            "StorageOptionsAccessor TraceGuard language_model_home "
            "_Dataset _Fragment _Hnsw _KMeans _MergeInsertBuilder _Scanner _Session _write_dataset "
            "_write_fragments",
        ),
    ),
    "glaive.mem_wal": (_SHARDS,),
    "glaive.query": (
        Absence(
            "it is an inner object of pylance's Rust library",
            "Use the queries of this module, such as MatchQuery",
            "PyFullTextQuery",
        ),
    ),
    "glaive.sampler": (
        Absence(
            "an inner step of pylance's sampling",
            "Call reservoir_sampling(stream, k)",
            "PrioritizedItem",
        ),
    ),
    "glaive.udf": (_TRANSFORM,),
    "glaive.util": (
        Absence(
            "graphs are built as parts of vector indices",
            "Use create_index(…, 'IVF_HNSW_SQ')",
            "HNSW",
        ),
    ),
}
"""By module of glaive."""

REFUSED_MEMBERS: Final[tuple[Absence, ...]] = (
    Absence(
        *_WAL,
        "LanceDataset.initialize_mem_wal LanceDataset.mem_wal_index_details "
        "LanceDataset.mem_wal_writer",
    ),
    Absence(
        "a scan belongs to a dataset",
        "Use dataset.scanner(…) or fragment.scanner(…)",
        "Scanner.from_batches Scanner.from_dataset Scanner.from_fragment",
    ),
    Absence(
        "a scan has no positions",
        "Use dataset.take(…), or take of the table: to_table().take(…)",
        "Scanner.take",
    ),
    Absence(
        "partitions are assigned while an index is built",
        "Call create_index(…), or glaive.vector.compute_partitions(…) with torch",
        "IndicesBuilder.assign_ivf_partitions",
    ),
    Absence(
        "the file reads from where it is stored",
        "Use read() or readall()",
        "BlobFile.detach",
    ),
)
"""Members of classes, as ``Class.member``."""
