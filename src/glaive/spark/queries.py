"""SQL over datasets: each is read with the columns and rows that the query needs.

Spark tells Python sources neither which columns a query uses nor, safely, its filters. So the query
is parsed here, and every table in it becomes a frame of its own; the text that Spark runs is the
user's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from glaive.errors import MissingDependencyError, OptionError
from glaive.format.column_path import quoted_name
from glaive.spark.api import cluster_cores, is_set, read
from glaive.spark.failures import as_glaive_errors, naming_columns
from glaive.spark.options import Options, absolute, from_spark, to_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.spark.grouped_frames import GroupedFrame
    from glaive.spark.query_tables import TableUse

__all__ = ["sql", "tables_in"]

INSTEAD = {
    "Delete": "LanceTable.forPath(spark, uri).delete(condition)",
    "Update": "LanceTable.forPath(spark, uri).update(condition, set)",
    "Merge": "LanceTable.forPath(spark, uri).merge(source, condition)",
    "Insert": "glaive.spark.write(glaive.spark.sql(spark, query), uri, mode='append')",
    "TruncateTable": "LanceTable.forPath(spark, uri).delete('true')",
    "Alter": "LanceTable.forPath(spark, uri).addColumns(...) or .dropColumns(...)",
    "Create": "glaive.spark.write(glaive.spark.sql(spark, query), uri)",
    "Drop": "the delete of its directory",
    "Describe": "LanceTable.forPath(spark, uri).detail()",
    "Command": "LanceTable.forPath(spark, uri).optimize() or .vacuum()",
}
"""What to use for statements that are no queries, by their kind."""

MAY_DIFFER = {
    "|>": None,  # sqlglot makes one select of steps that Spark evaluates one after the other
    "${": None,  # Spark puts the value of a variable there, also within a text
    "\\\n": None,  # where a comment goes on in the next line for Spark
    '"': "spark.sql.ansi.doubleQuotedIdentifiers",
    "`": "spark.sql.parser.quotedRegexColumnNames",
    "\\": "spark.sql.parser.escapedStringLiterals",
}
"""Signs that Spark may read in another way than sqlglot, and the settings by which it does."""


def sql(
    spark: SparkSession, query: str, **tables: str | os.PathLike[str] | Mapping[str, Any]
) -> DataFrame:
    """Run a query over datasets, of which only the columns and rows needed are read.

    Parameters
    ----------
    query
        In Spark's SQL. Names that are not among ``tables`` are Spark's views and tables; a dataset
        may also be named by its path: ``lance.`/data/flights.lance```.
    tables
        Path or URI of each dataset by its name in the query, or a mapping of ``uri`` and options
        of :func:`read`: ``flights={"uri": "flights.lance", "version": 3}``.

    Raises
    ------
    MissingDependencyError
        sqlglot is not installed.
    OptionError
        The statement changes a dataset, which Spark's SQL cannot; the message says what can.
    DatasetNotFoundError, NotFoundError
        There is no such dataset or version.
    ColumnNotFoundError
        A column of the query does not exist.

    Notes
    -----
    Comparisons with constants in ``where`` are evaluated by glaive where that selects the very rows
    that Spark would select. A table of which nothing but the number of rows is needed, as for
    ``select count(*)``, is counted from its metadata.

    Examples
    --------
    >>> glaive.spark.sql(spark, "SELECT carrier, count(*) FROM f GROUP BY carrier", f="f.lance")
    """
    statement = _parsed(query)
    from sqlglot import exp

    given = {name.lower(): _read_options(name, table) for name, table in tables.items()}
    if len(given) < len(tables):
        raise OptionError(
            "tables: names that differ in nothing but case are one name in Spark's SQL, found "
            f"{', '.join(sorted(tables))}. Give each dataset a name of its own"
        )
    if not isinstance(statement, exp.Query):
        _refuse_statement(statement, query, given)
        with as_glaive_errors():
            return spark.sql(query)
    try:
        pieces, frames, columns = _with_frames(spark, query, statement, given)
    except RecursionError:
        raise _too_deep() from None
    names = {one.alias_or_name.lower() for one in statement.find_all(exp.Table)}
    with naming_columns(columns, "the query", names), as_glaive_errors():
        return spark.sql(pieces, **frames)


def tables_in(query: str) -> set[str]:
    """The names of tables and views in a query, in lower case; those of its ``WITH``, too.

    Raises
    ------
    MissingDependencyError
        sqlglot is not installed.
    OptionError
        It is no query.
    """
    statement = _parsed(query)
    from sqlglot import exp

    if not isinstance(statement, exp.Query):
        raise OptionError(f"query: expected a query, found {type(statement).__name__.upper()}")
    return {table.name.lower() for table in statement.find_all(exp.Table)}


def _parsed(query: str) -> Any:
    """The one statement of a text."""
    try:
        import sqlglot
    except ImportError as error:
        raise MissingDependencyError(
            f'glaive.spark.sql needs sqlglot ({error}). Install it: pip install "glaive[spark]"'
        ) from error
    try:
        statements = sqlglot.parse(query, dialect="spark")
    except sqlglot.errors.SqlglotError as error:
        raise OptionError(f"query: {error}") from error
    except RecursionError:
        raise _too_deep() from None
    if len(statements) != 1 or statements[0] is None:
        raise OptionError(f"query: expected one statement, found {len(statements)}")
    return statements[0]


def _too_deep() -> OptionError:
    return OptionError(
        "query: it is nested too deeply to be parsed. Use fewer brackets, subqueries and CASE "
        "within each other, or name parts of it by WITH"
    )


def _with_frames(
    spark: SparkSession, query: str, statement: Any, given: dict[str, dict[str, Any]]
) -> tuple[str, dict[str, Any], list[str]]:
    """The query with a placeholder for each table, their frames, and columns of all datasets."""
    from sqlglot import exp

    from glaive.spark.query_tables import is_given, table_uses

    by_path: dict[int, str] = {}
    for table in statement.find_all(exp.Table):
        is_path = table.db.lower() == "lance" and "start" in table.this.meta and not table.catalog
        if table.args.get("version") and (is_path or is_given(table, given)):
            raise OptionError(
                f"query: Spark cannot select versions of Lance datasets with AS OF. Name the "
                f"dataset and its version: {_identifier(table)}={{'uri': …, 'version': 3}}, or "
                "'asof', 'tag' or 'branch'"
            )
        if is_path:
            name = f"lance.{table.name}"
            given.setdefault(name, {"uri": table.name})
            by_path[id(table)] = name
    sources = {name: _open(options) for name, options in given.items()}
    schemas = {name: schema for name, (_, schema, _) in sources.items()}
    uses = table_uses(statement, query, schemas, by_path)
    if _may_differ(spark, query) or _mixes_names(spark, statement, schemas):
        uses = [use.whole(schemas[use.name]) for use in uses]
    frames: dict[str, Any] = {}
    known: dict[object, str] = {}
    pieces, done = [], 0
    for use in sorted(uses, key=lambda use: use.table.this.meta["start"]):
        # Spark runs equal parts of a query once, if they read the same frame.
        equal = use.name, use.columns, repr(use.tests)
        placeholder = known.setdefault(equal, f"glaive_{len(frames)}")
        grouped = _grouped(spark, query, use, sources[use.name])
        if grouped is not None:
            placeholder = f"glaive_groups_{len(frames)}"
            frames[placeholder] = grouped.frame
            pieces += [_escaped(query[done : grouped.start] + grouped.before)]
            pieces += [f"{{{placeholder}}}", _escaped(grouped.after)]
            done = grouped.end
            continue
        if placeholder not in frames:
            frames[placeholder] = _frame(spark, use, given[use.name], sources[use.name])
        start = use.table.this.meta["start"]
        if id(use.table) in by_path:
            start = use.table.args["db"].meta["start"]
        pieces += [_escaped(query[done:start]), f"{{{placeholder}}}"]
        done = use.table.this.meta["end"] + 1
        if not (use.table.alias or id(use.table) in by_path or _is_sampled(use.table)):
            pieces.append(f" AS {quoted_name(use.table.name)}")
    columns = [column for schema in schemas.values() for column in schema.names]
    return "".join([*pieces, _escaped(query[done:])]), frames, columns


def _may_differ(spark: SparkSession, query: str) -> bool:
    """Whether Spark may read a text in another way than it was parsed."""
    return any(
        sign in query and (setting is None or is_set(spark, setting))
        for sign, setting in MAY_DIFFER.items()
    )


def _mixes_names(spark: SparkSession, statement: Any, schemas: Mapping[str, Any]) -> bool:
    """Whether Spark tells names apart that are one name without their case."""
    from sqlglot import exp

    if not is_set(spark, "spark.sql.caseSensitive"):
        return False
    names = {name for schema in schemas.values() for name in schema.names}
    names |= {identifier.name for identifier in statement.find_all(exp.Identifier)}
    return len({name.lower() for name in names}) < len(names)


def _identifier(table: Any) -> str:
    """The name of a table, or one for it if that is a path."""
    name: str = table.name
    return name if name.isidentifier() else "t"


def _is_sampled(table: Any) -> bool:
    """Whether ``TABLESAMPLE`` follows, behind which alone an alias may stand."""
    return bool(table.args.get("sample")) or type(table.parent).__name__ == "TableSample"


def _escaped(text: str) -> str:
    """Text in which Spark looks for no placeholders."""
    return text.replace("{", "{{").replace("}", "}}")


def _read_options(name: str, table: Any) -> dict[str, Any]:
    """The arguments of :func:`read` for one table."""
    if isinstance(table, str | os.PathLike):
        return {"uri": table}
    if not isinstance(table, Mapping) or "uri" not in table:
        raise OptionError(
            f"table {name!r}: expected a path, a URI, or a mapping with 'uri' and options of "
            f"glaive.spark.read, found {table!r:.80}"
        )
    return dict(table)


def _open(options: Mapping[str, Any]) -> tuple[Options, Any, Any]:
    """Options with the version pinned, the columns as Spark sees them, and the dataset."""
    from glaive.spark.frame import frame_schema, open_dataset, pinned
    from glaive.spark.types import to_spark as spark_schema

    others = {name: value for name, value in options.items() if name != "uri"}
    if "storage_options" in others:
        others["storage"] = others.pop("storage_options")
    checked = from_spark(to_spark(others) | {"path": absolute(options["uri"])})
    dataset = open_dataset(checked)
    return pinned(checked, dataset), spark_schema(frame_schema(dataset, checked)), dataset


def _grouped(
    spark: SparkSession,
    query: str,
    use: TableUse,
    source: tuple[Options, Any, Any],
) -> GroupedFrame | None:
    """The groups of a table, where tasks may aggregate its rows."""
    from glaive.spark.grouped_frames import grouped_frame

    pinned, schema, dataset = source
    if not use.decided or _is_searched(pinned) or isinstance(pinned.columns, Mapping):
        return None
    filters, complete = _filters(use, source)
    if not use.columns and not filters:  # its rows are counted without reading
        return None
    columns = tuple(use.columns) or _narrowest(schema)
    needed = _planned(spark, pinned, columns, _conjunction(filters))
    return grouped_frame(spark, query, use, schema, needed, dataset) if complete else None


def _is_searched(pinned: Options) -> bool:
    """Whether the rows of a table are the result of a search."""
    searches = pinned.order_by or pinned.nearest or pinned.full_text_query
    return bool(searches or pinned.limit is not None)


def _filters(use: TableUse, source: tuple[Options, Any, Any]) -> tuple[list[str], bool]:
    """The filter of a scan for a table, in parts, and whether it has all tests of the query."""
    from glaive.spark.filters import Frame, push
    from glaive.spark.frame import stored_paths

    pinned, schema, dataset = source
    own = [pinned.filter] if pinned.filter else []
    if _is_searched(pinned):
        return own, not use.tests
    stored = stored_paths(dataset, pinned)
    whole = Frame(schema, stored, dataset.lance_schema, dataset.scanner().projected_schema)
    pushed = push(use.tests, whole)
    return [*own, *pushed.filters], pushed.complete


def _conjunction(filters: Sequence[str]) -> str | None:
    return " and ".join(f"({text})" for text in filters) or None


def _planned(
    spark: SparkSession, pinned: Options, columns: Any, filter_text: str | None
) -> Options:
    """The options of a scan that is planned for the cores of the cluster."""
    cores = pinned.parallelism if pinned.parallelism is not None else cluster_cores(spark)
    return replace(pinned, columns=columns, filter=filter_text, parallelism=cores)


def _frame(
    spark: SparkSession, use: TableUse, options: Mapping[str, Any], source: tuple[Options, Any, Any]
) -> DataFrame:
    """The frame of one table of a query."""
    from glaive.spark.planned_scan import planned_scan

    pinned, schema, dataset = source
    searched = _is_searched(pinned)
    filters, _ = _filters(use, source)
    if not use.columns and not filters and not searched:
        return spark.range(dataset.count_rows()).toDF("_row")
    columns = _columns(use.columns or _narrowest(schema), pinned)
    filter_text = _conjunction(filters)
    if not searched:
        frame = planned_scan(spark, _planned(spark, pinned, columns, filter_text), dataset)
        if frame is not None:
            return frame
    rest = {
        name: value
        for name, value in options.items()
        if name not in ("columns", "filter", "version", "branch", "tag", "asof")
    }
    return read(
        spark,
        columns=columns,
        filter=filter_text,
        version=pinned.version,
        branch=pinned.branch,
        **rest,
    )


def _columns(names: Sequence[str], pinned: Options) -> tuple[str, ...] | dict[str, str]:
    computed = pinned.columns
    if not isinstance(computed, Mapping):
        return tuple(names)
    return {name: computed.get(name, quoted_name(name)) for name in names}


def _narrowest(schema: Any) -> tuple[str, ...]:
    """A column that costs little to read."""
    from pyspark.sql.types import BooleanType, DateType, NumericType

    narrow = (BooleanType, DateType, NumericType)
    return (min(schema, key=lambda field: not isinstance(field.dataType, narrow)).name,)


def _refuse_statement(statement: Any, query: str, given: Mapping[str, object]) -> None:
    """Refuse statements that would change one of the datasets.

    Raises
    ------
    OptionError
        Spark's SQL cannot; the message names what can.
    """
    from sqlglot import exp

    kind = type(statement).__name__
    names = {table.name.lower() for table in statement.find_all(exp.Table)}
    words = {word.strip("`;").lower() for word in query.split()}
    by_path = any(table.db.lower() == "lance" for table in statement.find_all(exp.Table))
    using_lance = "using lance" in " ".join(query.lower().split())
    if not (by_path or using_lance or given.keys() & (names | words)):
        return
    raise OptionError(
        f"Spark's SQL cannot run {kind.upper()} on Lance datasets. Use "
        f"{INSTEAD.get(kind, 'LanceTable.forPath(spark, uri)')} instead"
    )
