"""Statements that create, change, describe and maintain tables."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from glaive.dataset.clustering import check_keys, cluster_keys
from glaive.dataset.columns.alter_columns import constraint
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset
from glaive.dataset.tasks import commit_operation
from glaive.dataset.version import version_as_of
from glaive.errors import (
    ColumnNotFoundError,
    DatasetExistsError,
    DatasetNotFoundError,
    OptionError,
    SchemaError,
    StoreError,
    UnsupportedFeatureError,
)
from glaive.format.field import quoted_name
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Feature
from glaive.spark.api import SparkCatalogue, is_connect, located
from glaive.spark.frame import frame_schema
from glaive.spark.frame_writing import write
from glaive.spark.grammar import Found, Table, Words, matched, runs
from glaive.spark.lance_table.reading import files_table
from glaive.spark.lance_table.rows import arrow_type
from glaive.spark.lance_table.table import LanceTable
from glaive.spark.named_tables import NamedTables, latest
from glaive.spark.options import Options
from glaive.spark.queries import exact_filter
from glaive.spark.row_statements import rows_of, spelled
from glaive.spark.types import stored_schema, to_spark
from glaive.table.configuration import (
    CLUSTER_KEYS,
    CONSTRAINT,
    DEFAULT,
    GENERATED,
    IDENTITY,
    IdentityGenerator,
    next_number,
)
from glaive.table.named_jobs import Numbered
from glaive.table.operations.overwrite import Append
from glaive.table.root import open_root

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# --- Tables and columns -----------------------------------------------------------------


_UNKNOWN: Final = {"PRIMARY", "FOREIGN", "REFERENCES", "CONSTRAINT", "CHECK"}

_COLUMN: Final = (
    "{name} {type} (NOT NULL|DEFAULT {default}|GENERATED ALWAYS AS {generated}|GENERATED "
    "(ALWAYS|BY DEFAULT) AS IDENTITY [{sequence}]|COMMENT {text})*"
)


def _fields(texts: Sequence[str]) -> StructType:
    """Return columns with comments and rules in their metadata."""
    fields = []
    for text in texts:
        words = Words.of(text)
        found = matched(_COLUMN, words)
        unknown = [word.text for word in words.words[1:] if word.text.upper() in _UNKNOWN]
        if found is None or unknown:
            raise UnsupportedFeatureError(
                f"column {text!r:.80}: glaive does not know {(unknown or [text])[0]!r:.40}. Write "
                f"a column as {_COLUMN}"
            )
        arrow_type("column", found["type"])  # raises for unknown types
        kind = DataType.fromDDL(found["type"])
        keys = {"comment": "text", DEFAULT: "default", GENERATED: "generated"}
        metadata = {key: found[slot] for key, slot in keys.items() if slot in found}
        if "IDENTITY" in found:
            given = IdentityGenerator(**found.get("sequence", {}), always="BY" not in found)
            metadata[IDENTITY] = given.text
        fields.append(StructField(found["name"], kind, "NOT" not in found, metadata))
    return StructType(fields)


def _constraints(texts: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the texts of columns, and the expressions of constraints by name."""
    columns, checks = [], dict[str, str]()
    for text in texts:
        found = matched("[CONSTRAINT {name}] CHECK {check}", Words.of(text))
        if found is None:
            columns.append(text)
        else:
            checks[found.get("name", f"check_{len(checks) + 1}")] = found["check"]
    return columns, checks


def _stored(columns: StructType, vectors: str = "") -> pa.Schema:
    """Return the types to store, with comments; ``vectors``: entries such as ``emb:128``."""
    entries = tuple(filter(None, map(str.strip, vectors.split(","))))
    stored = stored_schema(columns, entries, strict_nullability=True)
    fields: list[Any] = []
    for field, one in zip(stored, columns, strict=True):
        metadata: dict[Any, Any] = {**(field.metadata or {}), **one.metadata}
        fields.append(field.with_metadata(metadata))
    return pa.schema(fields)


