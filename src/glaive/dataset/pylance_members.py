"""Other members of ``LanceDataset`` that clients of pylance use."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import pyarrow as pa

from glaive.dataset.keywords import FileKeywords, InsertKeywords, TargetKeywords, WriteKeywords
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.options import shows

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion
    from glaive.file.files import LanceFileSession


# --- ``isinstance`` takes datasets, fragments and scanners for pyarrow's ----------------
# pylance's classes derive from pyarrow's, and DuckDB, LanceDB and others check that. But deriving
# would load pyarrow.dataset, which takes 250 ms, whenever a dataset is opened. So ``__class__``
# claims it only once pyarrow.dataset is loaded. Before, nobody can check.


class ArrowNamed:
    """Adds pyarrow's module to the bases of a class.

    DuckDB 2 looks there before it calls ``isinstance`` and decides to push filters down.
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
    is_loaded = "pyarrow._dataset" in sys.modules or "duckdb" in sys.modules
    return _derived(cls, name) if is_loaded else cls


def class_for_arrow(name: str) -> Any:
    """Make a ``__class__`` that also names a pyarrow class, once pyarrow.dataset or DuckDB is
    loaded.

    DuckDB checks for pyarrow's class only if it is loaded. Then it reads only data that a query
    needs. Datasets lack ``__arrow_c_stream__``, as in pylance: DuckDB would prefer it and read
    all data.

    Parameters
    ----------
    name
        Name of the class in pyarrow.dataset. The class with this ``__class__`` has a ``__dict__``.
    """
    return property(partial(_shown, name), doc="The class.")


def manifest_needs_migration(dataset: Any) -> bool:
    """Return whether a manifest lacks the number of deleted rows, as in the first releases."""
    return bool((dataset.manifest.deleted_rows < 0).any())


class _Inner:
    """The members that well-known clients read from pylance's inner dataset, ``dataset._ds``."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def version(self) -> int:
        """Return the number of the version."""
        return int(self._dataset.version)

    def latest_version(self) -> int:
        """Return the number of the newest version."""
        return int(self._dataset.latest_version)

    def get_version(self, tag: str) -> int:
        """Return the version of a tag."""
        return int(self._dataset.tags.get_version(tag))

    def tags(self) -> dict[str, Any]:
        """Return all tags, by name."""
        found: dict[str, Any] = self._dataset.tags.list()
        return found

    def count_fragments(self) -> int:
        """Return the number of fragments."""
        return len(self._dataset.fragment_ids())

    def count_deleted_rows(self) -> int:
        """Count deleted rows that are still in files."""
        return int(self._dataset.stats.dataset_stats()["num_deleted_rows"])

    def num_small_files(self, max_rows_per_group: int) -> int:
        """Count fragments below ``max_rows_per_group`` rows."""
        return int(self._dataset.stats.dataset_stats(max_rows_per_group)["num_small_files"])

    current_version = version

    def serialized_manifest(self) -> bytes:
        """Return the manifest of the version as stored."""
        found: bytes = self._dataset.manifest.complete_wire.SerializeToString()
        return found

    def index_cache_entry_count(self) -> int:
        """Return the number of parts of indices and metadata in the session's cache."""
        session = self._dataset.session()
        return len(session.index_cache) + len(session.cache)

    def index_cache_hit_rate(self) -> float:
        """Return the hit rate of the session's index cache; 0 before the first read."""
        cache = self._dataset.session().index_cache
        rate: float = cache.hits / max(1, cache.hits + cache.misses)
        return rate

    def take_rows(
        self, row_ids: Iterable[int], columns: Sequence[str] | Mapping[str, str] | None = None
    ) -> pa.Table:
        """Return rows by row id."""
        found: pa.Table = self._dataset._take_rows(row_ids, columns)  # noqa: SLF001  # pylance's
        return found

    def take_scan(
        self,
        row_slices: Iterable[tuple[int, int]],
        columns: Sequence[str] | Mapping[str, str] | None = None,
        batch_readahead: int = 10,
    ) -> pa.RecordBatchReader:
        """Read ranges of rows, start inclusive and stop exclusive, one batch each."""
        schema = self._dataset.scanner(columns=columns).projected_schema

        def batches() -> Iterator[pa.RecordBatch]:
            for start, stop in row_slices:
                window = self._dataset.scanner(columns, offset=start, limit=stop - start)
                yield from window.to_table().combine_chunks().to_batches()

        return pa.RecordBatchReader.from_batches(schema, batches())


class _StorageOptions:
    """Storage options in the form that clients expect."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def get_storage_options(self) -> dict[str, str]:
        """Return the options."""
        return dict(self._options)


def _path_of(model: type) -> str:
    import re

    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", model.__name__)
    return words.lower()


class PylanceMembers:
    """Other members of pylance's dataset."""

    _at: OpenedVersion

    @property
    def _ds(self: Any) -> _Inner:
        """The dataset, with the methods of pylance's inner dataset."""
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
        """The storage options as an object; ``None`` by default."""
        options = self.storage_options
        return None if options is None else _StorageOptions(options)

    def filter(self: Any, expression: Any) -> Any:
        """Return the dataset with a filter, as a pyarrow dataset."""
        return self.to_pyarrow_dataset().filter(expression)

    def sort_by(self: Any, sorting: Any, **kwargs: Any) -> Any:
        """Sort all rows in memory; return a pyarrow dataset."""
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
        """Open a session for single files below the dataset's folder, with its storage options."""
        from glaive.file.files import LanceFileSession

        return LanceFileSession(self.uri, self.storage_options)

    @classmethod
    @shows(InsertKeywords, FileKeywords, WriteKeywords, TargetKeywords, InsertKeywords)
    def from_pydantic_model(
        cls: Any,
        model_class: Any,
        data: Any,
        uri: Any = None,
        mode: str = "create",
        **options: Unpack[InsertKeywords],
    ) -> Any:
        """Write instances of a pydantic model; the model determines the schema.

        Parameters
        ----------
        model_class
            A class derived from ``pydantic.BaseModel``.
        data
            A list of instances of the class itself; instances of derived classes are refused.
        uri
            Location to write to; default: the name of the class in snake case.
        mode
            ``create``, ``overwrite`` or ``append``.
        **options
            Options of the write.

        Raises
        ------
        OptionError
            ``data`` is not a list of such instances.
        SchemaError
            Arrow lacks a type for a field of the model.
        """
        from glaive.dataset.writing.rows import write_rows
        from glaive.dataset.writing.source import pydantic_to_schema, rows_of_models

        if not isinstance(data, list):
            raise OptionError(f"Pydantic model data must be provided as a list, got {type(data)!r}")
        rows = rows_of_models(data, model_class, schema=pydantic_to_schema(model_class))
        target: Any = _path_of(model_class) if uri is None else uri
        return cls.holding(write_rows(rows, target, mode, options))


def is_datagen_supported() -> bool:
    """Return whether :func:`rand_batches` works: False, as in pylance's wheels."""
    return False


def rand_batches(
    schema: pa.Schema,  # noqa: ARG001  # pylance has it
    *,
    num_batches: int | None = None,  # noqa: ARG001  # pylance has it
    batch_size_bytes: int | None = None,  # noqa: ARG001  # pylance has it
    rows_per_batch: int | None = None,  # noqa: ARG001  # pylance has it
) -> NoReturn:
    """Raise an error: glaive lacks it.

    Raises
    ------
    UnsupportedFeatureError
        Always.
    """
    raise UnsupportedFeatureError(
        "rand_batches is not supported: rows at random are made for tests of pylance itself. Make "
        "them with numpy.random"
    )
