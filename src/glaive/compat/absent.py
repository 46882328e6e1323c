"""Stand-ins for names of pylance that glaive lacks.

A program may import the stand-ins, annotate with them, call ``isinstance`` with them, and derive
classes from them. The first use raises an error with the reason and an alternative. A script that
only mentions such a name runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeVar

from glaive.dataclass import NamedTuple
from glaive.errors import GlaiveError, MissingDependencyError, UnsupportedFeatureError

C = TypeVar("C", bound=type)


class Absence(NamedTuple):
    """Reason why names are absent.

    Parameters
    ----------
    reason
        Why; a sentence without a full stop.
    instead
        Alternative; a sentence without a full stop.
    names
        Names in a module, separated by spaces; a member is ``Class.member``.
    """

    reason: str
    instead: str
    names: str


class AbsentName(type):
    """The class of stand-ins. Using a stand-in raises an error."""

    __absence__: str
    __error__: type[GlaiveError]

    def __call__(cls, *args: object, **options: object) -> NoReturn:
        """Raise the error with the reason."""
        raise cls.__error__(cls.__absence__)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__") or name == "_abc_impl":
            raise AttributeError(f"{cls.__name__} has no attribute {name!r}")
        raise cls.__error__(f"{cls.__absence__} (asked for its attribute {name!r})")

    def __iter__(cls) -> Iterator[NoReturn]:
        raise cls.__error__(cls.__absence__)

    def __repr__(cls) -> str:
        return f"<{cls.__module__}.{cls.__name__}: not supported>"


def _absent(module: str, name: str, message: str, error: type[GlaiveError]) -> AbsentName:
    body = {
        "__absence__": message,
        "__error__": error,
        "__module__": module,
        "__qualname__": name,
        "__doc__": f"Not supported. {message}",
    }
    return AbsentName(name, (), body)


def _message(name: str, absence: Absence) -> str:
    return f"{name} is not supported: {absence.reason}. {absence.instead}."


def names_of(table: Sequence[Absence]) -> dict[str, Absence]:
    """Return the absence of each name of a table."""
    return {name: absence for absence in table for name in absence.names.split()}


def absent_names(
    module: str, table: Sequence[Absence], cache: dict[str, Any]
) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a module with stand-ins for the names of a table.

    Parameters
    ----------
    module
        The module's ``__name__``.
    table
        Names that the module lacks.
    cache
        The module's ``globals()``; a stand-in is made once and kept there.
    """
    known = names_of(table)

    def find(name: str) -> Any:
        if name not in known:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        message = _message(name, known[name])
        return cache.setdefault(name, _absent(module, name, message, UnsupportedFeatureError))

    return find


def needs_package(module: str, name: str, package: str, extra: str) -> AbsentName:
    """Make a stand-in for a name of a missing package; use raises MissingDependencyError."""
    message = f"{module}.{name} needs {package}, which is not installed. Install it: {extra}"
    return _absent(module, name, message, MissingDependencyError)


def refuse_members(table: Sequence[Absence]) -> Callable[[C], C]:
    """Make a class decorator: methods that the class lacks raise an error.

    The table lists them as ``Class.member``. Existing members of the class stay.
    """
    known: Mapping[str, Absence] = names_of(table)

    def add(cls: C) -> C:
        for name, absence in known.items():
            owner, _, member = name.partition(".")
            if owner == cls.__name__ and member and member not in vars(cls):
                setattr(cls, member, _refusing(cls, member, _message(name, absence)))
        return cls

    return add


def _refusing(cls: type, member: str, message: str) -> Callable[..., NoReturn]:
    def refuse(_self: object, *_args: object, **_options: object) -> NoReturn:
        raise UnsupportedFeatureError(message)

    refuse.__dict__["__refused__"] = message
    refuse.__name__ = member
    refuse.__qualname__ = f"{cls.__qualname__}.{member}"
    refuse.__doc__ = f"Not supported. {message}"
    return refuse


# --- Names of pylance that glaive lacks, by module, with the reason and an alternative ----
# ``docs/guide/names.md`` lists all of pylance's names; tests compare it with both libraries.

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
_SEARCH_QUERY = Absence(
    "search and filter are options of their own",
    "Use scanner(nearest=…, filter=…) or scanner(full_text_query=…, filter=…)",
    "PySearchFilter VectorSearchQuery",
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
    "glaive": (_SHARDS, _BLOB_WRITERS, _TABLE_PROVIDER),
    "glaive.blob": (_BLOB_WRITERS,),
    "glaive.dataset": (
        _SEARCH_QUERY,
        _TRANSFORM,
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
"""Absent names by module of glaive."""

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
    Absence("the file reads from where it is stored", "Use read() or readall()", "BlobFile.detach"),
)
"""Members of classes, as ``Class.member``."""