@runs(
    (
        "CREATE [OR REPLACE] TABLE [IF NOT EXISTS] {table} [{definitions}] (USING "
        "LANCE|OPTIONS {options}|COMMENT {text}|TBLPROPERTIES {properties}|CLUSTER BY "
        "{columns})* [AS {query}]"
    ),
    by="glaive.spark.write",
)
def _create(tables: NamedTables, found: Found) -> None:
    table, query = found["table"], found.get("query")
    if (query is None) == ("definitions" not in found):
        raise OptionError("CREATE TABLE: expected either columns in brackets, or AS and a query")
    if "REPLACE" in found and "EXISTS" in found:
        raise OptionError("CREATE TABLE: OR REPLACE and IF NOT EXISTS exclude each other")
    keys = found.get("columns", [])
    frame, config = rows_of(tables, query) if query else None, dict[str, str]()
    if frame is None:
        texts, checks = _constraints(found["definitions"])
        columns = _fields(texts)
        frame = tables.spark.createDataFrame([], columns)
    options: dict[str, Any] = dict(found.get("options", {}))
    for key in keys:
        if key not in frame.columns:
            raise ColumnNotFoundError.among(key, frame.columns, where="CLUSTER BY")
    at, is_there = tables.place(table)
    if is_there and "EXISTS" in found:
        return
    if is_there and "REPLACE" not in found:
        raise DatasetExistsError(
            f"{'.'.join(table.parts)}: the table exists. Write CREATE OR REPLACE TABLE, or CREATE "
            "TABLE IF NOT EXISTS"
        )
    mode: Any = "overwrite" if is_there else "errorifexists"
    if query is None:
        stored = _stored(columns, options.pop("vector_columns", ""))
        options["arrow_schema"] = stored
        config = _checked(stored, checks)
    elif keys:
        options["cluster_by"] = keys
    if is_there:
        _drop_constraints(tables.lance_table(table))
    write(frame, mode=mode, **{**at, **options})
    made = dataset(located(at["uri"]), storage_options=at.get("storage_options"))
    config |= found.get("properties", {})
    if "text" in found:
        config["comment"] = found["text"]
    if keys:
        config[CLUSTER_KEYS] = json.dumps(keys)
    if config:
        made.update_config(config)


def _checked(columns: pa.Schema, checks: Mapping[str, str]) -> dict[str, str]:
    """Return entries of the configuration for constraints on these columns."""
    schema, config = LanceSchema.from_arrow(columns), dict[str, str]()
    for name, expression in checks.items():
        config |= constraint(schema, config, name, expression)
    return config


def _drop_constraints(table: LanceTable) -> None:
    """Remove the constraints of a table that other columns replace."""
    at = latest(table)
    old = [key for key in at.config() if key.startswith(CONSTRAINT)]
    if old:
        at.delete_config_keys(old)


@runs("CREATE TABLE {table} SHALLOW CLONE {origin}", by="shallowClone")
def _clone(tables: NamedTables, found: Found) -> None:
    options = tables.options(found["origin"])
    origin = tables.lance_table(Table(found["origin"].parts))
    at, _ = tables.place(found["table"])
    number = _version_number(origin, options) if found["origin"].version else None
    latest(origin).shallow_clone(located(at["uri"]), number, at.get("storage_options"))


def _version_number(table: LanceTable, options: Mapping[str, Any]) -> int:
    """Return the version that options of a read choose."""
    dataset = latest(table)
    if "tag" in options:
        return int(dataset.tags.list()[options["tag"]]["version"])
    if "asof" in options:
        return version_as_of(dataset.store, options["asof"])
    return int(options.get("version", dataset.version))


@runs("DROP TABLE [IF EXISTS] {table}", by="glaive.LanceDataset.drop")
def _drop(tables: NamedTables, found: Found) -> None:
    table, may_be_missing = found["table"], "EXISTS" in found
    place = tables.catalogue_of(table)
    try:
        at = tables.options(table)
    except DatasetNotFoundError:
        if may_be_missing:
            return
        raise
    if place is not None:
        import lance_namespace as interface

        place[0].namespace_client.drop_table(interface.DropTableRequest(id=place[1]))
    else:
        LanceDataset.drop(
            located(at["uri"]), at.get("storage_options"), ignore_not_found=may_be_missing
        )


