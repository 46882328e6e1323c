"""What a kind of index implements.

Specification: "Kinds" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

# --- Queries that scalar indices answer: conditions on values, and tests that need more than that
# Specification: "Searching" in ``docs/format/indices.md``.


@dataclass(frozen=True, slots=True, eq=False)
class HasLabels:
    """Whether a list has one of some values, or ``every`` one: ``array_has_any``.

    Parameters
    ----------
    values
        In the type of the list's values; without nulls.
    """

    values: pa.Array
    every: bool = False


@dataclass(frozen=True, slots=True)
class HasTokens:
    """Whether a text has all tokens of another one: ``contains_tokens``."""

    text: str


@dataclass(frozen=True, slots=True)
class MatchesPattern:
    """Whether a regular expression matches somewhere in a text: ``regexp_like``."""

    pattern: str


@dataclass(frozen=True, slots=True)
class MeetsBox:
    """Whether the bounding box of a geometry meets a box: what ``st_intersects`` needs.

    Parameters
    ----------
    bounds
        Lowest x and y, highest x and y; points on them are inside.
    """

    bounds: tuple[float, float, float, float]


IndexQuery: TypeAlias = Condition | HasLabels | HasTokens | MatchesPattern | MeetsBox


# --- What an index is built from: the values of a column, with the numbers of their rows
# Specification: "Building" in ``docs/format/indices.md``.


class ValueBatch(NamedTuple):
    """Neighbouring rows of a fragment.

    Parameters
    ----------
    values
        One value for each live row, in the type of the column as it is stored: extension
        types as their storage, dictionary-encoded values decoded. JSON documents are texts.
    rows
        Number of each row: its address or, for kinds that store these, its stable row id.
    """

    values: pa.Array
    rows: RowNumbers


class IndexSource(Protocol):
    """The live rows of a column of some fragments, which can be read more than once."""

    @property
    def field(self) -> pa.Field[pa.DataType]:
        """Name, type and metadata of the column."""

    @property
    def dictionary_type(self) -> pa.DataType | None:
        """The type of a column whose values are encoded with dictionaries; else None."""

    @property
    def fragment_ids(self) -> Sequence[int]:
        """Ids of the fragments, in the order in which they are read."""

    @property
    def num_rows(self) -> int:
        """Live rows."""

    @property
    def stable_row_ids(self) -> bool:
        """Whether rows of the dataset have stable ids, so that these are not their addresses."""

    @property
    def memory_limit(self) -> int:
        """Bytes that building may hold; what is larger is spilled to a temporary folder."""

    def batches(self) -> Iterator[ValueBatch]:
        """Read all rows, fragment by fragment, a batch within one fragment. Bounded memory."""

    def sample(self, rows: int, seed: int = 0) -> pa.Array:
        """Values of so many random rows, or of all, in no certain order. Reads these rows only."""


def stored_batches(source: IndexSource) -> Iterator[ValueBatch]:
    """All rows of a source, JSON documents as filters compare them: in JSONB."""
    from glaive.arrow.jsonb import encode_jsonb

    is_json = pa.types.is_large_binary(source.field.type)
    for values, rows in source.batches():
        texts = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        yield ValueBatch(encode_jsonb(values) if is_json and texts else values, rows)


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


# --- Parameters and column types of scalar indices: refused by name, before anything is read
# Specification: "Building" in ``docs/format/indices.md``.


def known_parameters(kind: str, parameters: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise an ``OptionError`` if there are parameters that no kind of index has.

    Parameters of other kinds are ignored, as one set of them may be given to several kinds.
    """
    unknown = sorted(set(parameters).difference(known, PARAMETERS))
    if unknown:
        those = f"only {', '.join(known)}" if known else "none"
        raise OptionError(f"parameter {unknown[0]!r} of a {kind} index: the kind has {those}")


def check_type(kind: str, field: pa.Field[pa.DataType], *, supported: bool) -> None:
    """Raise an ``IndexKindError`` if values of a column cannot be indexed."""
    if not supported:
        raise IndexKindError(
            f"{kind} index column {field.name}: column {field.name!r} of type {field.type} cannot "
            f"have a {kind} index"
        )


def check_same_type(file: IndexFile, name: str, kind: pa.DataType) -> None:
    """Raise a ``CorruptFileError`` if a column of a file has not the type of values to be added."""
    stored = file.schema.field(name).type
    if stored != kind:
        raise file.corrupt_column(name, f"type {kind}, as the column that is indexed", f"{stored}")


