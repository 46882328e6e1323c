"""The interface of a kind of index.

Specification: "Kinds" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from glaive.arrow.conditions import Condition
from glaive.config import added
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import IndexKindError, OptionError, UnsupportedFeatureError
from glaive.format.fields import LanceSchema
from glaive.format.pb import table_pb2
from glaive.index.row_sets import AddressMap, RowNumbers, RowSet
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.options import integer as integer_from
from glaive.table.index_coverage import kind_name

# --- Queries for scalar indices: conditions on values, and other tests ------------------
# Specification: "Searching" in ``docs/format/indices.md``.


@dataclass(frozen=True, slots=True, eq=False)
class HasLabels:
    """A list contains one of some values, or with ``every`` all of them (``array_has_any``).

    Parameters
    ----------
    values
        Valid values of the type of the list's items.
    """

    values: pa.Array
    every: bool = False


@dataclass(frozen=True, slots=True)
class HasTokens:
    """A text contains all tokens of another text (``contains_tokens``)."""

    text: str


@dataclass(frozen=True, slots=True)
class MatchesPattern:
    """A regular expression matches somewhere in a text (``regexp_like``)."""

    pattern: str


@dataclass(frozen=True, slots=True)
class MeetsBox:
    """The bounding box of a geometry meets a box, as ``st_intersects`` requires.

    Parameters
    ----------
    bounds
        Lowest x and y, highest x and y, inclusive.
    """

    bounds: tuple[float, float, float, float]


IndexQuery: TypeAlias = Condition | HasLabels | HasTokens | MatchesPattern | MeetsBox


# --- Source of an index build: the values of a column, with row numbers -----------------
# Specification: "Building" in ``docs/format/indices.md``.


class ValueBatch(NamedTuple):
    """Adjacent rows of a fragment.

    Parameters
    ----------
    values
        A value per live row, in the stored type of the column. Extension types are their storage,
        dictionaries are decoded, and JSON documents are strings.
    rows
        Number of each row: its address, or its stable row id for kinds that store these.
    """

    values: pa.Array
    rows: RowNumbers


class IndexSource(Protocol):
    """The live rows of a column in some fragments; can be read several times."""

    @property
    def field(self) -> pa.Field[pa.DataType]:
        """Name, type and metadata of the column."""

    @property
    def dictionary_type(self) -> pa.DataType | None:
        """Type of a dictionary-encoded column; ``None`` for other columns."""

    @property
    def fragment_ids(self) -> Sequence[int]:
        """Ids of the fragments, in the order of reading."""

    @property
    def num_rows(self) -> int:
        """Number of live rows."""

    @property
    def stable_row_ids(self) -> bool:
        """Whether the dataset has stable row ids, which differ from row addresses."""

    @property
    def memory_limit(self) -> int:
        """Maximum bytes of memory for a build; larger data is spilled to a temporary folder."""

    def batches(self) -> Iterator[ValueBatch]:
        """Yield all rows, fragment by fragment; a batch is in one fragment. Memory is bounded."""

    def sample(self, rows: int, seed: int = 0) -> pa.Array:
        """Return values of up to ``rows`` random rows, unordered. Reads these rows only."""


def stored_batches(source: IndexSource) -> Iterator[ValueBatch]:
    """Yield all rows of a source, with JSON documents as JSONB, like filters compare them."""
    from glaive.arrow.jsonb import encode_jsonb

    is_json = pa.types.is_large_binary(source.field.type)
    for values, rows in source.batches():
        texts = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        yield ValueBatch(encode_jsonb(values) if is_json and texts else values, rows)


Entry = table_pb2.IndexMetadata

VECTOR_PARAMETERS: Final = (
    "accelerator index_file_version ivf_centroids ivf_centroids_file max_iters metric metric_type "
    "num_bits num_partitions num_sub_vectors pq_codebook precomputed_partitions rabitq_model "
    "rotation_type sample_rate skip_transpose sq_bounds target_partition_size train "
    "m max_level ef_construction "
)
_IGNORED_PARAMETERS: Final = (  # they change how pylance builds an index, and keep the result
    "filter_nan implementation index_cache_size one_pass_ivfpq progress_callback "
    "shuffle_partition_batches shuffle_partition_concurrency storage_options "
    "streaming_coreset_rate streaming_refine_passes streaming_sample_rate use_torch "
)
TEXT_PARAMETERS: Final = (
    "analyzer ascii_folding base_tokenizer block_size custom_stop_words document_granularity "
    "format_version index_operators language lower_case max_ngram_length max_token_length "
    "min_ngram_length num_workers prefix_only preserve_original remove_stop_words "
    "split_identifiers split_on_numerics stem with_position "
)
_SCALAR_PARAMETERS: Final = (
    "num_bands num_hashes number_of_items page_size path probability rows_per_zone shingle_size "
    "target_index_type tokenizer zone_size"
)
PARAMETERS: Final = frozenset(
    (VECTOR_PARAMETERS + _IGNORED_PARAMETERS + TEXT_PARAMETERS + _SCALAR_PARAMETERS).split()
)
"""Names of parameters that any kind of index has: other kinds ignore them, as in pylance."""


# --- Check parameters and column types of scalar indices before reading anything --------
# Specification: "Building" in ``docs/format/indices.md``.


def known_parameters(
    kind: str, parameters: Mapping[str, Any], known: Collection[str], ignored: Any = PARAMETERS
) -> None:
    """Raise an ``OptionError`` for parameters outside of ``known`` and ``ignored``.

    By default parameters of other kinds are ignored: callers may pass one set of parameters to
    several kinds.
    """
    for name in sorted(set(parameters).difference(known, ignored)):
        closest = OptionError.did_you_mean(str(name), known, f"Parameters of {kind}")
        raise OptionError(f"parameter {name!r} is unknown{closest}")


def check_type(kind: str, field: pa.Field[pa.DataType], *, supported: bool) -> None:
    """Check that a kind can index values of a column, or raise an ``IndexKindError``."""
    if not supported:
        raise IndexKindError(
            f"{kind} index column {field.name}: column {field.name!r} of type {field.type} cannot "
            f"have a {kind} index. Choose another kind or column."
        )


def check_same_type(file: IndexFile, name: str, kind: pa.DataType) -> None:
    """Raise a ``CorruptFileError`` if the type of a stored column differs from new values."""
    stored = file.schema.field(name).type
    if stored != kind:
        raise file.corrupt_column(name, f"type {kind}, as the column that is indexed", f"{stored}")


def shared_type(files: Sequence[IndexFile], name: str) -> pa.DataType:
    """Return the type of a column in some files; raise ``CorruptFileError`` if types differ."""
    kinds: list[pa.DataType] = [file.schema.field(name).type for file in files]
    for file in files:
        check_same_type(file, name, kinds[0])
    return kinds[0]


_INTEGER: Final = integer_from(1, 2**31 - 1)


def integer(parameters: Mapping[str, Any], name: str, default: int) -> int:
    """Return an integer parameter from 1 on; raise an ``OptionError`` for other values."""
    value: int = _INTEGER.check(name, parameters.get(name, default))
    return value


def probability(parameters: Mapping[str, Any], name: str, default: float) -> float:
    """Return a parameter between 0 and 1; raise an ``OptionError`` for other values."""
    value = parameters.get(name, default)
    if type(value) not in (int, float) or not 0 < value < 1:
        raise OptionError(f"{name}: expected a number between 0 and 1, found {value!r}")
    return float(value)


@dataclass(frozen=True, slots=True)
class RebuiltSegment:
    """Changes to the manifest entry of a rebuilt segment; ``None`` keeps a value.

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
    """Content of a new segment's entry, besides its name, fields, fragments and files.

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


class Entries(NamedTuple):
    """Input of a new segment.

    Parameters
    ----------
    segments
        Segments to merge; empty for a build.
    source
        Rows to add, or ``None``.
    parameters
        Parameters of the kind.
    """

    segments: Sequence[Segment]
    source: IndexSource | None
    parameters: Mapping[str, Any]

    @property
    def memory_limit(self) -> int:
        """Maximum bytes of memory, set by the source."""
        return _MERGE_BYTES if self.source is None else self.source.memory_limit

    def batches(self) -> Iterator[ValueBatch]:
        """Read the rows of the source, if there is one."""
        return iter(()) if self.source is None else self.source.batches()


_MERGE_BYTES = 1 << 28
"""Memory for a merge of segments alone."""


class OpenedIndex(ABC):
    """A segment opened for searches. Safe to share between threads.

    Sessions cache opened segments. An opened segment therefore holds what every search needs
    (bounds of pages, centroids, the dictionary), and reads the rest during searches.
    """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of memory."""

    def prewarm(self) -> int:
        """Read into the cache what searches read, if the kind can; return the bytes of memory."""
        return self.nbytes