@runs("ALTER TABLE {table} ADD (COLUMN|COLUMNS) ({definitions}|{definition})", by="addColumns")
def _add_columns(tables: NamedTables, found: Found) -> None:
    target = tables.lance_table(found["table"])
    columns = _fields(found["definitions"] if "definitions" in found else found["definition"])
    for field in columns:
        if GENERATED in field.metadata:
            raise SchemaError(
                f"column {field.name!r}: rows of the table get null. Add it without GENERATED, "
                "set its values, then call alterColumn"
            )
        if not field.nullable:
            raise SchemaError(
                f"column {field.name!r}: rows of the table get null. Add it without NOT NULL, set "
                "its values, then write ALTER COLUMN … SET NOT NULL"
            )
    target.addColumns(_stored(columns))


@runs(
    "ALTER TABLE {table} DROP (COLUMN|COLUMNS) [IF EXISTS] ({columns}|{column})", by="dropColumns"
)
def _drop_columns(tables: NamedTables, found: Found) -> None:
    target = tables.lance_table(found["table"])
    given = found.get("columns", [found.get("column")])
    if "EXISTS" in found:
        names = latest(target).lance_schema.names
        given = [name for name in given if name in names]
    if given:
        target.dropColumns(*given)


@runs("ALTER TABLE {table} RENAME COLUMN {column} TO {new}", by="renameColumn")
def _rename_column(tables: NamedTables, found: Found) -> None:
    tables.lance_table(found["table"]).renameColumn(found["column"], found["new"])


@runs(
    (
        "ALTER TABLE {table} (ALTER|CHANGE) [COLUMN] {column} (TYPE {type}|SET NOT NULL|DROP "
        "NOT NULL|SET DEFAULT {default}|DROP DEFAULT|COMMENT {text}|SYNC IDENTITY)"
    ),
    by="alterColumn",
)
def _alter_column(tables: NamedTables, found: Found) -> None:
    target = tables.lance_table(found["table"])
    if "text" in found:
        latest(target).update_field_metadata({found["column"]: {"comment": found["text"]}})
    elif "SYNC" in found:
        _sync(target, found["column"])
    elif "type" in found:
        target.alterColumn(found["column"], data_type=found["type"])
    elif "DEFAULT" in found:
        target.alterColumn(found["column"], default=found.get("default", False))
    else:
        target.alterColumn(found["column"], nullable="DROP" in found)


def _sync(target: LanceTable, name: str) -> None:
    """Number the next rows of an identity column beyond all values that it has."""
    dataset = latest(target)
    identity = IdentityGenerator.of(dataset.lance_schema.find(name)[-1])
    if identity is None:
        raise SchemaError(f"{dataset.uri}: {name!r} does not number rows. Name an identity column.")
    furthest = F.max if identity.step > 0 else F.min
    (row,) = target.toDF().select(furthest(F.col(quoted_name(name)))).collect()
    first = next_number(dataset.manifest.wire.table_metadata, identity.id)
    following = first if row[0] is None else 1 - (identity.start - row[0]) // identity.step
    if following > first:
        numbered = Numbered({identity.id: (first, following)})
        commit_operation(dataset.opened, Append(()), properties=numbered.properties)


@runs("ALTER TABLE {table} RENAME TO {target}", by="catalog")
def _rename(tables: NamedTables, found: Found) -> None:
    table, target = found["table"], found["target"]
    place = tables.catalogue_of(table)
    if place is not None:
        import lance_namespace as interface

        moved = tables.catalogue_of(target)
        if len(target.parts) > 1 and (moved is None or moved[0] != place[0]):
            raise OptionError(f"{'.'.join(target.parts)}: the catalogue of a table cannot change.")
        path = [*place[1][:-1], target.parts[-1]] if moved is None else moved[1]
        request = interface.RenameTableRequest(
            id=place[1], new_namespace_id=path[:-1], new_table_name=path[-1]
        )
        place[0].namespace_client.rename_table(request)
        return
    if not tables.knows(target) or tables.catalogue_of(target) is not None:
        raise OptionError(f"{'.'.join(target.parts)}: expected a folder. Write lance.`path`.")
    places = [located(tables.options(one)["uri"]) for one in (table, target)]
    old, new = (open_root(one, tables.options(table).get("storage_options")) for one in places)
    tables.lance_table(table)  # it exists
    if not (old.is_local and new.is_local):
        raise UnsupportedFeatureError(
            f"{old.public_uri}: only folders of a file system can be renamed. Clone the table, and "
            "drop this one."
        )
    try:
        Path(old.full("")).rename(new.full(""))
    except OSError as error:
        raise StoreError(
            f"{old.public_uri} cannot become {new.public_uri}: {error.strerror}. Choose a free "
            "name in the same file system."
        ) from error


