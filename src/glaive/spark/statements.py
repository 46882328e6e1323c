"""SQL over datasets: queries, and statements that methods of ``LanceTable`` run.

:data:`glaive.spark.grammar.STATEMENTS` has the form of every statement and what runs it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING, Any

from glaive.errors import OptionError
from glaive.spark.failures import as_glaive_errors
from glaive.spark.grammar import STATEMENTS, Found, Table, Words, keywords, matched
from glaive.spark.named_tables import NamedTables
from glaive.spark.queries import run_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

from glaive.spark import row_statements, table_statements  # noqa: F401  # they fill STATEMENTS


def sql(
    spark: SparkSession, query: str, **tables: str | os.PathLike[str] | Mapping[str, Any] | Any
) -> DataFrame:
    """Run an SQL statement over datasets.

    A query reads only the columns and rows that it needs.

    Parameters
    ----------
    spark
        A Spark session.
    query
        A query in Spark's SQL, or a statement such as ``MERGE INTO``. ``lance.`/data/f.lance` ``
        means the dataset of a path. All other names are Spark's views and tables.
    tables
        What names in the statement mean: the path or URI of a dataset, or a :class:`LanceTable`.
        Or a mapping of ``uri`` and options of :func:`read`:
        ``flights={"uri": "flights.lance", "version": 3}``. Or a catalogue, whose tables the
        statement names ``shop.orders``.

    Returns
    -------
    DataFrame
        The rows of a query. Changes have run when this function returns, and give counts such as
        ``num_affected_rows``.

    Raises
    ------
    MissingDependencyError
        sqlglot is not installed.
    OptionError
        The statement is unknown. The message names the closest statement.
    DatasetNotFoundError, DatasetExistsError, NotFoundError
        The dataset or the version is missing, or a dataset to create exists.
    ColumnNotFoundError, SchemaError
        A column is missing, or a value does not fit a column.
    CommitContentionError
        Other writers changed the same rows at every attempt. The dataset is unchanged.

    Notes
    -----
    glaive evaluates comparisons with constants in ``where`` if it selects exactly the rows that
    Spark would select. If a query needs only the number of rows of a table, as
    ``select count(*)`` does, glaive takes the number from the metadata.

    Examples
    --------
    >>> glaive.spark.sql(spark, "SELECT carrier, count(*) FROM f GROUP BY carrier", f="f.lance")
    >>> glaive.spark.sql(spark, "DELETE FROM lance.`f.lance` WHERE dep_delay IS NULL")
    """
    named = NamedTables(spark, tables)
    words = Words.of(query)
    if not words.words or words.is_word(0, "SELECT", "WITH", "VALUES", "FROM", "("):
        return run_query(named, query)  # also refuses an empty text
    target = None
    for statement in STATEMENTS:
        found = matched(statement.form, words)
        if found is None:
            continue
        target = found.get("table") or found.get("catalogue")
        if target is None or _is_known(named, target, found):
            return named.frame_of(statement.run(named, found))
    if _names_dataset(named, words):
        raise _unknown(words) if target is None else _not_given(target)
    with as_glaive_errors():
        return spark.sql(query)


def _is_known(tables: NamedTables, target: Table, found: Found) -> bool:
    if "table" in found:
        return tables.knows(target)
    return target.parts[0].lower() in tables.catalogues


def _names_dataset(tables: NamedTables, words: Words) -> bool:
    """Return whether a statement of unknown form may name a dataset."""
    names = {*tables.given, *tables.catalogues}
    for at, word in enumerate(words.words):
        if word.kind in ("word", "name") and word.text.lower() in names:
            return True
        if words.is_word(at, "LANCE") and (words.is_word(at + 1, ".") or at):
            return words.is_word(at + 1, ".") or words.is_word(at - 1, "USING")
    return False


def _not_given(target: Table) -> OptionError:
    name = ".".join(target.parts)
    return OptionError(
        f"query: {name} is no dataset that glaive knows. Write lance.`path`, or give the dataset "
        f"as an argument: {target.parts[0]}=…"
    )


def _unknown(words: Words) -> OptionError:
    """Return an error that names the known statement with the most words in common."""
    given = [word.text.upper() for word in words.words if word.kind == "word"]
    known = {statement.form: keywords(statement.form) for statement in STATEMENTS}
    first = sorted({words[0] for words in known.values()})
    close = get_close_matches(given[0] if given else "", first, 1)
    text = f"query: glaive does not know the statement {words.text.strip()!r:.80}"
    if not close:
        return OptionError(
            f"{text}. Write a query, or a statement that begins with {', '.join(first)}"
        )

    def likeness(form: str) -> tuple[bool, float]:
        same = SequenceMatcher(None, known[form], given[: 2 * len(known[form])])
        return known[form][0] == close[0], same.ratio()

    return OptionError(f"{text}. The closest one is {max(known, key=likeness)}")
