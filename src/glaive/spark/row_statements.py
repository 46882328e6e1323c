"""Statements that change rows: ``DELETE``, ``UPDATE``, ``MERGE``, ``INSERT``, ``TRUNCATE``.

Conditions and values are Spark's SQL: glaive evaluates only comparisons that select exactly the
rows that Spark would select.
"""

from __future__ import annotations

from collections.abc import Mapping
from glob import escape
from typing import TYPE_CHECKING, Any, Final

import sqlglot
from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark
from pyspark.sql.types import NumericType, StringType, StructField, StructType
from sqlglot import exp

from glaive.dataset.dataset import LanceDataset
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError
from glaive.format.field import Field, quoted_name, unquoted_name
from glaive.spark.api import CASE_SENSITIVE, is_set, located
from glaive.spark.failures import as_glaive_errors
from glaive.spark.files import load
from glaive.spark.frame import frame_schema
from glaive.spark.frame_writing import write
from glaive.spark.grammar import Found, Table, Words, matched, runs
from glaive.spark.lance_table.table import LanceTable
from glaive.spark.named_tables import NamedTables, latest
from glaive.spark.options import Options
from glaive.spark.queries import exact_filter, run_query
from glaive.spark.types import same_type, to_spark, without_case
from glaive.table.configuration import DEFAULT, GENERATED, IDENTITY, has_value
from glaive.table.refs import branch_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# --- Rows -------------------------------------------------------------------------------


@runs(
    (
        "COPY INTO {table} FROM {text} FILEFORMAT = {kind} [FILES = {values}|PATTERN = {pattern}] "
        "[FORMAT_OPTIONS {options}] [COPY_OPTIONS {properties}]"
    ),
    by="glaive.spark.load",
)
def _copy(tables: NamedTables, found: Found) -> dict[str, int]:
    at, is_there = tables.place(found["table"])
    if is_there:
        tables.lance_table(found["table"])  # refuses tables that this session cannot change
    if "branch" in at:
        raise OptionError("COPY INTO: found a branch. Name the table alone.")
    folder, names = escape(located(found["text"]).rstrip("/")), [found.get("pattern", "")]
    if "values" in found:
        names = [escape(word.text) for text in found["values"] for word in Words.of(text).words]
    options = {key.lower(): text for key, text in found.get("options", {}).items()}
    options.pop("inferschema", None)  # glaive infers types anyway
    copy = {key.lower(): text for key, text in found.get("properties", {}).items()}
    merges = {options.pop("mergeschema", "false"), copy.pop("mergeschema", "false")}
    if copy:
        raise OptionError(
            f"COPY_OPTIONS: found {', '.join(copy)}. Only mergeSchema is known; to load files "
            "again, call glaive.spark.ingest(…, mode='append')"
        )
    loaded = load(
        tables.spark,
        [f"{folder}/{name}".removesuffix("/") for name in names],
        at["uri"],
        format=found["kind"].lower(),
        schema_drift="add" if "true" in {text.lower() for text in merges} else "fail",
        storage_options=at.get("storage_options"),
        source_options=at.get("storage_options"),
        reader_options=options,
    )
    return dict.fromkeys(("num_affected_rows", "num_inserted_rows"), loaded.rows)


@runs("DELETE FROM {table} [[AS] {alias}] [WHERE {condition}]", by="delete")
def _delete(tables: NamedTables, found: Found) -> dict[str, int]:
    target, condition = tables.lance_table(found["table"]), found.get("condition")
    name = found.get("alias", found["table"].parts[-1])
    exact = None if condition is None else exact_filter(tables, latest(target), name, condition)
    if condition is None or exact is not None:
        counts = target.delete(exact)
    else:
        counts = _change(tables, found, target, None)
    return {"num_affected_rows": counts["num_deleted_rows"]}


@runs("UPDATE {table} [[AS] {alias}] SET {assignments} [WHERE {condition}]", by="merge")
def _update(tables: NamedTables, found: Found) -> dict[str, int]:
    target = tables.lance_table(found["table"])
    values = _assigned(target, found["assignments"])
    if any(_has_query(value) for value in values.values()):
        raise OptionError(
            "UPDATE: a value is a query. Write MERGE INTO … USING (query) ON … WHEN MATCHED THEN "
            "UPDATE SET …"
        )
    counts = _change(tables, found, target, values)
    return {"num_affected_rows": counts["num_updated_rows"]}