class Candidates(NamedTuple):
    """Result of a scalar index for a query.

    Parameters
    ----------
    rows
        Rows for which the query is true; unless ``exact``, possibly other rows as well.
    nulls
        Rows for which the query is null, if requested.
    exact
        The query is true for all ``rows``.
    """

    rows: RowSet
    nulls: RowSet | None
    exact: bool


class ScalarIndex(OpenedIndex):
    """A segment that answers queries on the values of a column."""

    @property
    def value_bytes(self) -> int:
        """Mean bytes of a decoded value of the column; 0: unknown."""
        return 0

    @abstractmethod
    def answers(self, query: IndexQuery) -> bool:
        """Return whether it can answer a query, exactly or with candidates; reads nothing."""

    @abstractmethod
    def estimate(self, query: IndexQuery) -> int:
        """Estimate the number of rows that :meth:`search` returns; reads nothing."""

    def compared(self, query: IndexQuery) -> int:
        """Estimate the index entries that a query compares or looks up."""
        return 1

    def count(self, query: IndexQuery) -> tuple[int, int] | None:
        """Return how many entries pass, and how many there are; ``None`` if it must search."""
        return None

    @abstractmethod
    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find rows; row numbers are those the segment stores: addresses or stable row ids.

        Parameters
        ----------
        query
            A query that :meth:`answers` accepts.
        nulls
            Return the rows for which the query is null as well, for use in a negation.

        Raises
        ------
        CorruptFileError
            The index is damaged; the message names the file and the remedy.
        """


class IndexKind:
    """A kind of index. Instances are stateless; the registry finds their modules.

    To add a kind, add a module in ``scalar/``, ``text/`` or ``vector/`` with a class decorated with
    :func:`glaive.index.protocol.index_kind`.
    """

    name: ClassVar[str]
    """Name of the details message up to ``IndexDetails``, in lower case: ``btree``."""

    title: ClassVar[str] = ""
    """Name for users: ``BTREE``."""

    options: ClassVar[tuple[str, ...]] = ()
    """Names of build parameters."""

    newest: ClassVar[int]
    """Newest supported version of the kind's own format; newer segments are left unchanged."""

    answers_filters: ClassVar[bool] = True
    """Opened segments are :class:`ScalarIndex`, which answers filters."""

    indexes_dictionaries: ClassVar[bool] = True
    """Dictionary-encoded columns can be indexed, and pylance can read the index."""

    stores_addresses: ClassVar[bool] = False
    """New segments store row addresses even if the dataset has stable row ids."""

    markers: ClassVar[tuple[str, ...]] = ()
    """Files that only this kind has: they identify the kind of entries by old writers."""

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the segment into ``out`` with new row addresses.

        Entries of deleted rows are dropped; all others stay. ``out`` collects names and sizes of
        the new files. On an error, the caller removes them.

        Returns
        -------
        RebuiltSegment or None
            ``None`` if rebuilding needs the data: the segment then leaves out the new fragments.
            Kinds that always need the data inherit this method.

        Raises
        ------
        CorruptFileError, DataFileMissingError, NotLanceError, UnsupportedFeatureError
            A file of the segment is damaged, missing, or has an unknown layout.
        """
        return None

    def open(self, segment: Segment) -> OpenedIndex:
        """Read what every search of a segment needs.

        Raises
        ------
        UnsupportedFeatureError
            glaive cannot search this kind or this segment. Callers scan its fragments.
        CorruptFileError, DataFileMissingError, NotLanceError
            A file of the segment is damaged or missing.
        """
        raise UnsupportedFeatureError(f"{segment.where}: indices of kind {self.name} are not read")

    def is_outdated(self, entry: Entry) -> bool:  # False for most kinds
        """Return whether pylance would ignore newer segments: all segments are written again."""
        return False

    def value_type(self, segment: Segment) -> pa.DataType | None:  # None for most kinds
        """Return the type of the values in the files of a segment; ``None`` if unknown."""
        return None

    def json_path(self, entry: Entry) -> str | None:  # None for most kinds
        """Return the path of the indexed values in a JSON column; ``None`` for other columns."""
        return None

    def details(self, entry: Entry) -> dict[str, Any]:  # empty for most kinds
        """Decode the details message of an entry by pylance's names, from memory.

        Raises
        ------
        CorruptFileError
            The message is invalid.
        """
        return {}

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Write a segment for the rows of a source; on an error the caller removes the files.

        Parameters
        ----------
        source
            Values and rows; has the memory limit.
        parameters
            Parameters of the kind, by their names for users.

        Raises
        ------
        OptionError
            A parameter is unknown, or has a wrong value.
        UnsupportedFeatureError
            glaive only reads the kind, or values of this type are unsupported.
        """
        known_parameters(self.title, parameters, self.options)
        return self.write(Entries((), source, parameters), out)

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """Return the parameters that build such an index again; by default empty."""
        return {}

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Return statistics of a segment by pylance's names, ready for JSON; by default empty.

        Raises
        ------
        CorruptFileError, DataFileMissingError, NotLanceError, UnsupportedFeatureError
            A file of the segment is damaged, missing, or has an unknown layout.
        """
        return {}

    def extend(self, segment: Segment, source: IndexSource, out: SegmentWriter) -> BuiltSegment:
        """Write a segment with only the rows of a source, for the index of another segment.

        Kinds with a model (centroids, codebooks) encode the rows with the model of ``segment``.
        """
        return self.build(source, self.parameters(segment), out)

    def check_mergeable(self, segment: Segment) -> None:
        """Raise ``UnsupportedFeatureError`` if a segment must be built again instead."""

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Write one segment with the rows of others and of a source, with the old training.

        Entries of rows outside the covered fragments may stay: searches ignore them.

        Raises
        ------
        UnsupportedFeatureError
            The kind or these segments cannot be merged. Build the index again.
        CorruptFileError, DataFileMissingError, NotLanceError
            A file of a segment is damaged or missing.
        """
        return self.write(Entries(segments, source, self.parameters(segments[0])), out)

    def write(self, given: Entries, out: SegmentWriter) -> BuiltSegment:
        """Write one segment with the entries of segments, none for a build, and of a source.

        :meth:`build` and :meth:`merge` of most kinds call this method; it raises the same errors.
        """
        raise UnsupportedFeatureError(f"indices of kind {self.name} are not built, or not merged")