def shared_type(files: Sequence[IndexFile], name: str) -> pa.DataType:
    """The type of a column of some files; raises a ``CorruptFileError`` if there are several."""
    kinds: list[pa.DataType] = [file.schema.field(name).type for file in files]
    for file in files:
        check_same_type(file, name, kinds[0])
    return kinds[0]


_INTEGER: Final = integer_from(1, 2**31 - 1)


def integer(parameters: Mapping[str, Any], name: str, default: int) -> int:
    """An integer from 1 on; raises an ``OptionError`` if the parameter is something else."""
    value: int = _INTEGER.check(name, parameters.get(name, default))
    return value


def probability(parameters: Mapping[str, Any], name: str, default: float) -> float:
    """A number between 0 and 1; raises an ``OptionError`` if the parameter is something else."""
    value = parameters.get(name, default)
    if type(value) not in (int, float) or not 0 < value < 1:
        raise OptionError(f"{name}: expected a number between 0 and 1, found {value!r}")
    return float(value)


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


class Entries(NamedTuple):
    """What a segment is written from.

    Parameters
    ----------
    segments
        Their entries are in it; a build has none.
    source
        Its rows are in it.
    parameters
        Of the kind.
    """

    segments: Sequence[Segment]
    source: IndexSource | None
    parameters: Mapping[str, Any]

    @property
    def memory_limit(self) -> int:
        """Bytes that writing may hold: what the source says."""
        return _MERGE_BYTES if self.source is None else self.source.memory_limit

    def batches(self) -> Iterator[ValueBatch]:
        """Read the rows of the source, if there is one."""
        return iter(()) if self.source is None else self.source.batches()


_MERGE_BYTES = 1 << 28
"""Memory for a merge without a source."""


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
    that is decorated with :func:`glaive.index.protocol.index_kind`.
    """

    name: ClassVar[str]
    """Name of the details message without ``IndexDetails``, in small letters: ``btree``."""

    title: ClassVar[str] = ""
    """What users call it: ``BTREE``."""

    options: ClassVar[tuple[str, ...]] = ()
    """Names of the parameters of a build."""

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
        known_parameters(self.title, parameters, self.options)
        return self.write(Entries((), source, parameters), out)

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
        return self.write(Entries(segments, source, self.parameters(segments[0])), out)

    def write(self, given: Entries, out: SegmentWriter) -> BuiltSegment:
        """Write the entries of segments, and of a source, as one segment: a build has no segments.

        Errors are as for :meth:`build` and :meth:`merge`, which most kinds leave to this one.
        """
        raise UnsupportedFeatureError(f"indices of kind {self.name} are not built, or not merged")


# --- Find a kind of index by the type of its details message ----------------------------
# Each module in ``glaive.index.scalar``, ``.text`` and ``.vector`` may define classes decorated
# with ``@index_kind``. Importing a module registers its kinds: to add a kind, add a file. Where
# those of this package are is listed, so that a process imports those that its datasets have.

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
    """Class decorator: register a kind under its ``name``."""
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
    """The kind of a name, whose module is imported if need be; None if there is none."""
    known = _MADE.get(name)
    if known is not None:
        return known
    home = _HOMES.get(name)
    if home is not None:
        import_module(f"glaive.index.{home}")
    cls = _REGISTERED.get(name) or added("indices").get(name)
    return None if cls is None else _MADE.setdefault(name, cls())


def known_kind(name: str) -> IndexKind:
    """The kind of a name.

    Raises
    ------
    UnsupportedFeatureError
        There is none; the package that adds it is not installed here.
    """
    kind = kind_by_name(name)
    if kind is None:
        raise UnsupportedFeatureError(f"no installed package has indices of kind {name!r:.80}")
    return kind


def kind_of(
    entry: table_pb2.IndexMetadata, files: Iterable[str] = (), schema: LanceSchema | None = None
) -> IndexKind | None:
    """The kind of an entry; ``None`` if the kind, or its format version, is not known.

    Entries by old writers have no details: ``files`` and the type of the column, which is in
    ``schema``, then determine the kind.
    """
    name = kind_name(entry.index_details.type_url)
    kind = kind_by_name(name) if name else kind_by_files(files)
    if not name and schema is not None and kind is not None and kind.name == "bitmap":
        of_lists = any(schema.field_by_id(field).logical_type == "list" for field in entry.fields)
        kind = kind_by_name("labellist") if of_lists else kind
    return kind if kind is not None and entry.index_version <= kind.newest else None


def kind_by_files(names: Iterable[str]) -> IndexKind | None:
    """The kind that has one of its ``markers`` among these files."""
    present = frozenset(names)
    kinds = index_kinds().values()
    return next((kind for kind in kinds if not present.isdisjoint(kind.markers)), None)