@runs("ALTER TABLE {table} ADD CONSTRAINT {name} CHECK {check}", by="addConstraint")
def _add_constraint(tables: NamedTables, found: Found) -> None:
    tables.lance_table(found["table"]).addConstraint(found["name"], found["check"])


@runs("ALTER TABLE {table} DROP CONSTRAINT [IF EXISTS] {name}", by="dropConstraint")
def _drop_constraint(tables: NamedTables, found: Found) -> None:
    target = tables.lance_table(found["table"])
    target.dropConstraint(found["name"], ignore_not_found="EXISTS" in found)


@runs(
    "ALTER TABLE {table} SET TBLPROPERTIES {properties}",
    "ALTER TABLE {table} CLUSTER BY ({columns}|NONE)",
    "COMMENT ON TABLE {table} IS {text}",
    by="glaive.LanceDataset.update_config",
)
@runs(
    "ALTER TABLE {table} UNSET TBLPROPERTIES [IF EXISTS] {properties}",
    by="glaive.LanceDataset.delete_config_keys",
)
def _set_properties(tables: NamedTables, found: Found) -> None:
    dataset = latest(tables.lance_table(found["table"]))
    if "UNSET" in found:
        keys = list(found["properties"])
        missing = [key for key in keys if key not in dataset.config()]
        if missing and "EXISTS" not in found:
            raise OptionError(
                f"{dataset.uri}: it lacks the property {missing[0]!r:.80}. Write UNSET "
                "TBLPROPERTIES IF EXISTS, or choose one of SHOW TBLPROPERTIES"
            )
        dataset.delete_config_keys([key for key in keys if key not in missing])
    elif "NONE" in found:
        dataset.delete_config_keys([CLUSTER_KEYS])
    elif "columns" in found:
        check_keys(dataset.manifest, found["columns"])
        dataset.update_config({CLUSTER_KEYS: json.dumps(found["columns"])})
    else:
        dataset.update_config(found.get("properties") or {"comment": found["text"]})


# --- Descriptions -----------------------------------------------------------------------


@runs("(DESCRIBE|DESC) [TABLE] [EXTENDED] {table}", by="detail")
def _describe(tables: NamedTables, found: Found) -> DataFrame:
    dataset = latest(tables.lance_table(found["table"]))
    comments = {
        field.name: (field.metadata or {}).get(b"comment", b"").decode() or None
        for field in dataset.schema
    }
    schema = to_spark(frame_schema(dataset, Options(uri=dataset.uri)))
    rows: list[Any] = [
        (one.name, one.dataType.simpleString(), comments.get(one.name)) for one in schema
    ]
    if "EXTENDED" in found:
        config = ", ".join(f"{key}={value}" for key, value in sorted(dataset.config().items()))
        rows += [
            ("", "", ""),
            ("# Detailed Table Information", "", ""),
            ("Provider", "lance", ""),
            ("Location", dataset.uri, ""),
            ("Version", str(dataset.version), ""),
            ("Comment", dataset.config().get("comment", ""), ""),
            ("Table Properties", f"[{config}]", ""),
        ]
    return tables.rows("col_name string, data_type string, comment string", *rows)


