"""What a kind of index implements.

Specification: "Kinds" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import UnsupportedFeatureError
from glaive.format.pb import table_pb2
from glaive.index.address_map import AddressMap
from glaive.index.queries import IndexQuery
from glaive.index.row_set import RowSet
from glaive.index.segment import Segment, SegmentWriter
from glaive.index.source import IndexSource
from glaive.named_tuple import NamedTuple

__all__ = [
    "PARAMETERS",
    "BuiltSegment",
    "Candidates",
    "IndexKind",
    "OpenedIndex",
    "RebuiltSegment",
    "ScalarIndex",
]

Entry = table_pb2.IndexMetadata

_OF_VECTORS: Final = (
    "accelerator index_file_version ivf_centroids ivf_centroids_file max_iters metric metric_type "
    "num_bits num_partitions num_sub_vectors pq_codebook precomputed_partitions rabitq_model "
    "rotation_type sample_rate skip_transpose sq_bounds target_partition_size train "
    "m max_level ef_construction "
)
_OF_BUILDING: Final = (  # how a vector index is built in pylance, not which
    "filter_nan implementation index_cache_size one_pass_ivfpq progress_callback "
    "shuffle_partition_batches shuffle_partition_concurrency storage_options "
    "streaming_coreset_rate streaming_refine_passes streaming_sample_rate use_torch "
)
_OF_TEXTS: Final = (
    "analyzer ascii_folding base_tokenizer block_size custom_stop_words document_granularity "
    "format_version index_operators language lower_case max_ngram_length max_token_length "
    "min_ngram_length num_workers prefix_only preserve_original remove_stop_words "
    "split_identifiers split_on_numerics stem with_position "
)
_OF_SCALARS: Final = (
    "num_bands num_hashes number_of_items page_size path probability rows_per_zone shingle_size "
    "target_index_type tokenizer zone_size"
)
PARAMETERS: Final = frozenset((_OF_VECTORS + _OF_BUILDING + _OF_TEXTS + _OF_SCALARS).split())
"""Names of parameters that some kind of index has: other kinds ignore them, as in pylance."""


@dataclass(frozen=True, slots=True)
class RebuiltSegment:
    """What changes in the entry of a segment that was rebuilt; None: as before.

    Parameters
    ----------
    details
        Content of the details message.
    version
        Version of the index's own format.
    """

    details: bytes | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """What the entry of a new segment says, besides its name, fields, fragments and files.

    Parameters
    ----------
    type_url
        Type of the details message.
    details
        Content of the details message.
    version
        Version of the index's own format.
    """

    type_url: str
    details: bytes = b""
    version: int = 0


class OpenedIndex(ABC):
    """A segment that is ready to be searched. Safe to share between threads.

    Sessions keep opened segments, so that these hold what every search needs (bounds of
    pages, centroids, the dictionary) and read the rest when they are searched.
    """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""

    def prewarm(self) -> int:
        """Read and keep what searches read, as far as the kind can; bytes of memory after it."""
        return self.nbytes


class Candidates(NamedTuple):
    """What a scalar index knows of a query.

    Parameters
    ----------
    rows
        Rows for which it is true; unless ``exact``, others may be among them.
    nulls
        Rows for which it is null; None if that was not asked for.
    exact
        Whether the values of ``rows`` need not be tested again.
    """

    rows: RowSet
    nulls: RowSet | None
    exact: bool


class ScalarIndex(OpenedIndex):
    """A segment that answers queries on the values of a column."""

    @property
    def value_bytes(self) -> int:
        """Bytes of a value of the column, on average, as a scan decodes it; 0: unknown."""
        return 0

    @abstractmethod
    def answers(self, query: IndexQuery) -> bool:
        """Whether it can answer a query, exactly or not. Reads nothing."""

    @abstractmethod
    def estimate(self, query: IndexQuery) -> int:
        """Rows that :meth:`search` is going to return, about. Reads nothing."""

    def compared(self, query: IndexQuery) -> int:
        """Entries of the index that are compared with a query, or looked up for it, about."""
        return 1

    @abstractmethod
    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find rows; numbers are what the segment stores: addresses or stable row ids.

        Parameters
        ----------
        query
            One that :meth:`answers` accepts.
        nulls
            Whether rows are wanted for which the query is null: where it is negated.

        Raises
        ------
        CorruptFileError
            The index is damaged; the message names the file and the remedy.
        """