def _change(
    tables: NamedTables, found: Found, target: LanceTable, values: Mapping[str, str] | None
) -> dict[str, int]:
    """Update the rows for which a condition of Spark holds; delete them without ``values``."""
    condition = found.get("condition")
    name = found.get("alias", found["table"].parts[-1])
    if condition is not None and _has_query(condition):
        return _change_by_query(tables, found, target, values)
    source = tables.spark.createDataFrame([], StructType())
    merge = target.alias(name).merge(source, "false")
    if values is None:
        return merge.whenNotMatchedBySourceDelete(condition).execute()
    return merge.whenNotMatchedBySourceUpdate(condition, values).execute()


def _change_by_query(
    tables: NamedTables, found: Found, target: LanceTable, values: Mapping[str, str] | None
) -> dict[str, int]:
    """Change the rows whose values meet a condition that has a query.

    Spark evaluates the query once. A row of a later version is changed if a row with the same
    values in the columns of the condition was found.
    """
    name = found.get("alias", found["table"].parts[-1])
    words = {word.text.lower() for word in Words.of(found["condition"]).words}
    names = latest(target).lance_schema.names
    used = [one for one in names if one.lower() in words] or names[:1]
    table, alias = spelled(found["table"]), quoted_name(name)
    listed = ", ".join(f"{alias}.{quoted_name(one)}" for one in used)
    rows = run_query(
        tables,
        f"SELECT DISTINCT {listed} FROM {table} AS {alias} WHERE {found['condition']}",  # noqa: S608  # the user's
    )
    keys = [f"found_{at}" for at in range(len(used))]
    equal = [
        f"{alias}.{quoted_name(one)} <=> `rows found`.{key}"
        for one, key in zip(used, keys, strict=True)
    ]
    merge = target.alias(name).merge(rows.toDF(*keys).alias("rows found"), " AND ".join(equal))
    if values is None:
        return merge.whenMatchedDelete().execute()
    return merge.whenMatchedUpdate(None, values).execute()


def spelled(table: Table) -> str:
    """Return the name of a table as statements spell it."""
    version = table.version
    text = ".".join(quoted_name(part) for part in table.parts)
    return text if version is None else f"{text} {version.kind} AS OF {version.value}"


def _has_query(expression: str) -> bool:
    try:
        parsed: Any = sqlglot.parse_one(expression, dialect="databricks")
    except (sqlglot.errors.SqlglotError, RecursionError):
        return False
    return parsed.find(exp.Query) is not None


def _default(field: Field | None) -> str:
    """Return what ``DEFAULT`` means for a column: its default, as Spark evaluates it, or null."""
    return "NULL" if field is None else field.metadata.get(DEFAULT, b"NULL").decode()


def _assigned(
    target: LanceTable, values: Mapping[str, str], *, inserts: bool = False
) -> dict[str, str]:
    """Return the values of columns, with numbers cast to the types of their columns.

    Columns whose ``DEFAULT`` the writer computes are left out.
    """
    dataset, cast = latest(target), {}
    types = {
        field.name.lower(): field.dataType
        for field in to_spark(frame_schema(dataset, Options(uri=dataset.uri)))
        if isinstance(field.dataType, NumericType)
    }
    computed = {GENERATED, *([IDENTITY] if inserts else ())}
    fields = {field.name.lower(): field for field in dataset.manifest.schema.fields}
    for name, given in values.items():
        column = unquoted_name(name if name.endswith("`") else name.rpartition(".")[2])
        value, field = given, fields.get(column.lower())
        if given.strip().upper() == "DEFAULT" and field is not None:
            if field.metadata.keys() & computed:
                continue
            value = _default(field)
        kind = types.get(column.lower())
        cast[name] = value if kind is None else f"cast({value} as {kind.simpleString()})"
    return cast if cast or inserts else {name: name for name in values}


_CLAUSES: Final = {
    "WHEN MATCHED [AND {condition}] THEN DELETE": "whenMatchedDelete",
    "WHEN MATCHED [AND {condition}] THEN UPDATE SET *": "whenMatchedUpdateAll",
    "WHEN MATCHED [AND {condition}] THEN UPDATE SET {assignments}": "whenMatchedUpdate",
    "WHEN NOT MATCHED [BY TARGET] [AND {condition}] THEN INSERT *": "whenNotMatchedInsertAll",
    "WHEN NOT MATCHED [BY TARGET] [AND {condition}] THEN INSERT {columns} VALUES {values}": (
        "whenNotMatchedInsert"
    ),
    "WHEN NOT MATCHED BY SOURCE [AND {condition}] THEN DELETE": "whenNotMatchedBySourceDelete",
    "WHEN NOT MATCHED BY SOURCE [AND {condition}] THEN UPDATE SET {assignments}": (
        "whenNotMatchedBySourceUpdate"
    ),
}
"""The clauses of ``MERGE``, and the methods of its builder."""