@runs("SHOW CREATE TABLE {table}", by="detail")
def _show_create(tables: NamedTables, found: Found) -> DataFrame:
    at = latest(tables.lance_table(found["table"]))
    stored, config, texts = at.schema, dict(at.config()), list[str]()
    options = {"data_storage_version": str(at.manifest.data_format)}
    if at.manifest.uses(Feature.STABLE_ROW_IDS):
        options["enable_stable_row_ids"] = "true"
    vectors = [
        f"{field.name}:{field.type.list_size}:{field.type.value_type}"
        for field in stored
        if pa.types.is_fixed_size_list(field.type)
    ]
    if vectors:
        options["vector_columns"] = ", ".join(vectors)
    for one, field in zip(
        to_spark(frame_schema(at, Options(uri=at.uri))), at.manifest.schema.fields, strict=True
    ):
        text = f"{quoted_name(field.name)} {_type(one.dataType)}"
        known = field.metadata.keys() & {DEFAULT, GENERATED, "comment"}
        rules = {key: field.metadata[key].decode() for key in known}
        text += "" if field.nullable else " NOT NULL"
        text += f" DEFAULT {rules[DEFAULT]}" if DEFAULT in rules else ""
        text += f" GENERATED ALWAYS AS ({rules[GENERATED]})" if GENERATED in rules else ""
        identity = IdentityGenerator.of(field)
        if identity is not None:
            kind = "ALWAYS" if identity.always else "BY DEFAULT"
            text += f" GENERATED {kind} AS IDENTITY (START WITH {identity.start} "
            text += f"INCREMENT BY {identity.step})"
        texts.append(text + (f" COMMENT {_quoted(rules['comment'])}" if "comment" in rules else ""))
    made = _stored(_fields(texts), options.get("vector_columns", ""))
    for column, again in zip(stored, made, strict=True):
        lost = [key.decode() for key in column.metadata or () if key.startswith(b"lance-")]
        if column.type != again.type or lost:
            raise UnsupportedFeatureError(
                f"column {column.name!r} has the type {' '.join([str(column.type), *lost])}, which "
                "CREATE TABLE cannot declare. Copy the table with CREATE TABLE … SHALLOW CLONE."
            )
    texts += [
        f"CONSTRAINT {quoted_name(key.removeprefix(CONSTRAINT))} CHECK ({config.pop(key)})"
        for key in sorted(config)
        if key.startswith(CONSTRAINT)
    ]
    text = f"CREATE TABLE {spelled(found['table'])} (\n  " + ",\n  ".join(texts)
    text += f")\nUSING LANCE\nOPTIONS ({_pairs(options)})"
    if "comment" in config:
        text += f"\nCOMMENT {_quoted(config.pop('comment'))}"
    keys = cluster_keys(at.manifest)
    config.pop(CLUSTER_KEYS, None)
    text += f"\nTBLPROPERTIES ({_pairs(config)})" if config else ""
    text += f"\nCLUSTER BY ({', '.join(map(quoted_name, keys))})" if keys else ""
    return tables.rows("createtab_stmt string", [text])


def _type(kind: DataType) -> str:
    """Return a type as SQL declares it: names of members may have other characters."""
    if isinstance(kind, StructType):
        members = (f"{quoted_name(one.name)}:{_type(one.dataType)}" for one in kind)
        return f"struct<{','.join(members)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_type(kind.keyType)},{_type(kind.valueType)}>"
    return kind.simpleString()


def _pairs(entries: Mapping[str, str]) -> str:
    return ", ".join(f"{_quoted(key)} = {_quoted(value)}" for key, value in sorted(entries.items()))