class IndexKind:
    """A kind of index. Implementations have no state; the registry finds their modules.

    Adding a kind is adding a module in ``scalar/``, ``text/`` or ``vector/`` with a class
    that is decorated with :func:`glaive.index.registry.index_kind`.
    """

    name: ClassVar[str]
    """Name of the details message without ``IndexDetails``, in small letters: ``btree``."""

    newest: ClassVar[int]
    """Newest known version of the kind's own format; segments of newer ones are left alone."""

    answers_filters: ClassVar[bool] = True
    """Whether opened segments are :class:`ScalarIndex`, which answer filters."""

    indexes_dictionaries: ClassVar[bool] = True
    """Whether columns of dictionaries can be indexed, so that pylance reads the index, too."""

    stores_addresses: ClassVar[bool] = False
    """Whether segments that are built hold addresses of rows that have stable ids, too."""

    markers: ClassVar[tuple[str, ...]] = ()
    """Files that only this kind has: entries by old writers do not name their kind."""

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the segment into ``out``, for relocated rows.

        Entries of deleted rows are left out; all others stay. ``out`` collects names and
        sizes of the new files; on an error, the caller removes them.

        Returns
        -------
        RebuiltSegment or None
            None if the segment cannot be rebuilt without the data: it then covers nothing of
            the new fragments. Kinds that never can be inherit this method.

        Raises
        ------
        CorruptFileError, DataFileMissingError, NotLanceError, UnsupportedFeatureError
            A file of the segment is damaged, absent, or of an unknown layout.
        """
        return None

    def open(self, segment: Segment) -> OpenedIndex:
        """Read what every search of a segment needs.

        Raises
        ------
        UnsupportedFeatureError
            The kind, or what the segment is made of, cannot be searched: its fragments are
            scanned.
        CorruptFileError, DataFileMissingError, NotLanceError
            A file of the segment is damaged or absent.
        """
        raise UnsupportedFeatureError(f"{segment.where}: indices of kind {self.name} are not read")

    def is_outdated(self, entry: Entry) -> bool:  # of most kinds none
        """Whether pylance searches no newer segment beside it: all are written again."""
        return False

    def value_type(self, segment: Segment) -> pa.DataType | None:  # of most kinds not
        """The type of the values that the files of a segment hold; None if they do not say."""
        return None

    def json_path(self, entry: Entry) -> str | None:  # of most kinds none
        """Where the indexed values are within a JSON column; None for the column's own."""
        return None

    def details(self, entry: Entry) -> dict[str, Any]:  # of most kinds nothing
        """What the details message of an entry says, by pylance's names; reads no file.

        Raises
        ------
        CorruptFileError
            The message cannot be parsed.
        """
        return {}

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Write a segment for the rows of a source; on an error the caller removes the files.

        Parameters
        ----------
        source
            Values and rows; holds the limit of memory.
        parameters
            Of the kind, by the names that users give them.

        Raises
        ------
        OptionError
            A parameter is unknown, or has a value that it cannot have.
        UnsupportedFeatureError
            The kind cannot be built, or not for values of this type.
        """
        raise UnsupportedFeatureError(f"indices of kind {self.name} are not built")

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """The parameters to build an index like this one again; by default none."""
        return {}

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Figures of a segment, by pylance's names, as JSON has them; by default none.

        Raises
        ------
        CorruptFileError, DataFileMissingError, NotLanceError, UnsupportedFeatureError
            A file of the segment is damaged, absent, or of an unknown layout.
        """
        return {}

    def extend(self, segment: Segment, source: IndexSource, out: SegmentWriter) -> BuiltSegment:
        """Write a segment with the rows of a source only, for the index of another segment.

        Kinds with a model (centroids, codebooks) code the rows with that of ``segment``.
        """
        return self.build(source, self.parameters(segment), out)

    def check_mergeable(self, segment: Segment) -> None:
        """Raise ``UnsupportedFeatureError`` if a segment has to be built again instead."""

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Write one segment with the rows of others, and of a source, without training again.

        Entries of rows in fragments that a segment no longer covers are left out by searches,
        so that they may stay.

        Raises
        ------
        UnsupportedFeatureError
            The kind, or these segments, cannot be merged: build it again.
        CorruptFileError, DataFileMissingError, NotLanceError
            A file of a segment is damaged or absent.
        """
        raise UnsupportedFeatureError(f"indices of kind {self.name} are not merged")