@runs(
    (
        "MERGE [WITH SCHEMA EVOLUTION] INTO {table} [[AS] {alias}] USING {source} [[AS] "
        "{source_alias}] ON {condition} {clauses}"
    ),
    by="merge",
)
def _merge(tables: NamedTables, found: Found) -> dict[str, int]:
    target = tables.lance_table(found["table"])
    read, written = Words.of(found["source"]), found["table"]
    source = run_query(tables, f"SELECT * FROM {found['source']}")  # noqa: S608  # the user's
    last = read.words[-1]
    if "source_alias" in found or last.kind in ("word", "name"):
        source = source.alias(found.get("source_alias", last.text))
    name = found.get("alias", written.parts[-1])
    merge = target.alias(name).merge(source, found["condition"])
    if "EVOLUTION" in found:
        merge = merge.withSchemaEvolution()
    for text in found["clauses"]:
        clause = Words.of(text)
        given, method = next(
            (
                (slots, method)
                for form, method in _CLAUSES.items()
                if (slots := matched(form, clause)) is not None
            ),
            (None, ""),
        )
        if given is None:
            raise OptionError(
                f"MERGE: glaive does not know the clause {text!r:.80}. Known clauses: "
                f"{'; '.join(_CLAUSES)}"
            )
        arguments: dict[str, Any] = {"condition": given.get("condition")}
        if "assignments" in given:
            arguments["set"] = _assigned(target, given["assignments"])
        elif "columns" in given:
            if len(given["columns"]) != len(given["values"]):
                raise OptionError(
                    f"MERGE: {len(given['columns'])} columns and {len(given['values'])} values in "
                    f"{text!r:.80}. Write one value for each column"
                )
            values = dict(zip(given["columns"], given["values"], strict=True))
            arguments["values"] = _assigned(target, values, inserts=True)
        merge = getattr(merge, method)(**arguments)
    counts = merge.execute()
    names = [f"num_{kind}_rows" for kind in ("updated", "deleted", "inserted")]
    changed = {name: counts[name] for name in names}
    return {"num_affected_rows": sum(changed.values()), **changed}


@runs(
    "INSERT (INTO|OVERWRITE) [TABLE] {table} [{columns}|BY NAME] {query}",
    ("INSERT INTO [TABLE] {table} [{columns}|BY NAME] REPLACE WHERE {condition} {query}"),
    by="glaive.spark.write",
)
def _insert(tables: NamedTables, found: Found) -> dict[str, int]:
    target, place = tables.lance_table(found["table"]), tables.options(found["table"])
    dataset = latest(target)
    found, before = _with_defaults(dataset, found), dataset.version
    options: dict[str, Any] = {}
    if "condition" in found:
        options["replace_where"] = exact_filter(tables, dataset, "", found["condition"])
        if options["replace_where"] is None:
            raise OptionError(
                f"REPLACE WHERE {found['condition']}: expected comparisons of columns with "
                "constants, which glaive evaluates. Use DELETE and INSERT for other conditions"
            )
    elif "OVERWRITE" in found:
        options["overwrite_schema"] = False
    frame = _fitted(tables, found, dataset, rows_of(tables, found["query"]))
    made = write(frame, mode="overwrite" if options else "append", **place, **options)
    inserted = 0 if made == before else _inserted(target, made, whole="OVERWRITE" in found)
    return dict.fromkeys(("num_affected_rows", "num_inserted_rows"), inserted)


@runs(
    "INSERT INTO [TABLE] {table} [{columns}|BY NAME] REPLACE USING {keys} {query}",
    by="replaceUsing",
)
@runs(
    (
        "INSERT INTO [TABLE] {table} [[AS] {alias}] [{columns}|BY NAME] REPLACE ON {condition} "
        "{query}"
    ),
    by="replaceOn",
)
def _replace(tables: NamedTables, found: Found) -> dict[str, int]:
    target = tables.lance_table(found["table"])
    found = _with_defaults(latest(target), found)
    words = Words.of(found["query"])
    stop = words.after[0] if words.is_word(0, "(") else len(words.words)
    rows = rows_of(tables, words.slice(0, stop))
    frame = _fitted(tables, found, latest(target), rows)
    if "keys" in found:
        counts = target.replaceUsing(frame, found["keys"])
    else:
        if stop < len(words.words):
            frame = frame.alias(words.words[-1].text)
        name = found.get("alias", found["table"].parts[-1])
        counts = target.alias(name).replaceOn(frame, found["condition"])
    changed = {name: counts[name] for name in ("num_deleted_rows", "num_inserted_rows")}
    return {"num_affected_rows": sum(changed.values()), **changed}


def rows_of(tables: NamedTables, query: str) -> DataFrame:
    """Return the rows of a query, of ``VALUES`` or of ``TABLE name``."""
    words = Words.of(query)
    if words.is_word(0, "VALUES"):
        with as_glaive_errors():
            return tables.spark.sql(query)
    if words.is_word(0, "TABLE"):
        query = f"SELECT * FROM {words.slice(1, len(words.words))}"  # noqa: S608  # the user's
    return run_query(tables, query)


