"""Search for nearest vectors and matching texts, and samples, as frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.dataclass import dataclass
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError
from glaive.scan.nearest.options import NearestOptions
from glaive.spark.cast import conform
from glaive.spark.failures import as_glaive_errors
from glaive.spark.frame import frame_schema
from glaive.spark.jobs.runner import dumps, loads, map_rows, opened_dataset, pickled_dataset
from glaive.spark.lance_table.handle import TableHandle
from glaive.spark.options import Options
from glaive.spark.types import spark_arrow_schema, to_spark
from glaive.spark.writer import RELEASE, check_release

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from glaive.dataset.dataset import LanceDataset


# --- The function that searches the rows nearest to each query of a frame, in workers ---

Batches = Iterator[pa.RecordBatch]

_QUERIES = 1024
"""Queries of one search, at most."""
_NUMBER = "query_index"
"""The column of a search with the number of each row's query."""


@dataclass(frozen=True)
class SearchedVectors:
    """Find the nearest rows of vectors.

    Parameters
    ----------
    queries
        Column of the frame with the vectors.
    column, k
        The column that is searched, and the rows for each query.
    columns
        Columns of the dataset in the result.
    parameters
        Of the search, such as ``nprobes``.
    filter
        Which rows may be found.
    """

    score: ClassVar = "_distance"
    """The last column of the result."""

    queries: str
    column: str
    k: int
    columns: tuple[str, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    filter: str | None = None

    def found(self, dataset: LanceDataset, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """Queries with a vector, one for each row found; and these rows."""
        at: Any
        batch = batch.filter(pc.is_valid(batch.column(self.queries)))
        vectors: Any = batch.column(self.queries)
        if not batch.num_rows:
            return batch, None
        lengths = pc.unique(pc.list_value_length(vectors)).to_pylist()
        if len(lengths) > 1:
            raise OptionError(
                f"column {self.queries!r}: expected vectors of one length, found {lengths[:5]}"
            )
        if batch.num_rows > 1 and _NUMBER in self.columns:
            alone = [self.found(dataset, batch.slice(at, 1)) for at in range(batch.num_rows)]
            rows = pa.concat_tables([found for _, found in alone])
            at = np.repeat(np.arange(batch.num_rows), [len(found) for _, found in alone])
            return batch.take(pa.array(at)), rows
        values = vectors.flatten().to_numpy(zero_copy_only=False)
        matrix = values.reshape(batch.num_rows, -1)
        # Alone, a query needs no number, which a column of the dataset may have the name of.
        one = len(matrix) == 1
        query = matrix[0] if one else matrix
        nearest = {"column": self.column, "q": query, "k": self.k, **self.parameters}
        rows = dataset.to_table(
            [*self.columns, self.score, *(() if one else (_NUMBER,))],
            nearest=nearest,
            filter=self.filter,
            prefilter=True,
        )
        at = np.zeros(len(rows), np.int64) if one else rows.column(_NUMBER).to_numpy()
        return batch.take(pa.array(at)), rows


@dataclass(frozen=True)
class SearchedTexts:
    """Find the rows whose texts match best; steps from query to query."""

    score: ClassVar = "_score"

    queries: str
    search_in: tuple[str, ...]
    k: int
    columns: tuple[str, ...]
    filter: str | None = None

    def found(self, dataset: LanceDataset, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """Queries, one for each row found; and these rows."""
        parts, at = [], []
        for number, query in enumerate(batch.column(self.queries).to_pylist()):
            if query is None:
                continue
            text = {"query": query, "columns": list(self.search_in)}
            rows = dataset.to_table(
                [*self.columns, self.score],
                full_text_query=text,
                limit=self.k,
                filter=self.filter,
                prefilter=True,
            )
            parts.append(rows)
            at.append(np.full(rows.num_rows, number))
        if not parts:
            return batch.slice(0, 0), None
        return batch.take(pa.array(np.concatenate(at))), pa.concat_tables(parts)


def search_function(
    driver: str, dataset: bytes, work: bytes, schema: pa.Schema
) -> Callable[[Batches], Batches]:
    """What workers do with a partition of queries: columns of the query, then of the rows found."""

    def run(batches: Batches) -> Batches:
        check_release(driver)
        search, opened = loads(work), opened_dataset(dataset)
        for batch in batches:
            for start in range(0, batch.num_rows, _QUERIES):
                queries, rows = search.found(opened, batch.slice(start, _QUERIES))
                if rows is None:
                    continue
                names = [*queries.schema.names, *search.columns]
                whole = rows.select([*search.columns, search.score])
                for name in reversed(queries.schema.names):
                    whole = whole.add_column(0, name, queries.column(name))
                whole = whole.rename_columns([*names, search.score])
                for part in whole.to_batches():
                    yield conform(part, schema, writing=False)

    return run


def take_function(
    driver: str, dataset: bytes, columns: tuple[str, ...], schema: pa.Schema
) -> Callable[[Batches], Batches]:
    """What workers do with a partition of row positions: the rows."""

    def run(batches: Batches) -> Batches:
        check_release(driver)
        opened = opened_dataset(dataset)
        for batch in batches:
            rows = opened.take(batch.column(0).to_numpy(), columns=list(columns))
            for part in rows.to_batches():
                yield conform(part, schema, writing=False)

    return run


_QUERY = "__glaive_query"


class TableSearch(TableHandle):
    """The methods of ``LanceTable`` that search, and those that return some rows."""

    def search(
        self,
        query: Sequence[float] | np.ndarray[Any, Any] | DataFrame,
        column: str,
        k: int = 10,
        *,
        query_column: str | None = None,
        select: Sequence[str] | None = None,
        filter: str | None = None,
        **parameters: Any,
    ) -> DataFrame:
        """Find the rows whose vectors are nearest to a vector, or to each vector of a frame.

        Parameters
        ----------
        query
            A vector, or a frame with a column of vectors: its columns stay in the result. Rows
            without a vector find nothing.
        column
            The column to search, with its index if there is one.
        k
            Rows for each query.
        query_column
            The column of the frame; default: the one named as ``column``.
        select
            Columns of the table in the result; default: all but ``column``.
        filter
            Which rows may be found, in the language of filters.
        **parameters
            Of the search: ``metric``, ``nprobes``, ``refine_factor``, ``use_index``, …; see
            :class:`glaive.scan.nearest.options.NearestOptions`.

        Returns
        -------
        DataFrame
            Columns of the queries, of the table, and ``_distance``.

        Raises
        ------
        ColumnNotFoundError, SchemaError, OptionError, FilterError
            A column does not exist; or a name is in both the queries and the result.

        Notes
        -----
        Tasks search in the files; queries and results pass through Spark. Without an index each
        partition of queries reads the whole column.
        """
        from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

        dataset = self._latest()
        names = dataset.lance_schema.names
        shown = tuple([name for name in names if name != column] if select is None else select)
        dataset.lance_schema.find(column)
        # Tasks would refuse them as well, but at the first action of the frame.
        NearestOptions.of({"column": column, "q": [0.0], "k": k, **parameters})
        if _is_frame(query):
            frame: Any = query
            work = SearchedVectors(query_column or column, column, k, shown, parameters, filter)
            return self._searched(frame, work)
        vector = np.asarray(query, np.float32)
        if vector.ndim != 1:
            raise OptionError(
                f"query: expected one vector, found shape {vector.shape}. Several queries are a "
                "frame with a column of vectors"
            )
        searched: Any = dataset.schema.field(column).type if column in names else None
        if pa.types.is_fixed_size_list(searched) and searched.list_size != vector.size:
            raise OptionError(
                f"query: column {column!r} has vectors of {searched.list_size} numbers, the query "
                f"has {vector.size}"
            )
        one = self._spark.range(1).select(
            F.array(*(F.lit(float(value)).cast("float") for value in vector)).alias(_QUERY)
        )
        work = SearchedVectors(_QUERY, column, k, shown, parameters, filter)
        return self._searched(one, work).drop(_QUERY)

    def searchText(
        self,
        query: str | DataFrame,
        columns: str | Sequence[str],
        k: int = 10,
        *,
        query_column: str = "query",
        select: Sequence[str] | None = None,
        filter: str | None = None,
    ) -> DataFrame:
        """Find the rows whose texts match a query best, or each query of a frame.

        Parameters
        ----------
        query
            Words, or a frame with a column of them.
        columns
            The columns to search.
        query_column
            The column of the frame.
        select
            Columns of the table in the result; default: all.
        k, filter
            As for :meth:`search`.

        Returns
        -------
        DataFrame
            Columns of the queries, of the table, and ``_score``.

        Raises
        ------
        ColumnNotFoundError, SchemaError, OptionError, FilterError
            As for :meth:`search`.
        """
        from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

        dataset = self._latest()
        searched = (columns,) if isinstance(columns, str) else tuple(columns)
        for name in searched:
            dataset.lance_schema.find(name)
        names = tuple(dataset.lance_schema.names if select is None else select)
        if isinstance(query, str):
            one = self._spark.range(1).select(F.lit(query).alias(_QUERY))
            work = SearchedTexts(_QUERY, searched, k, names, filter)
            return self._searched(one, work).drop(_QUERY)
        work = SearchedTexts(query_column, searched, k, names, filter)
        return self._searched(query, work)

    def sample(
        self, rows: int, *, columns: Sequence[str] | None = None, seed: int | None = None
    ) -> DataFrame:
        """So many random rows, each at most once; only these are read.

        Parameters
        ----------
        rows
            At most; all rows if there are fewer.
        columns
            Default: all.
        seed
            The same seed and version give the same rows.

        Raises
        ------
        OptionError, ColumnNotFoundError
            A number is negative, or a column does not exist.
        """
        from glaive.dataset.stats import sample_positions

        dataset = self._latest()
        given: object = rows
        if not isinstance(given, int) or given < 0:
            raise OptionError(f"rows: expected a number ≥ 0, found {rows!r}")
        names = tuple(dataset.lance_schema.names if columns is None else columns)
        positions = sample_positions(
            len(dataset), min(rows, len(dataset)), randomize_order=False, seed=seed
        )
        table = pa.table({"position": pa.array(positions, pa.int64())})
        arrow = spark_arrow_schema(self._schema_of(names))
        work = take_function(RELEASE, pickled_dataset(dataset.opened), names, arrow)
        with as_glaive_errors():
            frame = self._spark.createDataFrame(table)
            return frame.mapInArrow(work, self._schema_of(names))

    def _searched(self, queries: DataFrame, work: SearchedVectors | SearchedTexts) -> DataFrame:
        from pyspark.sql.types import ArrayType, FloatType, StringType, StructType

        if work.queries not in queries.columns:
            where = "the frame of queries; query_column names another one"
            raise ColumnNotFoundError.among(work.queries, queries.columns, where=where)
        given_type = queries.schema[work.queries].dataType
        if not isinstance(given_type, ArrayType if work.score == "_distance" else StringType):
            what = "arrays of numbers" if work.score == "_distance" else "texts"
            raise SchemaError(
                f"column {work.queries!r} of the queries: expected {what}, found "
                f"{given_type.simpleString()}. query_column names another one"
            )
        found = self._schema_of(work.columns, work.filter)
        if work.score in found.names:
            raise SchemaError(
                f"the table has a column {work.score}, as the result calls what it adds. Select "
                "columns without it, or rename it"
            )
        found = found.add(work.score, FloatType())
        both = set(queries.columns) & set(found.names)
        if both:
            raise SchemaError(
                f"columns {', '.join(sorted(both))} are in both the queries and the result. Rename "
                "them in the queries, or name other columns of the table"
            )
        given: object = work.k
        if not isinstance(given, int) or given < 1:
            raise OptionError(f"k: expected a number of rows, found {work.k!r}")
        schema = StructType([*queries.schema.fields, *found.fields])
        described = pickled_dataset(self._dataset.opened)
        run = search_function(RELEASE, described, dumps(work), spark_arrow_schema(schema))
        with as_glaive_errors():
            return map_rows(queries, run, schema)

    def _schema_of(self, columns: Sequence[str], filter: str | None = None) -> Any:
        options = Options(uri=self._dataset.uri, columns=tuple(columns), filter=filter)
        return to_spark(frame_schema(self._dataset, options))


def _is_frame(given: object) -> bool:
    return type(given).__module__.startswith("pyspark.")
