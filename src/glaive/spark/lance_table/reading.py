"""Read a table as frames: facts, changes, searches and samples; export it to files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark
from pyspark.sql.types import ArrayType, FloatType, StringType, StructType

from glaive.dataclass import dataclass
from glaive.dataset.clustering import cluster_keys
from glaive.dataset.stats import sample_positions
from glaive.dataset.tasks import COUNTS, JOB
from glaive.errors import ColumnNotFoundError, ObjectNotFoundError, OptionError, SchemaError
from glaive.format.paths import data_file_path, deletion_file_path
from glaive.ingestion.exporting import ExportMode, export_files
from glaive.ingestion.plan import parse_columns
from glaive.options import integer, shows
from glaive.scan.nearest.options import NearestOptions, SearchKeywords
from glaive.spark.api import TableHandle, located, version_frame
from glaive.spark.cast import conform
from glaive.spark.failures import as_glaive_errors, naming_job
from glaive.spark.frame import frame_schema
from glaive.spark.options import Options
from glaive.spark.runner import (
    SparkRunner,
    dumps,
    loads,
    map_rows,
    opened_dataset,
    parse_counts,
    pickled_dataset,
)
from glaive.spark.types import spark_arrow_schema, to_spark
from glaive.spark.writer import RELEASE, check_release
from glaive.table.load import load_manifest, read_transaction
from glaive.table.refs import branch_of
from glaive.table.versions import list_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from glaive.dataset.dataset import LanceDataset
    from glaive.format.manifest import Manifest


_FILE_ROWS: Final = 1024
"""Number of files that are converted to Python values at a time."""

_STRINGS: Final = pa.map_(pa.string(), pa.string())

_DETAIL: Final = parse_columns(
    "uri string, version bigint, branch string, timestamp timestamp, num_rows bigint, "
    "num_deleted_rows bigint, num_fragments bigint, num_files bigint, size_in_bytes bigint, "
    "data_storage_version string, stable_row_ids boolean, clustering_columns array<string>"
).append(pa.field("config", _STRINGS))
HISTORY: Final = (
    parse_columns(
        "version bigint, timestamp timestamp, operation string, read_version bigint, job_id string"
    )
    .append(pa.field("counts", pa.map_(pa.string(), pa.int64())))
    .append(pa.field("properties", _STRINGS))
)
_FRAGMENTS: Final = parse_columns("fragment_id bigint, num_rows bigint, num_deleted_rows bigint")
FILES: Final = parse_columns(
    "fragment_id bigint, path string, kind string, size_in_bytes bigint, format_version string, "
    "field_ids array<int>, base_id bigint"
)
_INDICES: Final = parse_columns(
    "name string, kind string, columns array<string>, num_rows_indexed bigint, "
    "num_rows_not_indexed bigint, num_segments bigint, size_in_bytes bigint"
)
_REFS: Final = parse_columns("name string, kind string, version bigint, branch string")


class TableDescription(TableHandle):
    """The methods of ``LanceTable`` that describe it."""

    @property
    def version(self) -> int:
        """The number of the newest version. Cost: one or two requests."""
        return self._latest().version

    def toDF(self) -> DataFrame:
        """Return a frame over the newest version at the time of this call.

        To read some columns only, or another version, use :func:`glaive.spark.read`.
        """
        frame = version_frame(self._spark, self._latest())
        return frame if self._name is None else frame.alias(self._name)

    def detail(self) -> DataFrame:
        """Return one row about the newest version: its size, format and configuration."""
        dataset = self._latest()
        manifest, snapshot = dataset.manifest, dataset.snapshot
        physical = int(manifest.physical_rows.sum())
        live = snapshot.num_rows
        row = {
            "uri": dataset.uri,
            "version": dataset.version,
            "branch": branch_of(manifest) or "main",
            "timestamp": manifest.timestamp,
            "num_rows": live,
            "num_deleted_rows": physical - live,
            "num_fragments": manifest.num_fragments,
            "num_files": manifest.columns.file_count,
            "size_in_bytes": manifest.columns.file_bytes,
            "data_storage_version": dataset.data_storage_version,
            "stable_row_ids": dataset.has_stable_row_ids,
            "clustering_columns": cluster_keys(manifest),
            "config": list(dataset.config().items()),
        }
        return self._described(pa.Table.from_pylist([row], _DETAIL))

    def history(self, limit: int | None = None) -> DataFrame:
        """Return one row for each version, the newest first.

        Columns: ``version``, ``timestamp``, ``operation``, ``read_version``. Versions that jobs
        made also have ``job_id``, ``counts`` (such as ``num_deleted_rows``), ``properties``.

        Parameters
        ----------
        limit
            Maximum number of versions; default: all.

        Notes
        -----
        One request for each version, two if its transaction has a separate file.
        """
        if limit is not None:
            integer(1).check("limit", limit)
        return self._described(history_table(self._latest(), limit))

    def fragments(self) -> DataFrame:
        """Return the fragments: ``fragment_id``, ``num_rows`` (live), ``num_deleted_rows``."""
        dataset = self._latest()
        live = dataset.snapshot.live_counts.astype(np.int64)
        ids, physical = dataset.manifest.fragment_ids, dataset.manifest.physical_rows
        return self._described(pa.table([ids, live, physical - live], schema=_FRAGMENTS))

    def files(self) -> DataFrame:
        """Return the data and deletion files of the newest version, with fragment and size."""
        return self._described(files_table(self._latest().manifest))

    def indices(self) -> DataFrame:
        """Return the indices: ``name``, ``kind``, ``columns``, and how many rows they cover."""
        dataset = self._latest()
        total = dataset.snapshot.num_rows
        rows = [
            {
                "name": index.name,
                "kind": index.index_type,
                "columns": index.field_names,
                "num_rows_indexed": index.num_rows_indexed,
                "num_rows_not_indexed": max(0, total - index.num_rows_indexed),
                "num_segments": len(index.segments),
                "size_in_bytes": index.total_size_bytes,
            }
            for index in dataset.describe_indices()
        ]
        return self._described(pa.Table.from_pylist(rows, _INDICES))

    def refs(self) -> DataFrame:
        """Return the tags and branches: ``name``, ``kind``, ``version``, ``branch``.

        ``kind`` is ``tag`` or ``branch``. For a tag, the version and branch are its target; for a
        branch, they are where it started.
        """
        dataset = self._latest()
        rows: list[dict[str, Any]] = [
            {"name": name, "kind": "tag", "version": tag["version"], "branch": tag["branch"]}
            for name, tag in dataset.tags.list().items()
        ]
        rows += [
            {
                "name": name,
                "kind": "branch",
                "version": branch["parent_version"],
                "branch": branch["parent_branch"],
            }
            for name, branch in dataset.branches.list().items()
        ]
        for row in rows:
            row["branch"] = row["branch"] or "main"
        return self._described(pa.Table.from_pylist(rows, _REFS))


def history_table(dataset: LanceDataset, limit: int | None) -> pa.Table:
    """Return the rows of :meth:`TableDescription.history`, up to the version of ``dataset``."""
    return pa.Table.from_pylist(list(_history(dataset, limit)), HISTORY)


def _history(dataset: LanceDataset, limit: int | None) -> Iterator[dict[str, Any]]:
    listed = list_versions(dataset.store)
    newest_first = [one for one in reversed(listed) if one.version <= dataset.version]
    for location in newest_first[:limit]:
        with suppress(ObjectNotFoundError):  # cleaned up after the listing
            manifest = load_manifest(dataset.store, location)
            transaction = read_transaction(dataset.store, manifest)
            properties = {} if transaction is None else dict(transaction.properties)
            yield {
                "version": manifest.version,
                "timestamp": manifest.timestamp,
                "operation": None if transaction is None else transaction.operation.wire_name,
                "read_version": None if transaction is None else transaction.read_version,
                "job_id": properties.get(JOB),
                "counts": list(parse_counts(properties.get(COUNTS)).items()),
                "properties": list(properties.items()),
            }


def files_table(manifest: Manifest) -> pa.Table:
    """Return the rows of :meth:`TableDescription.files`."""
    rows, schema = _files(manifest), FILES
    # Convert in parts: Python values take several times the memory.
    parts = iter(lambda: list(islice(rows, _FILE_ROWS)), [])
    return pa.Table.from_batches((pa.RecordBatch.from_pylist(one, schema) for one in parts), schema)


def _files(manifest: Manifest) -> Iterator[dict[str, Any]]:

    for fragment in manifest.fragments():
        for file in fragment.files:
            yield {
                "fragment_id": fragment.id,
                "path": data_file_path(file.path),
                "kind": "data",
                "size_in_bytes": file.size,
                "format_version": str(file.version),
                "field_ids": list(file.fields),
                "base_id": file.base_id,
            }
        deleted = fragment.deletion_file
        if deleted is not None:
            version, number = deleted.read_version, deleted.number
            yield {
                "fragment_id": fragment.id,
                "path": deletion_file_path(fragment.id, version, number, bitmap=deleted.bitmap),
                "kind": "deletion",
                "base_id": deleted.base_id,
            }


# --- Search for nearest vectors and matching texts, and samples, as frames --------------

# --- The function that searches the rows nearest to each query of a frame, in workers ---

Batches = Iterator[pa.RecordBatch]

_BATCH_QUERIES = 1024
"""Maximum queries per search."""
_NUMBER = "query_index"
"""The column of a search result with the number of the query."""


@dataclass(frozen=True)
class SearchedVectors:
    """Find the nearest rows of vectors.

    Parameters
    ----------
    queries
        Column of the frame with the vectors.
    column, k
        The column to search, and the number of rows per query.
    columns
        Columns of the dataset in the result.
    parameters
        Parameters of the search, such as ``nprobes``.
    filter
        Filter of the rows that may be found.
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
        """Return the queries with a vector, repeated for each row found; and these rows."""
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
        # A single query omits the number, whose name a column of the dataset may have.
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
    """Find the rows whose texts match best, query by query."""

    score: ClassVar = "_score"

    queries: str
    search_in: tuple[str, ...]
    k: int
    columns: tuple[str, ...]
    filter: str | None = None

    def found(self, dataset: LanceDataset, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """Return the queries, repeated for each row found; and these rows."""
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
    """Return the function of workers for a partition of queries: columns of queries and rows."""

    def run(batches: Batches) -> Batches:
        check_release(driver)
        search, opened = loads(work), opened_dataset(dataset)
        for batch in batches:
            for start in range(0, batch.num_rows, _BATCH_QUERIES):
                queries, rows = search.found(opened, batch.slice(start, _BATCH_QUERIES))
                if rows is None:
                    continue
                found = rows.select([*search.columns, search.score]).columns
                names = [*queries.schema.names, *search.columns, search.score]
                whole = pa.Table.from_arrays([*queries.columns, *found], names=names)
                for part in whole.to_batches():
                    yield conform(part, schema, writing=False)

    return run


def take_function(
    driver: str, dataset: bytes, columns: tuple[str, ...], schema: pa.Schema
) -> Callable[[Batches], Batches]:
    """Return the function of workers for a partition of row positions: the rows."""

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
    """The methods of ``LanceTable`` that search or return some rows."""

    @shows(SearchKeywords, NearestOptions)
    def search(
        self,
        query: Sequence[float] | np.ndarray[Any, Any] | DataFrame,
        column: str,
        k: int = 10,
        *,
        query_column: str | None = None,
        select: Sequence[str] | None = None,
        filter: str | None = None,
        **parameters: Unpack[SearchKeywords],
    ) -> DataFrame:
        """Find the rows whose vectors are nearest to a vector, or to each vector of a frame.

        Parameters
        ----------
        query
            A vector, or a frame with a column of vectors. The result keeps the columns of the
            frame. Queries whose vector is null find nothing.
        column
            The column to search. The search uses an index of the column if there is one.
        k
            Number of rows for each query.
        query_column
            The column of the frame with the vectors; default: the same name as ``column``.
        select
            Columns of the table in the result; default: all except ``column``.
        filter
            Condition in the filter language that found rows meet; default: all rows.
        **parameters
            Parameters of the search, such as ``nprobes``.

        Returns
        -------
        DataFrame
            Columns of the queries, columns of the table, and ``_distance``.

        Raises
        ------
        ColumnNotFoundError, SchemaError, OptionError, FilterError
            A column is missing, or the queries and the result have a name in common.

        Notes
        -----
        Tasks search in the files; queries and results pass through Spark. If an index is missing,
        each partition of queries reads the whole column.
        """
        dataset = self._latest()
        names = dataset.lance_schema.names
        shown = tuple([name for name in names if name != column] if select is None else select)
        # Tasks would also refuse them, but only at the first action of the frame.
        NearestOptions.of({"column": column, "q": [0.0], "k": k, **parameters})
        dataset.lance_schema.find(column)
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
            Words, or a frame with a column of strings of words.
        columns
            One or several columns to search.
        query_column
            The column of the frame with the words.
        select
            Columns of the table in the result; default: all.
        k, filter
            See :meth:`search`.

        Returns
        -------
        DataFrame
            Columns of the queries, columns of the table, and ``_score``.

        Raises
        ------
        ColumnNotFoundError, SchemaError, OptionError, FilterError
            See :meth:`search`.
        """
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
        """Return random rows, each at most once. Tasks read only these rows.

        Parameters
        ----------
        rows
            Number of rows; a smaller table returns all its rows.
        columns
            Columns of the result; default: all.
        seed
            The same seed and version give the same rows.

        Raises
        ------
        OptionError, ColumnNotFoundError
            A number is negative, or a column is missing.
        """
        dataset = self._latest()
        integer(0).check("rows", rows)
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

        if work.queries not in queries.columns:
            where = "the frame of queries; query_column names another one"
            raise ColumnNotFoundError.among(work.queries, queries.columns, where=where)
        given_type = queries.schema[work.queries].dataType
        if not isinstance(given_type, ArrayType if work.score == "_distance" else StringType):
            what = "arrays of numbers" if work.score == "_distance" else "strings"
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
        integer(1).check("k", work.k)
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


# --- Rows of a table as files of other formats ------------------------------------------

_REMOVED_FILES = "the files that it wrote were removed"


class TableExport(TableHandle):
    """The method of ``LanceTable`` that writes files of other formats."""

    def export(
        self,
        format: str,
        path: str,
        mode: ExportMode = "errorifexists",
        *,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: str | None = None,  # the name that scans have for it
        storage_options: Mapping[str, str] | None = None,
        job_id: str | None = None,
        **options: Any,
    ) -> dict[str, int]:
        """Write the newest version to files of a folder.

        Parameters
        ----------
        format
            ``parquet``, ``csv``, ``json``, ``arrow`` or ``feather``: tasks read the dataset and
            write the files, with exactly its types.
        path
            The folder; a path or URI.
        mode
            What to do if the folder has files. ``errorifexists`` raises an error, ``ignore`` keeps
            them, ``append`` adds more. ``overwrite`` removes the files of other exports after the
            new files are complete.
        columns, filter
            See :func:`glaive.spark.read`; default: all.
        storage_options
            Settings of the object store of the folder; default: the settings of the table.
        job_id
            Name of this export. A second run with the same name returns the result of the first, or
            replaces an unfinished run.
        **options
            Options of the format, such as ``compression="zstd"`` for Parquet, ``header=False``
            and ``sep=";"`` for CSV.

        Returns
        -------
        dict
            ``num_files``, ``num_rows`` and ``bytes``.

        Raises
        ------
        DatasetExistsError
            The folder has files, and ``mode`` is ``errorifexists``.
        OptionError
            The format, the mode or an option is wrong, or ``overwrite`` would remove files of
            other programs.
        SchemaError
            The format cannot store a column. This is checked before tasks run.
        CommitConflictError
            Another export to the folder, which began later, replaced this export.
        JobError
            The cluster lost processes of the job.

        Notes
        -----
        After all files, the job writes the file ``_SUCCESS``, which names them. Blobs are written
        as bytes.
        """
        dataset = self._latest()
        target = located(path)
        job = job_id if job_id is not None else str(uuid4())
        with naming_job(job, target, named=job_id is not None, left=_REMOVED_FILES):
            return export_files(
                dataset.opened,
                target,
                format.lower(),
                mode,
                columns=columns,
                filter=filter,
                options=options,
                storage_options=storage_options or dataset.storage_options,
                job_id=job_id,
                runner=SparkRunner(self._spark),
            )