def _with_defaults(dataset: LanceDataset, found: Found) -> Found:
    """Return an insert with values for each ``DEFAULT`` in ``VALUES``, without computed columns."""
    words = Words.of(found["query"])
    has_default = any(words.is_word(at, "DEFAULT") for at in range(len(words.words)))
    if not (words.is_word(0, "VALUES") and has_default) or "NAME" in found:
        return found
    by_name = {field.name.lower(): field for field in dataset.manifest.schema.fields}
    names = found.get("columns") or dataset.manifest.schema.names
    fields = [by_name.get(name.lower()) for name in names]
    rows = []
    for start, stop in words.spans(1, len(words.words)):
        is_tuple = words.is_word(start, "(") and words.after[start] == stop
        spans = words.spans(start + 1, stop - 1) if is_tuple else [(start, stop)]
        texts = [words.slice(*span) for span in spans]
        if len(texts) != len(names):
            raise SchemaError(
                f"INSERT: {len(names)} columns ({', '.join(names):.200}) get {len(texts)} values "
                "in a row with DEFAULT. Give one value for each, or list the columns"
            )
        rows.append([None if text.upper() == "DEFAULT" else text for text in texts])
    kept = [
        at
        for at, field in enumerate(fields)
        if field is None or GENERATED not in field.metadata or any(row[at] for row in rows)
    ]
    tuples = (", ".join(row[at] or _default(fields[at]) for at in kept) for row in rows)
    query = f"VALUES {', '.join(f'({values})' for values in tuples)}"
    return {**found, "columns": [names[at] for at in kept], "query": query}


def _inserted(target: LanceTable, version: int, *, whole: bool) -> int:
    """Return how many rows the new fragments of a version have."""
    dataset = latest(target)
    branch = branch_of(dataset.manifest)
    manifest = dataset.checkout_version((branch, version)).manifest
    if whole:
        return int(manifest.physical_rows.sum())
    old = dataset.checkout_version((branch, version - 1)).manifest.fragment_ids
    new = manifest.fragment_ids > max(old.tolist(), default=-1)
    return int(manifest.physical_rows[new].sum())


def _fitted(
    tables: NamedTables, found: Found, dataset: LanceDataset, frame: DataFrame
) -> DataFrame:
    """Return the rows with the columns of the table, by position or by name, as Spark casts them.

    Raises
    ------
    SchemaError, ColumnNotFoundError
        The numbers of columns differ, a column is missing, or a type does not fit.
    """
    schema = to_spark(frame_schema(dataset, Options(uri=dataset.uri)))
    given: list[str] = list(found.get("columns") or schema.names)
    if "NAME" in found:
        given = frame.columns
    elif len(given) != len(frame.columns):
        raise SchemaError(
            f"INSERT: {len(given)} columns ({', '.join(given):.200}) get {len(frame.columns)} "
            "values per row. Give one value for each, or list the columns after the table"
        )
    sensitive = is_set(tables.spark, CASE_SENSITIVE)
    spelled = {name: name for name in schema.names} if sensitive else without_case(schema.names)
    at: dict[str, str] = {}
    numbered = frame.toDF(*(f"_{number}" for number in range(len(given))))
    for number, name in enumerate(given):
        column = spelled.get(name if sensitive else name.lower())
        if column is None:
            raise ColumnNotFoundError.among(name, schema.names, where=dataset.uri)
        if column in at:
            raise SchemaError(f"INSERT: column {column!r} gets two values. Name it once")
        at[column] = f"_{number}"
    ruled = {one.name for one in dataset.manifest.schema.fields if has_value(one)}
    columns = [
        _cast(numbered, at[field.name], field)
        if field.name in at
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in schema
        if field.name in at or field.name not in ruled
    ]
    return numbered.select(*columns)


def _cast(frame: DataFrame, name: str, field: StructField) -> Any:
    """Return a column with the type of a stored one, as Spark's inserts convert it."""
    given, wanted = frame.schema[name].dataType, field.dataType
    if isinstance(given, StringType) and not isinstance(wanted, StringType):
        raise SchemaError(
            f"INSERT: column {field.name!r} stores {wanted.simpleString()}, the value is a string. "
            f"Cast it to {wanted.simpleString()}"
        )
    column = F.col(name)
    return (column if same_type(given, wanted) else column.cast(wanted)).alias(field.name)


@runs("TRUNCATE TABLE {table}", by="delete")
def _truncate(tables: NamedTables, found: Found) -> None:
    tables.lance_table(found["table"]).delete()
