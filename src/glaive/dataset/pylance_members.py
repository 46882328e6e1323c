"""Members of ``LanceDataset`` that clients of pylance use and that no other module is about."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import pyarrow as pa

from glaive.dataset.keywords import FileKeywords, InsertKeywords, WriteKeywords
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.options import shows

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion
    from glaive.file.files import LanceFileSession


# --- Datasets, fragments and scanners are those of pyarrow for who asks with ``isinstance``
# pylance's classes derive from pyarrow's: DuckDB, LanceDB and others ask. Deriving from them would
# load pyarrow.dataset, a quarter of a second, whenever a dataset is opened. So ``__class__`` says
# so
# only once pyarrow.dataset is loaded, before which nobody can ask.


class ArrowNamed:
    """Name pyarrow's module among the bases of a class, and offer nothing.

    DuckDB 2 looks there before it asks with ``isinstance``. Without it, DuckDB pushes no filter.
    """

    __module__ = "pyarrow._dataset"


@cache
def _derived(own_class: Hashable, name: str) -> type:
    from pyarrow import dataset

    cls: Any = own_class
    body = {"__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls, getattr(dataset, name)), body)


def _shown(name: str, self: Any) -> type:
    cls: Any = type(self)
    asked = "pyarrow._dataset" in sys.modules or "duckdb" in sys.modules
    return _derived(cls, name) if asked else cls


def class_for_arrow(name: str) -> Any:
    """``__class__`` of a class: itself; one of pyarrow.dataset, too, once that or DuckDB is loaded.

    DuckDB asks for pyarrow's class only if it is loaded; then it reads what a query needs. Datasets
    have no ``__arrow_c_stream__``, as pylance's: DuckDB would prefer it, and read all.

    Parameters
    ----------
    name
        Of the class in pyarrow.dataset. The class with this ``__class__`` has no slots.
    """
    return property(partial(_shown, name), doc="The class.")


def manifest_needs_migration(dataset: Any) -> bool:
    """Whether a manifest leaves out how many rows are deleted, as those of the first releases."""
    return bool((dataset.manifest.deleted_rows < 0).any())


class _Inner:
    """What well-known clients read of pylance's inner dataset, ``dataset._ds``."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def version(self) -> int:
        """Number of the version."""
        return int(self._dataset.version)

    def latest_version(self) -> int:
        """Number of the newest version."""
        return int(self._dataset.latest_version)

    def get_version(self, tag: str) -> int:
        """The version that a tag is of."""
        return int(self._dataset.tags.get_version(tag))

    def tags(self) -> dict[str, Any]:
        """All tags, by name."""
        found: dict[str, Any] = self._dataset.tags.list()
        return found

    def count_fragments(self) -> int:
        """Number of fragments."""
        return len(self._dataset.fragment_ids())

    def count_deleted_rows(self) -> int:
        """Rows that are in files but deleted."""
        return int(self._dataset.stats.dataset_stats()["num_deleted_rows"])

    def num_small_files(self, max_rows_per_group: int) -> int:
        """Fragments of fewer rows."""
        return int(self._dataset.stats.dataset_stats(max_rows_per_group)["num_small_files"])

    def current_version(self) -> int:
        """Number of the version."""
        return int(self._dataset.version)

    def serialized_manifest(self) -> bytes:
        """The manifest of the version as it is stored."""
        found: bytes = self._dataset.manifest.complete_wire.SerializeToString()
        return found

    def index_cache_entry_count(self) -> int:
        """Parts of indices and of metadata that the session holds."""
        session = self._dataset.session()
        return len(session.index_cache) + len(session.cache)

    def index_cache_hit_rate(self) -> float:
        """Share of reads of indices that found something in the session; 0 before the first."""
        cache = self._dataset.session().index_cache
        rate: float = cache.hits / max(1, cache.hits + cache.misses)
        return rate

    def take_rows(
        self, row_ids: Iterable[int], columns: Sequence[str] | Mapping[str, str] | None = None
    ) -> pa.Table:
        """Rows by row id."""
        found: pa.Table = self._dataset._take_rows(row_ids, columns)  # noqa: SLF001  # pylance's
        return found

    def take_scan(
        self,
        row_slices: Iterable[tuple[int, int]],
        columns: Sequence[str] | Mapping[str, str] | None = None,
        batch_readahead: int = 10,
    ) -> pa.RecordBatchReader:
        """Ranges of rows, from (inclusive) and to (exclusive), one batch each."""
        schema = self._dataset.scanner(columns=columns).projected_schema

        def batches() -> Iterator[pa.RecordBatch]:
            for start, stop in row_slices:
                window = self._dataset.scanner(columns, offset=start, limit=stop - start)
                yield from window.to_table().combine_chunks().to_batches()

        return pa.RecordBatchReader.from_batches(schema, batches())


