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
    """Options of data files to write.

    Parameters
    ----------
    max_rows_per_file, max_bytes_per_file
        Limits of a file. Each file becomes a fragment.
    max_rows_per_group
        Maximum rows per page in files of format 0.1; ignored in other formats.
    max_page_bytes
        Approximate maximum bytes of values per page; default: 8 MiB. Ignored in format 0.1.
    data_cache_bytes
        Bytes of values to buffer for pages. Each column gets an equal share, which also limits
        its pages. Ignored in format 0.1.
    progress
        True shows the number of rows on a line of the terminal. For another object, glaive calls
        its methods ``begin(fragment)`` and ``complete(fragment)`` for each file.
    data_storage_version
        Format of the files: ``"0.1"``, ``"2.0"``, ``"2.1"``, ``"2.2"``, ``"2.3"``, ``"stable"``
        or ``"next"``; default: the format of the dataset, or 2.2 for a new dataset.
    use_legacy_format
        Old spelling of ``data_storage_version``.
    enable_stable_row_ids
        Whether rows of a new dataset keep their ids when they move to other fragments.
    encoding_options
        Encoding of columns at or below a path in the new files, such as
        ``{"text": {"compression": "zstd", "compression_level": 9}}``. Options override the
        ``lance-encoding:`` keys of the same names in the metadata of a field. The path ``"*"``
        applies to all columns that lack options and such keys.
    initial_bases
        Base paths of a new dataset. You may give blobs below them by URI.
    target_bases
        Names or paths of base paths for new data files, used in turn. A path, such as ``/x``,
        ``~/x`` and ``./x``, or a URI always means the base path with this path, even if
        another base path has this name.
    target_all_bases
        Write new data files to the dataset's own root and all base paths in turn.
    external_blob_mode
        For blobs given by URI: ``"reference"`` stores the URI, ``"ingest"`` copies the bytes.
    allow_external_blob_outside_bases
        Also accept URIs outside of base paths.
    blob_pack_file_size_threshold
        Maximum bytes of a file that holds several blobs; default: 1 GiB.
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
    """Options of data files and of the version to write.

    Parameters
    ----------
    enable_v2_manifest_paths
        Naming scheme of the manifests of a new dataset.
    commit_message, transaction_properties
        Text and entries to store with the version.
    auto_cleanup_options
        ``{"interval": 20, "older_than_seconds": 1209600}``: clean up older versions of a new
        dataset every ``interval`` commits.
    """

    enable_v2_manifest_paths: bool
    commit_message: str | None
    transaction_properties: Mapping[str, str] | None
    auto_cleanup_options: Mapping[str, int] | None


class FragmentKeywords(FileKeywords, total=False):
    """Options of one data file to write.

    Parameters
    ----------
    mode, storage_options, namespace_client, table_id, session
        See :func:`glaive.write_dataset`.
    """

    mode: Mode
    storage_options: Mapping[str, str] | None
    namespace_client: Any
    table_id: Sequence[str] | None
    session: Session | None


class TargetKeywords(WriteKeywords, total=False):
    """Options of where rows are written, of data files and of the version.

    Parameters
    ----------
    storage_options, commit_lock, manifest_store, session, namespace_client, table_id,
    base_store_params, allow_external_blobs
        See :func:`glaive.write_dataset`.
    """

    storage_options: Mapping[str, str] | None
    commit_lock: CommitLock | None
    manifest_store: ManifestStore | str | None
    session: Session | None
    namespace_client: Any
    table_id: Sequence[str] | None
    base_store_params: Mapping[str, Mapping[str, str]] | None
    allow_external_blobs: bool | Sequence[str] | None


class InsertKeywords(TargetKeywords, total=False):
    """Options of rows to insert.

    Parameters
    ----------
    schema
        See :func:`glaive.write_dataset`.
    """

    schema: pa.Schema | None


shows_file_options = partial(
    shows, external_blob_mode="reference", allow_external_blob_outside_bases=False
)
"""Add the options of files to the signature of a function that writes rows."""


class VectorKeywords(TypedDict, total=False):
    """Parameters of kinds of vector indices.

    Parameters
    ----------
    metric_type
        Another name of ``metric``.
    num_bits
        Bits per code of a part (``PQ``: 4 or 8), or per dimension (``SQ``: 8, ``RQ``: 1 to 9).
    sample_rate, max_iters
        Number of vectors per centroid that training reads (256), and of its iterations (50).
    m, ef_construction, max_level
        For graphs: neighbours of a node (20), candidates for a new node (150), and levels (7).
    rotation_type, rabitq_model
        For ``RQ``: ``fast`` or ``matrix``; or the rotation that workers share.
    index_file_version
        ``V3`` or ``Legacy``; both give the same file.
    sq_bounds
        For ``SQ``: the lowest and the highest number, instead of trained numbers.
    recall
        The share of the nearest rows that searches should find, such as 0.95. glaive measures
        it with vectors of the dataset and chooses the parameters that you leave out.
    memory_limit
        Maximum bytes of memory for the build, or a string such as ``"2GB"``. More data
        goes to temporary files. Default: ``GLAIVE_MEMORY_LIMIT``. For full-text indices a number
        is MiB, as in pylance.
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
    """Parameters of kinds of indices for filters and full-text search.

    Parameters
    ----------
    memory_limit
        See :meth:`glaive.LanceDataset.create_index`.
    rows_per_zone, zone_size
        For ``ZONEMAP`` and ``BLOOMFILTER``: rows per entry.
    number_of_items, probability
        For ``BLOOMFILTER``: values per zone, and the probability of a false positive.
    page_size
        For ``RTREE``: entries per page.
    num_hashes, num_bands, shingle_size, tokenizer
        For ``MINHASHLSH``: values per signature, bands, words per shingle, and the tokenizer.
    path, target_index_type
        For ``JSON``: the path of the value, and the kind of its index.
    base_tokenizer, analyzer, language
        For ``INVERTED``: how to split strings into words; the language of stems and stop words.
    lower_case, stem, remove_stop_words, custom_stop_words, ascii_folding, max_token_length
        For ``INVERTED``: how to normalise and filter words.
    min_ngram_length, max_ngram_length, prefix_only
        For ``INVERTED`` with the tokenizer ``ngram``.
    split_identifiers, split_on_numerics, preserve_original, index_operators
        For ``INVERTED`` with the tokenizer ``code``.
    with_position
        For ``INVERTED``: store positions of words, for phrase queries.
    block_size, num_workers
        For ``INVERTED``: documents per block, and threads (accepted and ignored).
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
    """Parameters of all kinds of indices, for builds on a cluster.

    Parameters
    ----------
    num_partitions, target_partition_size
        Number of partitions, or of vectors per partition; the default depends on the kind.
    num_sub_vectors
        Number of parts of a vector. Each part gets one code. Default: parts of 16 dimensions if
        that is possible, else of 8.
    ivf_centroids, ivf_centroids_file, pq_codebook
        Models to use instead of trained models: NumPy or Arrow arrays, or a NumPy file.
    accelerator
        Device on which torch trains the partitions; default: the CPU.
    skip_transpose
        Store product codes row by row.
    format_version, document_granularity
        See :meth:`glaive.LanceDataset.create_scalar_index`.
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
