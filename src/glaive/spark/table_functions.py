"""Table functions of SQL over datasets, in plain ``spark.sql``: scans, searches, changes, facts.

Spark calls ``analyze`` of a function for the columns of the result. It calls ``eval`` in a task for
the rows: once, or once for each row of a ``LATERAL`` join. ``analyze`` pins the version.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import FloatType, StructType, VariantType, VariantVal
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from glaive.dataclass import dataclass
from glaive.errors import OptionError, SchemaError
from glaive.options import integer
from glaive.scan.projection import ROW_ID
from glaive.spark.cast import conform
from glaive.spark.failures import without_inner_frames
from glaive.spark.frame import BATCH_BYTES, frame_schema, open_dataset, pinned, scan_arguments
from glaive.spark.options import Options, from_spark, spark_texts, stream_options
from glaive.spark.types import spark_arrow_schema, to_spark
from glaive.spark.writer import RELEASE, check_release

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from glaive.dataset.dataset import LanceDataset


@dataclass
class Analyzed(AnalyzeResult):
    """The columns of a result, and what tasks need to make its rows.

    Parameters
    ----------
    options
        Options of the read, with the version pinned.
    settings
        Further settings of the function.
    release
        :data:`RELEASE` of the process that analysed the call.
    """

    options: Options = Options(uri="")
    settings: Mapping[str, Any] = field(default_factory=dict)
    release: str = RELEASE


class TableFunction(ABC):
    """A table function of SQL.

    Parameters
    ----------
    analyzed
        The result of ``plan``.
    """

    arguments: ClassVar[tuple[str, ...]] = ("uri",)
    """Names of the arguments that SQL may also give by position."""

    optional: ClassVar[tuple[str, ...]] = ("k", "end")
    """Arguments that may be missing."""

    queries: ClassVar[tuple[str, ...]] = ()
    """Arguments whose values may differ from row to row. The others are constants."""

    plan: ClassVar[Callable[..., Analyzed]]
    """Return columns and settings for the constants, by name; check them."""

    def __init__(self, analyzed: Analyzed) -> None:
        check_release(analyzed.release)
        self.options, self.settings = analyzed.options, analyzed.settings
        self.schema = analyzed.schema
        self.arrow = spark_arrow_schema(self.schema)

    def __init_subclass__(cls) -> None:
        """Give the class the static method that Spark calls."""

        def analyze(*args: AnalyzeArgument, **named: AnalyzeArgument) -> Analyzed:
            return cls.plan(**_constants(cls, cls.named(args, named)))

        cls.analyze = staticmethod(without_inner_frames(analyze))  # type: ignore[attr-defined]  # for Spark

    @classmethod
    def named(cls, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments by name."""
        if len(args) > len(cls.arguments):
            raise OptionError(
                f"expected at most {len(cls.arguments)} arguments by position "
                f"({', '.join(cls.arguments)}), found {len(args)}. Name the others: filter => '…'"
            )
        return {**dict(zip(cls.arguments, args, strict=False)), **named}

    @abstractmethod
    def rows(self, *queries: Any) -> Iterable[pa.RecordBatch]:
        """Yield the rows for one value of each query."""

    def eval(self, *args: Any, **named: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows for the arguments of one row, as values of Python that Spark accepts."""
        given = self.named(args, named)
        for batch in self.rows(*(_plain(given[name]) for name in self.queries)):
            columns: list[list[Any]] = []
            found = conform(batch, self.arrow, writing=False)
            for column, shown in zip(found.columns, self.schema, strict=True):
                values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
                if isinstance(shown.dataType, VariantType):
                    values = [one and VariantVal(one["value"], one["metadata"]) for one in values]
                columns.append(values)
            yield from zip(*columns, strict=True)

    @cached_property
    def dataset(self) -> LanceDataset:
        """The pinned version, which a task opens once."""
        return open_dataset(self.options)

    def scan(self, **arguments: Any) -> Any:
        """Return a scan with the options, except for the given arguments."""
        return self.dataset.scanner(**{**scan_arguments(self.options), **arguments})


def _plain(value: Any) -> Any:
    """Return a value of SQL, where ``0.1`` is a decimal, with floats for decimals."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return float(value) if isinstance(value, Decimal) else value


def _constants(
    function: type[TableFunction], given: Mapping[str, AnalyzeArgument]
) -> dict[str, Any]:
    """Return the values of arguments, without queries and nulls.

    Raises
    ------
    OptionError
        An argument is missing, or is a column or a table.
    """
    constants = {name: one for name, one in given.items() if name not in function.queries}
    for name, argument in constants.items():
        if not argument.isConstantExpression:
            raise OptionError(
                f"{name}: expected a constant, found a column, a table or an expression that Spark "
                "evaluates later. Pass the value as a parameter: spark.sql(…, args=…)"
            )
    values = {name: _plain(one.value) for name, one in constants.items() if one.value is not None}
    for name in function.arguments:
        if name not in values and name not in (*function.queries, *function.optional):
            raise OptionError(f"{name}: missing. Arguments: {', '.join(function.arguments)}")
    return values


def _texts(uri: str, options: Mapping[str, str] | None = None, **named: Any) -> dict[str, str]:
    """Return the options of a read; ``options`` is a map of options whose names have dots."""
    return {**(options or {}), **spark_texts(named), "path": uri}


def _opened(**given: Any) -> tuple[LanceDataset, Options]:
    """Open the dataset of the given arguments; return it, and the options with its version."""
    options = from_spark(_texts(**given))
    dataset = open_dataset(options)
    return dataset, pinned(options, dataset)


# --- Rows and facts of a version, and changes of versions ---------------------------------


def _plan_scan(uri: str, **options: Any) -> Analyzed:
    dataset, checked = _opened(uri=uri, **options)
    return Analyzed(to_spark(frame_schema(dataset, checked)), options=checked)


class Scan(TableFunction):
    """``lance_scan(uri, …)``: the rows, with the options of :func:`glaive.spark.read`."""

    plan = staticmethod(_plan_scan)

    def rows(self, *queries: Any) -> Iterable[pa.RecordBatch]:
        """Yield the rows in the order of the dataset."""
        batches: Iterable[pa.RecordBatch] = self.scan(batch_size_bytes=BATCH_BYTES).to_batches()
        return batches


def _plan_facts(columns: str, uri: str, **options: Any) -> Analyzed:
    from glaive.spark.lance_table import reading

    return Analyzed(to_spark(getattr(reading, columns)), options=_opened(uri=uri, **options)[1])


class History(TableFunction):
    """``lance_history(uri, limit => 10)``: the versions, as ``LanceTable.history``."""

    plan = staticmethod(partial(_plan_facts, "HISTORY"))

    def rows(self, *queries: Any) -> Iterable[pa.RecordBatch]:
        """Return the newest version first."""
        from glaive.spark.lance_table.reading import history_table

        return history_table(self.dataset, self.options.limit).to_batches()


class Files(TableFunction):
    """``lance_files(uri, version => 3)``: the files of a version, as ``LanceTable.files``."""

    plan = staticmethod(partial(_plan_facts, "FILES"))

    def rows(self, *queries: Any) -> Iterable[pa.RecordBatch]:
        """Return the files by fragment."""
        from glaive.spark.lance_table.reading import files_table

        return files_table(self.dataset.manifest).to_batches()


def _plan_changes(
    uri: str, start: int | str | datetime, end: int | str | datetime | None = None, **options: Any
) -> Analyzed:
    from glaive.spark.stream_reader import change_schema, open_changes

    for name, bound in (("starting", start), ("ending", end)):
        options[f"{name}{'Version' if isinstance(bound, int) else 'Timestamp'}"] = bound
    feed, others = stream_options(_texts(uri, **options, readChangeFeed=True))
    checked = from_spark(others)
    dataset = open_changes(checked, feed)
    schema = to_spark(change_schema(dataset, checked))
    return Analyzed(schema, options=pinned(checked, dataset), settings={"feed": feed})


class Changes(TableFunction):
    """``lance_changes(uri, 3, 5)``: the change feed of versions 3 to 5.

    A start or end that is a string or a timestamp is a time. Options, as of the source's batch
    change feed: ``preimages``, ``deduplicationMode``, ``columns``, ``branch``.
    """

    arguments = ("uri", "start", "end")
    plan = staticmethod(_plan_changes)

    def rows(self, *queries: Any) -> Iterable[pa.RecordBatch]:
        """Yield the changes, version by version."""
        from glaive.spark.stream_reader import LanceChangesReader

        reader = LanceChangesReader(self.options, self.settings["feed"], self.schema)
        for partition in reader.partitions():
            yield from reader.read(partition)


# --- Searches -----------------------------------------------------------------------------

_NOTHING: Final = pa.table({ROW_ID: pa.array([], pa.int64())})


def _plan_search(
    score: str,
    uri: str,
    *,
    k: int = 10,
    column: str | None = None,
    columns: str | Sequence[str] = (),
    select: str | Sequence[str] | None = None,
    **given: Any,
) -> Analyzed:
    """Return the columns of a search, and its settings.

    Parameters
    ----------
    score
        The last column of the result.
    uri
        The dataset.
    k
        Number of rows.
    column, columns
        Columns to search: one of vectors, and one or several of texts.
    select
        Other columns of the result; by default all but ``column``.
    given
        Parameters of the search, and options of the read.
    """
    from glaive.scan.nearest.options import NearestOptions, SearchKeywords

    texts = [columns] if isinstance(columns, str) else list(columns)
    nearest = {name: given.pop(name) for name in SearchKeywords.__annotations__ if name in given}
    nearest["column"] = column
    # Tasks would refuse wrong arguments, too, but later.
    integer(1).check("k", k)
    dataset, options = _opened(uri=uri, columns=select, **given)
    for name in texts if column is None else (*texts, column):
        dataset.lance_schema.find(name)
    if column is not None:
        NearestOptions.of({"q": [0.0], **nearest})
    if options.columns is None:
        names = dataset.lance_schema.names
        options = replace(options, columns=tuple(name for name in names if name != column))
    schema = to_spark(frame_schema(dataset, options))
    if score in schema.names:
        raise SchemaError(
            f"{dataset.uri} has a column {score}, as the result calls its last column. Select "
            "others: select => 'a,b'"
        )
    schema = StructType([*schema.fields]).add(score, FloatType())
    settings = {"k": k, "texts": texts, "nearest": nearest}
    return Analyzed(schema, options=options, settings=settings)


class Search(TableFunction):
    """``lance_search(uri, query, column, k => 10, …)``: the rows nearest to a vector.

    ``select`` names the columns of the result. Further options are as in ``LanceTable.search``
    and :func:`glaive.spark.read`.
    """

    arguments: ClassVar[tuple[str, ...]] = ("uri", "query", "column", "k")
    queries: ClassVar[tuple[str, ...]] = ("query",)
    plan = staticmethod(partial(_plan_search, "_distance"))

    def rows(self, *queries: Any) -> Iterable[pa.RecordBatch]:
        """Return the nearest row first."""
        return self.shown(self.nearest(queries[0], self.settings["k"]))

    def shown(self, found: pa.Table) -> list[pa.RecordBatch]:
        """Return the columns of the result."""
        return found.select(self.schema.names).to_batches() if len(found) else []

    def nearest(self, query: Sequence[float] | None, k: int, **others: Any) -> pa.Table:
        """Return the rows nearest to a vector; no rows without a vector."""
        if query is None:
            return _NOTHING
        nearest = {**self.settings["nearest"], "q": query, "k": k}
        found: pa.Table = self.scan(nearest=nearest, prefilter=True, **others).to_table()
        return found

    def matching(self, query: str | None, k: int, **others: Any) -> pa.Table:
        """Return the rows whose texts match best; no rows without a query."""
        if query is None:
            return _NOTHING
        text = {"query": query, "columns": self.settings["texts"]}
        scan = self.scan(full_text_query=text, limit=k, prefilter=True, **others)
        found: pa.Table = scan.to_table()
        return found


class SearchText(Search):
    """``lance_search_text(uri, query, columns, k => 10, …)``: the rows whose texts match best.

    ``columns`` is one column, or an array of them. Options are as in :class:`Search`.
    """

    arguments = ("uri", "query", "columns", "k")
    plan = staticmethod(partial(_plan_search, "_score"))

    def rows(self, *queries: Any) -> Iterable[pa.RecordBatch]:
        """Return the best row first."""
        return self.shown(self.matching(queries[0], self.settings["k"]))


def _plan_hybrid(
    uri: str, column: str, columns: str | Sequence[str], k: int = 10, **given: Any
) -> Analyzed:
    checks = integer(1)
    rrf_k = checks.check("rrf_k", given.pop("rrf_k", 60))
    candidates = checks.check("candidates", given.pop("candidates", 5 * k))
    score = "_relevance_score"
    analyzed = _plan_search(score, uri, k=k, column=column, columns=columns, **given)
    fusion = {"rrf_k": rrf_k, "candidates": candidates}
    return replace(analyzed, settings={**analyzed.settings, **fusion})


class HybridSearch(Search):
    """``lance_hybrid_search(uri, vector, query, column, columns, k => 10, …)``: both searches.

    Each search finds ``candidates`` rows, by default 5 ``k``. The result has the ``k`` rows with
    the highest sums of ``1 / (rrf_k + rank)`` (reciprocal rank fusion). Ranks begin with 1;
    ``rrf_k`` is 60 by default. A search whose query is null finds no rows.
    """

    arguments = ("uri", "vector", "query", "column", "columns", "k")
    queries = ("vector", "query")
    plan = staticmethod(_plan_hybrid)

    def rows(self, *queries: Any) -> Iterable[pa.RecordBatch]:
        """Return the row with the highest relevance first."""
        (vector, query), count = queries, self.settings["candidates"]
        ids: dict[str, Any] = {"columns": [], "with_row_id": True, "with_row_address": False}
        scores: dict[Any, float] = defaultdict(float)
        for found in (self.nearest(vector, count, **ids), self.matching(query, count, **ids)):
            for rank, row_id in enumerate(found[ROW_ID].to_pylist(), 1):
                scores[row_id] += 1 / (self.settings["rrf_k"] + rank)
        best = sorted(scores, key=scores.__getitem__, reverse=True)[: self.settings["k"]]
        if not best:
            return []
        chosen = f"{ROW_ID} in ({', '.join(map(str, best))})"
        rows = self.scan(filter=chosen, with_row_id=True).to_table()
        rows = rows.take(pc.index_in(pa.array(best, pa.uint64()), rows[ROW_ID]))
        relevance = pa.array([scores[row_id] for row_id in best], pa.float32())
        return self.shown(rows.append_column(self.schema.names[-1], relevance))


# --- The names in SQL ---------------------------------------------------------------------

FUNCTIONS: Final[dict[str, type[TableFunction]]] = {
    "lance_scan": Scan,
    "lance_search": Search,
    "lance_search_text": SearchText,
    "lance_hybrid_search": HybridSearch,
    "lance_changes": Changes,
    "lance_history": History,
    "lance_files": Files,
}
"""The functions by their names in SQL."""


def register_functions(spark: SparkSession) -> None:
    """Register all functions in a session."""
    from pyspark.sql.functions import udtf

    for name, function in FUNCTIONS.items():
        made: Any = udtf(function, useArrow=False)
        spark.udtf.register(name, made.asDeterministic())