# --- Find a kind of index by the type of its details message ----------------------------
#
# Importing a module in ``glaive.index.scalar``, ``.text`` or ``.vector`` registers its classes with
# ``@index_kind``: to add a kind, add a file. ``_HOMES`` lists the modules of glaive's own kinds, so
# that a process imports only the kinds of its datasets.

_REGISTERED: dict[str, type[IndexKind]] = {}
_MADE: dict[str, IndexKind] = {}
_FOLDERS = ("scalar", "text", "vector")

_HOMES: Final = {
    "bitmap": "scalar.bitmap",
    "bloomfilter": "scalar.zones",
    "btree": "scalar.btree",
    "fm": "scalar.fm",
    "inverted": "text.inverted",
    "json": "scalar.json_path",
    "labellist": "scalar.bitmap",
    "minhashlsh": "scalar.minhash",
    "ngram": "scalar.ngram",
    "rtree": "scalar.rtree",
    "vector": "vector.vector_index",
    "zonemap": "scalar.zones",
}
"""Modules by kind."""

K = TypeVar("K", bound=type[IndexKind])


def index_kind(cls: K) -> K:
    """Register a kind under its ``name`` (class decorator)."""
    if _REGISTERED.setdefault(cls.name, cls) is not cls:
        raise TypeError(f"two kinds of index claim the name {cls.name!r}")
    return cls