def _quoted(text: str) -> str:
    """Return a string of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


@runs("EXPLAIN [EXTENDED|FORMATTED|COST|CODEGEN] {query}", by="glaive.spark.sql")
def _explain(tables: NamedTables, found: Found) -> DataFrame:
    modes = ("EXTENDED", "FORMATTED", "COST", "CODEGEN")
    mode = next((one.lower() for one in modes if one in found), "simple")
    frame: Any = rows_of(tables, found["query"])
    spark: Any = tables.spark
    # ``explain`` prints to the output of all threads.
    if is_connect(spark):
        plan = frame._explain_string(mode=mode)  # noqa: SLF001  # no public way
    else:
        query = frame._jdf.queryExecution()  # noqa: SLF001  # no public way
        plan = spark._jvm.PythonSQLUtils.explainString(query, mode)  # noqa: SLF001  # likewise
    return tables.rows("plan string", [plan.rstrip("\n")])


@runs("SHOW COLUMNS (IN|FROM) {table}", by="toDF")
def _show_columns(tables: NamedTables, found: Found) -> DataFrame:
    names = latest(tables.lance_table(found["table"])).lance_schema.names
    return tables.rows("col_name string", *([name] for name in names))


@runs("SHOW TBLPROPERTIES {table} [{properties}]", by="detail")
def _show_properties(tables: NamedTables, found: Found) -> DataFrame:
    config = latest(tables.lance_table(found["table"])).config()
    wanted = found.get("properties") or config
    rows = [(key, config.get(key)) for key in sorted(wanted)]
    return tables.rows("key string, value string", *rows)


def _catalogue(tables: NamedTables, found: Found) -> SparkCatalogue:
    first, *rest = found["catalogue"].parts
    base = tables.catalogues[first.lower()]
    return replace(base, namespace=(*base.namespace, *rest))


@runs("SHOW TABLES (IN|FROM) {catalogue} [[LIKE] {text}]", by="catalog")
def _show_tables(tables: NamedTables, found: Found) -> DataFrame:
    names = _catalogue(tables, found).list_tables()
    pattern = found.get("text", "*").lower().replace("%", "*")
    namespace = ".".join(found["catalogue"].parts)
    rows = [(namespace, name, False) for name in names if fnmatchcase(name.lower(), pattern)]
    return tables.rows("namespace string, tableName string, isTemporary boolean", *rows)


@runs("SHOW (SCHEMAS|DATABASES|NAMESPACES) (IN|FROM) {catalogue}", by="catalog")
def _show_schemas(tables: NamedTables, found: Found) -> DataFrame:
    names = _catalogue(tables, found).list_namespaces()
    return tables.rows("namespace string", *([name] for name in names))


@runs(
    "CREATE (SCHEMA|DATABASE|NAMESPACE) [IF NOT EXISTS] {catalogue}",
    "DROP (SCHEMA|DATABASE|NAMESPACE) [IF EXISTS] {catalogue}",
    by="catalog",
)
def _change_schema(tables: NamedTables, found: Found) -> None:
    import lance_namespace as interface

    catalogue, may_skip = _catalogue(tables, found), "EXISTS" in found
    path = list(catalogue.namespace)
    client = catalogue.namespace_client
    if "CREATE" in found:
        mode = "exist_ok" if may_skip else "create"
        client.create_namespace(interface.CreateNamespaceRequest(id=path, mode=mode))
    else:
        mode = "skip" if may_skip else "fail"
        client.drop_namespace(interface.DropNamespaceRequest(id=path, mode=mode))


@runs("(DESCRIBE|DESC) HISTORY {table} [LIMIT {number}]", by="history")
def _history(tables: NamedTables, found: Found) -> DataFrame:
    limit = found.get("number")
    return tables.lance_table(found["table"]).history(None if limit is None else int(limit))


@runs("(DESCRIBE|DESC) DETAIL {table}", by="detail")
def _detail(tables: NamedTables, found: Found) -> DataFrame:
    return tables.lance_table(found["table"]).detail()


# --- Upkeep -----------------------------------------------------------------------------


def _metrics(tables: NamedTables, target: LanceTable, counts: Mapping[str, int]) -> DataFrame:
    """Return the path of a table, and counts in a struct."""
    members = ", ".join(f"{name}: bigint" for name in counts)
    uri = latest(target).uri
    return tables.rows(f"path string, metrics struct<{members}>", (uri, tuple(counts.values())))


@runs("OPTIMIZE {table} [FULL] [WHERE {condition}] [ZORDER BY {columns}]", by="optimize")
def _optimize(tables: NamedTables, found: Found) -> DataFrame:
    target = tables.lance_table(found["table"])
    dataset, builder = latest(target), target.optimize()
    if "condition" in found:
        only = exact_filter(tables, dataset, found["table"].parts[-1], found["condition"])
        if only is None:
            raise OptionError(
                f"OPTIMIZE … WHERE {found['condition']}: expected comparisons of columns with "
                "constants. Leave other conditions out"
            )
        builder = builder.where(only)
    if "columns" in found:
        return _metrics(tables, target, builder.executeZOrderBy(*found["columns"]))
    if "FULL" in found:
        keys = cluster_keys(dataset.manifest)
        if not keys:
            raise OptionError(
                f"OPTIMIZE … FULL: {dataset.uri} has no columns to cluster by. Set them with ALTER "
                "TABLE … CLUSTER BY (…), or write ZORDER BY (…)"
            )
        return _metrics(tables, target, builder.executeClusterBy(*keys))
    return _metrics(tables, target, builder.executeCompaction())


@runs("VACUUM {table} [RETAIN {number} HOURS] [DRY RUN]", by="vacuum")
def _vacuum(tables: NamedTables, found: Found) -> DataFrame:
    target = tables.lance_table(found["table"])
    hours = None if "number" not in found else float(found["number"])
    if "DRY" in found:
        return target.vacuum(hours, dryRun=True)
    return _metrics(tables, target, target.vacuum(hours))


@runs("RESTORE [TABLE] {table} [TO {version}]", by="restoreToVersion")
def _restore(tables: NamedTables, found: Found) -> dict[str, int]:
    table = found["table"]
    target = tables.lance_table(Table(table.parts))
    version = found.get("version") or table.version
    if version is None:
        raise OptionError(
            "RESTORE: the version is missing. Write RESTORE TABLE t TO VERSION AS OF 3"
        )
    number = _version_number(target, tables.options(Table(table.parts, version)))
    old = _file_sizes(target)
    target.restoreToVersion(number)
    new = _file_sizes(target)
    removed, restored = old.keys() - new.keys(), new.keys() - old.keys()
    return {
        "table_size_after_restore": sum(new.values()),
        "num_of_files_after_restore": len(new),
        "num_removed_files": len(removed),
        "num_restored_files": len(restored),
        "removed_files_size": sum(old[path] for path in removed),
        "restored_files_size": sum(new[path] for path in restored),
    }


def _file_sizes(target: LanceTable) -> dict[str, int]:
    files = files_table(latest(target).manifest).to_pylist()
    return {file["path"]: file["size_in_bytes"] or 0 for file in files if file["kind"] == "data"}


# --- Indices, tags, branches ------------------------------------------------------------


@runs(
    (
        "CREATE [OR REPLACE] INDEX [IF NOT EXISTS] {name} ON [TABLE] {table} [USING {kind}] "
        "{columns} [(OPTIONS|WITH) {options}]"
    ),
    ("ALTER TABLE {table} CREATE INDEX {name} USING {kind} {columns} [WITH {options}]"),
    by="createIndex",
)
def _create_index(tables: NamedTables, found: Found) -> dict[str, int] | None:
    target = tables.lance_table(found["table"])
    columns, name = found["columns"], found["name"]
    if len(columns) != 1:
        raise OptionError(f"CREATE INDEX: expected one column, found {', '.join(columns)}")
    there = {index.name for index in latest(target).describe_indices()}
    if name in there and "EXISTS" in found:
        return None
    options: dict[str, Any] = {key: _typed(text) for key, text in found.get("options", {}).items()}
    kind = found.get("kind", "btree").lower()
    return target.createIndex(columns[0], kind, name, replace="REPLACE" in found, **options)


def _typed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@runs("DROP INDEX [IF EXISTS] {name} ON [TABLE] {table}", by="dropIndex")
def _drop_index(tables: NamedTables, found: Found) -> None:
    target = tables.lance_table(found["table"])
    there = {index.name for index in latest(target).describe_indices()}
    if found["name"] in there or "EXISTS" not in found:
        target.dropIndex(found["name"])


@runs("SHOW (INDEX|INDEXES|INDICES) (IN|ON|FROM) {table}", by="indices")
def _show_indices(tables: NamedTables, found: Found) -> DataFrame:
    return tables.lance_table(found["table"]).indices()


@runs(
    ("CREATE [OR REPLACE] TAG [IF NOT EXISTS] {name} ON {table} [AS OF VERSION {number}]"),
    (
        "ALTER TABLE {table} CREATE [OR REPLACE] (TAG|BRANCH) [IF NOT EXISTS] {name} [AS OF "
        "VERSION {number}]"
    ),
    by="createTag",
)
@runs("CREATE BRANCH [IF NOT EXISTS] {name} ON {table} [AS OF VERSION {number}]", by="createBranch")
@runs(
    "DROP TAG [IF EXISTS] {name} ON {table}",
    "ALTER TABLE {table} DROP (TAG|BRANCH) [IF EXISTS] {name}",
    by="deleteTag",
)
@runs("DROP BRANCH [IF EXISTS] {name} ON {table}", by="glaive.LanceDataset.branches")
def _change_ref(tables: NamedTables, found: Found) -> None:
    target, name = tables.lance_table(found["table"]), found["name"]
    dataset = latest(target)
    refs: Any = dataset.tags if "TAG" in found else dataset.branches
    is_there = name in refs.list()
    if "EXISTS" in found and is_there == ("CREATE" in found):
        return
    version = int(found["number"]) if "number" in found else dataset.version
    if "CREATE" not in found:
        refs.delete(name)
    elif "BRANCH" in found:
        target.createBranch(name, version)
    elif is_there and "REPLACE" in found:
        dataset.tags.update(name, version)
    else:
        target.createTag(name, version)


@runs("SHOW (TAGS|BRANCHES|REFS) (IN|ON|FROM) {table}", by="refs")
def _show_refs(tables: NamedTables, found: Found) -> DataFrame:
    refs = tables.lance_table(found["table"]).refs()
    kind = "tag" if "TAGS" in found else "branch"
    return refs if "REFS" in found else refs.where(F.col("kind") == kind)


# --- Procedures -------------------------------------------------------------------------

_METHODS = """
addColumns alterColumn createBranch createIndex createTag deleteTag dropColumns
dropDuplicates dropIndex export files fragments indices maintain optimizeIndices publish refs
renameColumn restoreToTimestamp restoreToVersion sample search searchText shallowClone vacuum
"""
PROCEDURES: Final = tuple(_METHODS.split())
"""The methods of ``LanceTable`` that ``CALL`` runs."""


@runs("CALL lance.system.{name} {arguments}", by="LanceTable")
def _call(tables: NamedTables, found: Found) -> Any:
    methods = {_plain(name): name for name in PROCEDURES}
    name = methods.get(_plain(found["name"]))
    if name is None:
        close = get_close_matches(_plain(found["name"]), methods, 1, 0)
        raise OptionError(
            f"CALL: lance.system has no procedure {found['name']!r:.60}. The closest one is "
            f"{snake(methods[close[0]])}"
        )
    signature = inspect.signature(getattr(LanceTable, name))
    spelled = {_plain(parameter): parameter for parameter in signature.parameters}
    positional, named = list[Any](), dict[str, Any]()
    for text in found["arguments"]:
        given = matched("{name} => {expression}", Words.of(text))
        value = tables.value(text if given is None else given["expression"])
        if given is None:
            positional.append(value)
        else:
            key = _plain(given["name"])
            named[spelled.get(key, given["name"])] = value
    table = named.pop("table", None) or (positional.pop(0) if positional else None)
    if not isinstance(table, str):
        raise OptionError(
            f"CALL: expected the table as the first argument, such as 'orders', found {table!r:.60}"
        )
    target = tables.lance_table(_table_in(tables, table))
    try:
        signature.bind(target, *positional, **named)
    except TypeError as error:
        raise OptionError(f"CALL lance.system.{snake(name)}: {error}") from error
    return getattr(target, name)(*positional, **named)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def snake(name: str) -> str:
    """Return the name of a procedure for the name of a method."""
    return re.sub("(?=[A-Z])", "_", name).lower()


def _table_in(tables: NamedTables, text: str) -> Table:
    """Return the table that a string names; other strings than known names are paths."""
    found = matched("{table}", Words.of(text)) if "/" not in text or "`" in text else None
    if found is not None and tables.knows(found["table"]):
        table: Table = found["table"]
        return table
    return Table(("lance", text))
