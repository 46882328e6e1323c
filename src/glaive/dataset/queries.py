"""SQL queries, run by DuckDB."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from shutil import rmtree
from typing import Any, Final
from weakref import finalize

import pyarrow as pa

from glaive.dataset.interop import ArrowDataset, ScannedDataset
from glaive.dataset.query_columns import for_duckdb
from glaive.dataset.query_names import ResultColumn, named_columns, with_columns
from glaive.dataset.query_types import with_declared_types
from glaive.dataset.scanner import Scanner
from glaive.entropy import random_bytes
from glaive.errors import GlaiveError, MissingDependencyError, OptionError

__all__ = ["SqlQuery", "SqlQueryBuilder"]

_CONFINED: Final = {"enable_external_access": "false", "lock_configuration": "true"}
"""A query sees its tables and nothing else: no files, no network, no extensions. Nor does it change
settings: a log in a file that it may not write would end the process. They are set once DuckDB is
open: set before, they allow a query to write files that are called as a database in memory is.
"""

_UNSAFE: Final = ("0.", "1.")
"""Versions whose functions, such as ``reverse``, trust texts to be UTF-8, and leave the memory of
those that are not. A query may also have them write a log, whatever the settings say."""


_SMALL_ROWS: Final = 100_000
_SMALL_BYTES: Final = 1 << 26
"""Rows and bytes of a table up to which a query does without threads and temporary files."""

_EXPLAIN: Final = re.compile(
    r"(?is)(?:\s|--[^\n]*\n|/\*(?:(?!\*/).)*\*/)*explain(\s+analyze)?(\s+verbose)?\s"
)

_TRACE: Final = "\n\nStack Trace:"
"""What begins in errors of DuckDB that it takes for its own fault."""


class SqlQueryBuilder:
    """Builder of an SQL query; returned by ``dataset.sql``. Methods change and return it."""

    def __init__(self, opened: ScannedDataset, sql: str) -> None:
        self._opened = opened
        self._sql = sql
        self._table = "dataset"
        self._batch_size = 8192
        self._options: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"SqlQueryBuilder({self._sql!r}, table_name={self._table!r})"

    def table_name(self, table_name: str) -> SqlQueryBuilder:
        """Name of the dataset in the query; ``dataset`` by default."""
        self._table = table_name
        return self

    def with_row_id(self, with_row_id: bool = True) -> SqlQueryBuilder:
        """Add a column ``_rowid``."""
        self._options["with_row_id"] = with_row_id
        return self

    def with_row_addr(self, with_row_addr: bool = True) -> SqlQueryBuilder:
        """Add a column ``_rowaddr``."""
        self._options["with_row_address"] = with_row_addr
        return self

    def blob_handling(self, blob_handling: str) -> SqlQueryBuilder:
        """How blob columns are returned; see ``ScanOptions``."""
        self._options["blob_handling"] = blob_handling
        return self

    def batch_size(self, batch_size: int) -> SqlQueryBuilder:
        """Approximate rows per batch of the result."""
        self._batch_size = batch_size
        return self

    def batch_size_bytes(self, batch_size_bytes: int) -> SqlQueryBuilder:
        """Approximate bytes per batch read."""
        self._options["batch_size_bytes"] = batch_size_bytes
        return self

    def build(self) -> SqlQuery:
        """The query, ready to run."""
        table = ArrowDataset(self._opened, self._options)
        stored = self._opened.snapshot.file_bytes()
        is_small = table.count_rows() <= _SMALL_ROWS and stored <= _SMALL_BYTES
        return SqlQuery(
            self._sql, {self._table: table}, self._batch_size, as_pylance=True, is_small=is_small
        )


class SqlQuery:
    """An SQL query. Each run reads the datasets again.

    Parameters
    ----------
    as_pylance
        Names of columns and types of sums are those of pylance's queries.
    is_small
        Run in a database that all small queries share, if the query only selects.
    """

    def __init__(
        self,
        sql: str,
        tables: Mapping[str, object],
        batch_size: int,
        *,
        as_pylance: bool = False,
        is_small: bool = False,
    ) -> None:
        self._sql = sql
        self._tables = tables
        self._batch_size = batch_size
        self._as_pylance = as_pylance
        self._is_small = is_small

    def to_batch_records(self) -> list[pa.RecordBatch]:
        """Run the query; the result in batches."""
        return list(self.to_stream_reader())

    def to_stream_reader(self) -> pa.RecordBatchReader:
        """Run the query and stream the result.

        Raises
        ------
        MissingDependencyError
            DuckDB is not installed, or a version before 2.
        OptionError
            The query is invalid; the message is DuckDB's.
        DataFileMissingError, CorruptFileError, NotLanceError
            A table cannot be read; also while the result is read.
        """
        asked = _EXPLAIN.match(self._sql) if self._as_pylance else None
        if asked is not None:
            return self._explained(self._sql[asked.end() :], analyzed=asked[1] is not None)
        try:
            import duckdb
        except ImportError as error:
            raise MissingDependencyError(
                f'sql: queries run in DuckDB ({error}). Install it: pip install "glaive[sql]"'
            ) from error
        if duckdb.__version__.startswith(_UNSAFE):
            raise MissingDependencyError(
                f"sql: expected DuckDB 2 or newer, found {duckdb.__version__}, which may end the "
                'process over texts of strangers. Update it: pip install --upgrade "glaive[sql]"'
            )
        folder = _TemporaryFolder()
        is_shared = self._is_small and _only_selects(_shared(os.getpid()), self._sql)
        if is_shared:
            connection = _shared(os.getpid()).cursor()
        else:
            connection = _connected({"temp_directory": folder.path})
        schemas = [getattr(table, "schema", None) for table in self._tables.values()]
        failures: list[GlaiveError] = []
        try:
            for name, table in self._tables.items():
                connection.register(name, for_duckdb(table, failures))
            relation = connection.sql(self._sql)
            if relation is None:
                raise OptionError("sql: expected a query that returns rows, such as SELECT")
            kinds = relation.types
            reader = with_declared_types(relation.to_arrow_reader(self._batch_size), schemas)
            if self._as_pylance:
                columns = _names(os.getpid(), self._sql, len(kinds))
                reader = with_columns(reader, columns, kinds)
        except (duckdb.Error, pa.ArrowException, UnicodeDecodeError) as error:
            if is_shared and isinstance(error, duckdb.OutOfMemoryException):
                given = (self._sql, self._tables, self._batch_size)  # it may write files, too
                return SqlQuery(*given, as_pylance=self._as_pylance).to_stream_reader()
            raise _cause(error, failures) from error

        def rows() -> Iterator[pa.RecordBatch]:
            try:
                yield from reader
            # DuckDB's messages show values: texts of a stranger may be any bytes.
            except (duckdb.Error, pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise _cause(error, failures) from error
            finally:
                folder.remove()

        return pa.RecordBatchReader.from_batches(reader.schema, rows())

    def _explained(self, sql: str, *, analyzed: bool) -> pa.RecordBatchReader:
        """Return the plans of a query's scans, and DuckDB's plan, in the columns of pylance."""
        plans: list[str] = []
        tables = {
            name: _ExplainedDataset(table, plans, analyzed=analyzed)
            for name, table in self._tables.items()
            if isinstance(table, ArrowDataset)
        }
        SqlQuery(sql, tables, self._batch_size).to_batch_records()
        text = f"EXPLAIN {'ANALYZE ' * analyzed}{sql}"
        whole = SqlQuery(text, self._tables, self._batch_size).to_stream_reader().read_all()
        steps, scans = "\n".join(map(str, whole[1].to_pylist())), "\n".join(plans)
        kinds = ["Plan with Metrics"] if analyzed else ["logical_plan", "physical_plan"]
        plans = [f"{scans}\n{steps}"] if analyzed else [steps, scans]
        return pa.table({"plan_type": kinds, "plan": plans}).to_reader()


class _ExplainedDataset(ArrowDataset):
    """A table of a query that is explained: it notes the plans of its scans, which find nothing."""

    def __init__(self, table: ArrowDataset, plans: list[str], *, analyzed: bool) -> None:
        self._table, self._plans, self._analyzed = table, plans, analyzed
        made: Any = table.__reduce__()[1]
        super().__init__(*made)

    def scanner(  # type: ignore[override]  # arguments are handed on
        self, *args: Any, **options: Any
    ) -> Scanner:
        """Describe a scan; arguments as for the dataset."""
        scan = self._table.scanner(*args, **options)
        self._plans.append(scan.analyze_plan() if self._analyzed else scan.explain_plan())
        return self._table.scanner(*args, **options, limit=0)


def _connected(config: dict[str, Any]) -> Any:
    """A connection to a database of its own, in which queries see nothing else."""
    import duckdb

    connection = duckdb.connect(config=config)
    for name, value in _CONFINED.items():
        connection.execute(f"SET {name} = {value}")
    return connection


@cache
def _shared(_process: int) -> Any:
    """The database of small queries, which saves 15 milliseconds a query.

    It has no threads, so that a process may fork, and writes no files.
    """
    return _connected({"threads": 1, "temp_directory": ""})


@lru_cache(maxsize=256)
def _names(process: int, sql: str, count: int) -> list[ResultColumn]:
    return named_columns(_shared(process).cursor(), sql, count)


def _only_selects(database: Any, sql: str) -> bool:
    """Whether a query changes nothing that the next query of a database would find."""
    import duckdb

    try:
        return all(one.type.name == "SELECT" for one in database.cursor().extract_statements(sql))
    except duckdb.Error:  # the query itself says below what is wrong
        return False


class _TemporaryFolder:
    """A folder in the working directory, which DuckDB makes once it needs one.

    A query may read and write what is in it. So it has a name that no query knows before, and is
    removed with this object: DuckDB leaves files there that a query has written by itself.
    """

    __slots__ = ("__weakref__", "path", "remove")

    def __init__(self) -> None:
        self.path = f".tmp-{random_bytes(16).hex()}"
        with suppress(FileNotFoundError):  # somebody has removed the working directory
            self.path = str(Path(self.path).absolute())
        self.remove = finalize(self, _remove, self.path, os.getpid())


def _remove(folder: str, owner: int) -> None:
    """Remove a folder; not in a child that was forked, whose parent still reads."""
    if os.getpid() == owner:
        rmtree(folder, ignore_errors=True)


def _cause(error: Exception, failures: list[GlaiveError]) -> GlaiveError:
    """The error of reading a table; else what DuckDB says, without the traceback that is added."""
    if failures:
        found = failures[0]
        # DuckDB holds the list, and the traceback of an error holds DuckDB: nothing would free it.
        failures.clear()
        return found
    said = str(error).partition(" Detail: Python exception")[0]
    return OptionError(f"sql: {said.partition(_TRACE)[0]}")