@cache
def index_kinds() -> dict[str, IndexKind]:
    """Return all kinds by name."""
    import glaive.index as package

    for folder_info in iter_modules(package.__path__, f"{package.__name__}."):
        if folder_info.ispkg and folder_info.name.rpartition(".")[2] in _FOLDERS:
            folder = import_module(folder_info.name)
            for module in iter_modules(folder.__path__, f"{folder.__name__}."):
                import_module(module.name)
    kinds = sorted({**added("indices"), **_REGISTERED}.items())
    return {name: _MADE.setdefault(name, cls()) for name, cls in kinds}


def kind_by_name(name: str) -> IndexKind | None:
    """Return the kind of a name, and import its module if necessary; ``None`` if unknown."""
    known = _MADE.get(name)
    if known is not None:
        return known
    home = _HOMES.get(name)
    if home is not None:
        import_module(f"glaive.index.{home}")
    cls = _REGISTERED.get(name) or added("indices").get(name)
    return None if cls is None else _MADE.setdefault(name, cls())


def known_kind(name: str) -> IndexKind:
    """Return the kind of a name.

    Raises
    ------
    UnsupportedFeatureError
        The name is unknown; the package that adds the kind is not installed.
    """
    kind = kind_by_name(name)
    if kind is None:
        raise UnsupportedFeatureError(f"no installed package has indices of kind {name!r:.80}")
    return kind


def kind_of(
    entry: table_pb2.IndexMetadata, files: Iterable[str] = (), schema: LanceSchema | None = None
) -> IndexKind | None:
    """Return the kind of an entry; ``None`` if the kind or its version is unknown.

    Entries by old writers lack details. ``files``, and the type of the column in ``schema``,
    then determine the kind.
    """
    name = kind_name(entry.index_details.type_url)
    kind = kind_by_name(name) if name else kind_by_files(files)
    if not name and schema is not None and kind is not None and kind.name == "bitmap":
        of_lists = any(schema.field_by_id(field).logical_type == "list" for field in entry.fields)
        kind = kind_by_name("labellist") if of_lists else kind
    return kind if kind is not None and entry.index_version <= kind.newest else None


def kind_by_files(names: Iterable[str]) -> IndexKind | None:
    """Return the kind with one of its ``markers`` among these files."""
    present = frozenset(names)
    kinds = index_kinds().values()
    return next((kind for kind in kinds if not present.isdisjoint(kind.markers)), None)
