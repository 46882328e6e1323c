"""Keyword arguments of methods that write rows and build indices: defined and documented once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from glaive.options import TypedDict, shows

if TYPE_CHECKING:
    import pyarrow as pa

    from glaive.dataset.writing.plan import DatasetBasePath, Mode
    from glaive.scan.snapshot import Session
    from glaive.table.manifest_store import ManifestStore
    from glaive.table.root import CommitLock


class FileKeywords(TypedDict, total=False):
    """How rows become data files.

    Parameters
    ----------
    max_rows_per_file, max_bytes_per_file
        Limits of a file; each file is a fragment.
    max_rows_per_group
        Maximum rows per page in files of format 0.1; ignored in others.
    max_page_bytes
        Approximate maximum bytes of values per page; 8 MiB by default. Not in format 0.1.
    data_cache_bytes
        Bytes of values that are buffered for pages, divided evenly among the columns, which
        limits their pages to that share. Not in format 0.1.
    progress
        True shows the rows on a line of the terminal, if there is one. Of other objects the methods
        ``begin(fragment)`` and ``complete(fragment)`` are called for each file.
    data_storage_version
        Format of the files: ``"0.1"``, ``"2.0"``, ``"2.1"``, ``"2.2"``, ``"2.3"``, ``"stable"``
        or ``"next"``; by default that of the dataset, else 2.2.
    use_legacy_format
        Old spelling of ``data_storage_version``.
    enable_stable_row_ids
        Whether rows of a new dataset keep their ids when they are relocated.
    encoding_options
        Encoding of columns at or below a path in the new files, such as
        ``{"text": {"compression": "zstd", "compression_level": 9}}``. They override
        ``lance-encoding:`` keys in the metadata of a field, which have the same names. The path
        ``"*"`` stands for columns without either.
    initial_bases
        Base paths of a new dataset; blobs below them may be given by URI.
    target_bases
        Names or paths of base paths for new data files, used in turn. A path, such as ``/x``,
        ``~/x`` and ``./x``, or a URI means the base path that is written so, also where the dataset
        gives another one that name.
    target_all_bases
        Write new data files to the dataset's own root and all base paths in turn.
    external_blob_mode
        For blobs given by URI: ``"reference"`` stores the URI, ``"ingest"`` copies the bytes.
    allow_external_blob_outside_bases
        Also accept URIs that are not below a base path.
    blob_pack_file_size_threshold
        Maximum bytes of a file that holds several blobs; 1 GiB by default.
    """

    max_rows_per_file: int
    max_rows_per_group: int | None
    max_bytes_per_file: int
    data_cache_bytes: int | None
    max_page_bytes: int | None
    progress: Any
    data_storage_version: str | None
    use_legacy_format: bool | None
    enable_stable_row_ids: bool
    encoding_options: Mapping[str, Mapping[str, object]] | None
    initial_bases: Sequence[DatasetBasePath] | None
    target_bases: Sequence[str] | None
    target_all_bases: bool | None
    external_blob_mode: str
    allow_external_blob_outside_bases: bool
    blob_pack_file_size_threshold: int | None


class WriteKeywords(FileKeywords, total=False):
    """How rows become data files and a version.

    Parameters
    ----------
    enable_v2_manifest_paths
        Naming scheme of the manifests of a new dataset.
    commit_message, transaction_properties
        Stored with the version.
    auto_cleanup_options
        ``{"interval": 20, "older_than_seconds": 1209600}``: clean up older versions of a new
        dataset every ``interval`` commits.
    """

    enable_v2_manifest_paths: bool
    commit_message: str | None
    transaction_properties: Mapping[str, str] | None
    auto_cleanup_options: Mapping[str, int] | None


class FragmentKeywords(FileKeywords, total=False):
    """How rows become one data file.

    Parameters
    ----------
    mode, storage_options, namespace_client, table_id, session
        As for :func:`glaive.write_dataset`.
    """

    mode: Mode
    storage_options: Mapping[str, str] | None
    namespace_client: Any
    table_id: Sequence[str] | None
    session: Session | None


class InsertKeywords(WriteKeywords, total=False):
    """Where rows go, and how they become data files and a version.

    Parameters
    ----------
    schema, storage_options, commit_lock, manifest_store, session, namespace_client, table_id,
    base_store_params, allow_external_blobs
        As for :func:`glaive.write_dataset`.
    """

    schema: pa.Schema | None
    storage_options: Mapping[str, str] | None
    commit_lock: CommitLock | None
    manifest_store: ManifestStore | str | None
    session: Session | None
    namespace_client: Any
    table_id: Sequence[str] | None
    base_store_params: Mapping[str, Mapping[str, str]] | None
    allow_external_blobs: bool | Sequence[str] | None


shows_file_options = partial(
    shows, external_blob_mode="reference", allow_external_blob_outside_bases=False
)
"""Let a function that writes rows show the options of files."""


class VectorKeywords(TypedDict, total=False):
    """Parameters of kinds of vector indices.

    Parameters
    ----------
    metric_type
        Another name of ``metric``.
    num_bits
        Bits of a code of a part (``PQ``: 4 or 8), or of a dimension (``SQ``: 8, ``RQ``: 1 to 9).
    sample_rate, max_iters
        Vectors for each centroid that training reads, 256, and its iterations, 50.
    m, ef_construction, max_level
        Of graphs: neighbours of a node, 20, candidates when one is added, 150, and levels, 7.
    rotation_type, rabitq_model
        Of ``RQ``: ``fast`` or ``matrix``; or the rotation that workers share.
    index_file_version
        ``V3`` or ``Legacy``, which are written in the same way.
    sq_bounds
        Of ``SQ``: the lowest and the highest number, instead of trained ones.
    recall
        Such as 0.95: choose parameters that are not given, and those of searches, so that searches
        find this share of the nearest rows, as measured with vectors of the dataset.
    memory_limit
        Bytes that building may hold, or a text such as ``"2GB"``; the rest is spilled. Default:
        ``GLAIVE_MEMORY_LIMIT``. Of full-text indices a number is MiB, as in pylance.
    """

    metric_type: str | None
    num_bits: int | None
    sample_rate: int | None
    max_iters: int | None
    m: int | None
    ef_construction: int | None
    max_level: int | None
    rotation_type: str | None
    rabitq_model: str | None
    index_file_version: str | None
    sq_bounds: Sequence[float] | None
    recall: float | None
    memory_limit: int | str | None


class ScalarKeywords(TypedDict, total=False):
    """Parameters of kinds of indices for filters and texts.

    Parameters
    ----------
    memory_limit
        As for :meth:`glaive.LanceDataset.create_index`.
    rows_per_zone, zone_size
        Of ``ZONEMAP`` and ``BLOOMFILTER``: rows that share an entry.
    number_of_items, probability
        Of ``BLOOMFILTER``: values of a zone, and how often a value is found that is not there.
    page_size
        Of ``RTREE``: entries of a page.
    num_hashes, num_bands, shingle_size, tokenizer
        Of ``MINHASHLSH``: values of a signature, its bands, words of a run, and what words are.
    path, target_index_type
        Of ``JSON``: the path of the value, and the kind of its index.
    base_tokenizer, analyzer, language
        Of ``INVERTED``: how texts become words, and the language of stems and stop words.
    lower_case, stem, remove_stop_words, custom_stop_words, ascii_folding, max_token_length
        Of ``INVERTED``: what becomes of words.
    min_ngram_length, max_ngram_length, prefix_only
        Of ``INVERTED`` with the tokenizer ``ngram``.
    split_identifiers, split_on_numerics, preserve_original, index_operators
        Of ``INVERTED`` with the tokenizer ``code``.
    with_position
        Of ``INVERTED``: store where words are, for phrases.
    block_size, num_workers
        Of ``INVERTED``: documents of a block, and threads (accepted; it changes nothing).
    """

    memory_limit: int | str | None
    rows_per_zone: int | None
    zone_size: int | None
    number_of_items: int | None
    probability: float | None
    page_size: int | None
    num_hashes: int | None
    num_bands: int | None
    shingle_size: int | None
    tokenizer: str | None
    path: str | None
    target_index_type: str | None
    base_tokenizer: str | None
    analyzer: str | None
    language: str | None
    lower_case: bool | None
    stem: bool | None
    remove_stop_words: bool | None
    custom_stop_words: Sequence[str] | None
    ascii_folding: bool | None
    max_token_length: int | None
    min_ngram_length: int | None
    max_ngram_length: int | None
    prefix_only: bool | None
    split_identifiers: bool | None
    split_on_numerics: bool | None
    preserve_original: bool | None
    index_operators: bool | None
    with_position: bool | None
    block_size: int | None
    num_workers: int | None


class IndexKeywords(VectorKeywords, ScalarKeywords, total=False):
    """Parameters of all kinds of indices."""


class TableIndexKeywords(IndexKeywords, total=False):
    """Parameters of all kinds of indices that the cluster builds.

    Parameters
    ----------
    num_partitions, target_partition_size
        Partitions of vectors, or how many one should have; by default by the kind.
    num_sub_vectors
        Parts of a vector that have a code each. Default: the dimension by 16, or by 8.
    ivf_centroids, ivf_centroids_file, pq_codebook
        Models instead of trained ones, as arrays of NumPy or Arrow; or a file of NumPy.
    accelerator
        Device of torch that trains the partitions; default: the processor.
    skip_transpose
        Store product codes row by row.
    format_version, document_granularity
        As for :meth:`glaive.LanceDataset.create_scalar_index`.
    """

    num_partitions: int | None
    target_partition_size: int | None
    num_sub_vectors: int | None
    ivf_centroids: Any
    ivf_centroids_file: str | None
    pq_codebook: Any
    accelerator: Any
    skip_transpose: bool
    format_version: int | str | None
    document_granularity: str