class _StorageOptions:
    """Storage options as clients ask for them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def get_storage_options(self) -> dict[str, str]:
        """The options."""
        return dict(self._options)


def _path_of(model: type) -> str:
    import re

    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", model.__name__)
    return words.lower()


class PylanceMembers:
    """Members of pylance's dataset that no other module is about."""

    _at: OpenedVersion

    @property
    def _ds(self: Any) -> _Inner:
        """The dataset, with the methods of pylance's inner one."""
        return _Inner(self)

    @property
    def _uri(self: Any) -> str:
        return str(self.uri)

    @property
    def _storage_options(self: Any) -> Mapping[str, str] | None:
        given: Mapping[str, str] | None = self.storage_options
        return given

    @property
    def _default_scan_options(self: Any) -> dict[str, Any] | None:
        return dict(self.opened.scan_defaults) or None

    @_default_scan_options.setter
    def _default_scan_options(self: Any, options: Mapping[str, Any] | None) -> None:
        self._at = replace(self._at, scan_defaults=dict(options or {}))

    @property
    def storage_options_accessor(self: Any) -> _StorageOptions | None:
        """The storage options as an object; ``None`` if none were given."""
        options = self.storage_options
        return None if options is None else _StorageOptions(options)

    def filter(self: Any, expression: Any) -> Any:
        """The dataset with a filter, as a pyarrow dataset."""
        return self.to_pyarrow_dataset().filter(expression)

    def sort_by(self: Any, sorting: Any, **kwargs: Any) -> Any:
        """All rows, sorted, in memory, as a pyarrow dataset."""
        return self.to_pyarrow_dataset().sort_by(sorting, **kwargs)

    def join(
        self: Any,
        right_dataset: Any,
        keys: Any,
        right_keys: Any = None,
        join_type: str = "left outer",
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        coalesce_keys: bool = True,
        use_threads: bool = True,
    ) -> Any:
        """Join with another dataset or table, in memory; options as in pyarrow."""
        given = (right_keys, join_type, left_suffix, right_suffix, coalesce_keys, use_threads)
        return self.to_pyarrow_dataset().join(right_dataset, keys, *given)

    def join_asof(
        self: Any,
        right_dataset: Any,
        on: str,
        by: Any,
        tolerance: int,
        right_on: str | None = None,
        right_by: Any = None,
    ) -> Any:
        """Join on the nearest key, in memory; options as in pyarrow."""
        arrow = self.to_pyarrow_dataset()
        return arrow.join_asof(right_dataset, on, by, tolerance, right_on, right_by)

    def new_file_session(self: Any) -> LanceFileSession:
        """Single files below the dataset's folder, with its storage options."""
        from glaive.file.files import LanceFileSession

        return LanceFileSession(self.uri, self.storage_options)

    @classmethod
    @shows(InsertKeywords, FileKeywords, WriteKeywords, InsertKeywords)
    def from_pydantic_model(
        cls: Any,
        model_class: Any,
        data: Any,
        uri: Any = None,
        mode: str = "create",
        **options: Unpack[InsertKeywords],
    ) -> Any:
        """Write instances of a pydantic model; the schema is that of the model.

        Parameters
        ----------
        model_class
            A class derived from ``pydantic.BaseModel``.
        data
            A list of its instances; of the class itself, not of derived ones.
        uri
            Where to write; default: the name of the class in small letters and underscores.
        mode
            ``create``, ``overwrite`` or ``append``.
        **options
            Of the write.

        Raises
        ------
        OptionError
            ``data`` is no list of such instances.
        SchemaError
            The model has a field without counterpart in Arrow.
        """
        from glaive.dataset.writing.rows import insert_rows
        from glaive.dataset.writing.source import pydantic_to_schema, rows_of_models

        if not isinstance(data, list):
            raise OptionError(f"Pydantic model data must be provided as a list, got {type(data)!r}")
        rows = rows_of_models(data, model_class, schema=pydantic_to_schema(model_class))
        target: Any = _path_of(model_class) if uri is None else uri
        return cls.holding(insert_rows(target, rows, mode, options))


def is_datagen_supported() -> bool:
    """Whether :func:`rand_batches` works: no, as in pylance's wheels."""
    return False


def rand_batches(
    schema: pa.Schema,  # noqa: ARG001  # pylance has it
    *,
    num_batches: int | None = None,  # noqa: ARG001  # pylance has it
    batch_size_bytes: int | None = None,  # noqa: ARG001  # pylance has it
    rows_per_batch: int | None = None,  # noqa: ARG001  # pylance has it
) -> NoReturn:
    """Not supported.

    Raises
    ------
    UnsupportedFeatureError
        Always.
    """
    raise UnsupportedFeatureError(
        "rand_batches is not supported: rows at random are made for tests of pylance itself. Make "
        "them with numpy.random"
    )
