"""Plan an ingest: files, columns, tasks; and commit the results of the tasks."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, Final, Literal, TypeAlias, get_args
from uuid import uuid4

import pyarrow as pa

from glaive.arrow.validation import MAX_NESTING
from glaive.dataclass import dataclass
from glaive.dataset.scanner import Scanner
from glaive.dataset.tasks import JOB
from glaive.dataset.writing.plan import WriteOptions, WritePlan, plan_write, staged_rows
from glaive.dataset.writing.rows import after_upkeep, commit_plan
from glaive.errors import (
    CommitConflictError,
    DataFileMissingError,
    FormatError,
    ObjectNotFoundError,
    OptionError,
    SchemaError,
    VersionNotFoundError,
)
from glaive.expr.coerce import DECIMALS, SIMPLE, TIMED, sized
from glaive.format.extension import extended, storage_type
from glaive.format.fragment import Fragment, FragmentList, unpacked_fragments
from glaive.format.manifest import Manifest
from glaive.ingestion.formats import format_named, format_of
from glaive.ingestion.lines import mapped, with_texts
from glaive.ingestion.sources import BAD_RECORDS, SourceFile, SourceFormat, in_groups
from glaive.ingestion.task import (
    Expectations,
    IngestedPieces,
    IngestResult,
    IngestTask,
    Journal,
    NotedCommit,
    folder_columns,
    folder_texts,
)
from glaive.io.pool import TASK_BYTES, ordered_map
from glaive.io.store import ObjectStore
from glaive.options import integer, one_of
from glaive.table.configuration import DEFAULT, GENERATED, IDENTITY
from glaive.table.load import open_version, read_transaction
from glaive.table.named_jobs import Load, NamedJob, last_load, made_version, search_forgotten
from glaive.table.operations.overwrite import Append, Overwrite
from glaive.table.protocol import read_operation
from glaive.table.versions import list_versions_past

# --- Columns and types as strings: ``id bigint, at timestamp``; vectors: ``embedding:128:float16``

_COLUMN: Final = re.compile(r"\s*(?:`([^`]+)`|([^\s`]+))\s+(.+?)\s*", re.DOTALL)
_SIZED: Final = re.compile(r"(\w+)\s*\(\s*(\d+(?:\s*,\s*\d+)*)\s*\)")
_VECTOR: Final = re.compile(r"(.+?):(\d+)(?::(\w+))?")
_MAX_ITEMS: Final = 2**31 - 1
"""Largest number of items in a vector: Arrow's sizes have 32 bits."""

_SPARK_TYPES: Final[dict[str, Any]] = {
    "long": pa.int64(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_VECTOR_TYPES: Final[dict[str, Any]] = {
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "int8": pa.int8(),
    "uint8": pa.uint8(),
}


def parse_columns(text: str) -> pa.Schema:
    """Read columns and types as Spark writes them: ``id bigint, at timestamp, x array<float>``.

    As in Spark, ``timestamp`` is an instant (UTC) and ``timestamp_ntz`` a time of some clock.

    Raises
    ------
    OptionError
        The string has another form, or names an unknown type.
    """
    fields = []
    for part in _split(text):
        found = _COLUMN.fullmatch(part)
        if found is None:
            raise OptionError(f"schema: expected 'name type, …', found {part.strip()!r}")
        name = found[1] or found[2]
        words = found[3]
        required = re.search(r"\s+not\s+null$", words, re.IGNORECASE)
        data_type = _type(words[: required.start()] if required else words, name)
        fields.append(pa.field(name, data_type, required is None))
    return pa.schema(fields)


def with_vectors(schema: pa.Schema, vectors: Iterable[str]) -> pa.Schema:
    """Return the columns, with some columns of lists turned into vectors.

    Parameters
    ----------
    vectors
        ``column:dimension`` or ``column:dimension:type``.

    Raises
    ------
    OptionError
        The column or the type is unknown.
    """
    for entry in vectors:
        found = _VECTOR.fullmatch(entry)
        data_type = None if found is None else _VECTOR_TYPES.get(found[3] or "float32")
        items = 0 if found is None or len(found[2]) > len(str(_MAX_ITEMS)) else int(found[2])
        known = data_type is not None and 1 <= items <= _MAX_ITEMS
        if found is None or found[1] not in schema.names or not known:
            raise OptionError(
                f"vector {entry!r:.80}: expected 'column:dimension' or 'column:dimension:type', "
                f"such as 'embedding:128:float16', with a column of {', '.join(schema.names)} and "
                f"a type of {', '.join(_VECTOR_TYPES)}"
            )
        number = schema.get_field_index(found[1])
        vector: Any = pa.list_(data_type, items)
        schema = schema.set(number, schema.field(number).with_type(vector))
    return schema


def _split(text: str) -> list[str]:
    """Return the parts between commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _type(words: str, column: str, levels: int = MAX_NESTING) -> Any:
    if not levels:
        raise OptionError(f"schema: column {column}: nested deeper than {MAX_NESTING} levels")
    words = " ".join(words.split())
    lower = words.lower()
    if lower in SIMPLE or lower in _SPARK_TYPES:
        return SIMPLE.get(lower) or _SPARK_TYPES[lower]
    if lower.startswith("array<") and lower.endswith(">"):
        return pa.list_(_type(words[6:-1], column, levels - 1))
    if lower.startswith("struct<") and lower.endswith(">"):
        members = [member.partition(":") for member in _split(words[7:-1])]
        if all(mark for _, mark, _ in members):
            return pa.struct(
                [pa.field(name.strip(), _type(of, column, levels - 1)) for name, _, of in members]
            )
    found = _SIZED.fullmatch(lower)
    if found is not None and found[1] in (*TIMED, *DECIMALS):
        made = sized(found[1], tuple(int(size) for size in found[2].split(",")))
        if not isinstance(made, str):
            return made
        raise OptionError(f"schema: column {column}: {made}")
    raise OptionError(
        f"schema: column {column}: no type {words!r}; known are {', '.join(SIMPLE)}, timestamp, "
        "timestamp_ntz, decimal(10, 2), array<…> and struct<name: type, …>"
    )


# --- Files whose columns differ from each other or from the dataset: the rules ----------

DriftRule: TypeAlias = Literal["fail", "widen", "add"]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The columns of an ingest.

    Parameters
    ----------
    schema
        All columns.
    widened
        Columns of the dataset whose type becomes wider, with the new type.
    added
        Columns that the dataset lacks.
    """

    schema: pa.Schema
    widened: tuple[pa.Field[Any], ...] = ()
    added: tuple[pa.Field[Any], ...] = ()


def reconcile(
    files: Iterable[tuple[SourceFile, pa.Schema]],
    existing: pa.Schema | None,
    rule: DriftRule,
    *,
    typed: bool,
    named: bool,
    chosen: bool = False,
) -> Reconciled:
    """Find the columns of an ingest from the columns of its files.

    Parameters
    ----------
    files
        The files with their columns.
    existing
        Columns of the dataset, or columns that the caller gave; ``None``: the columns of the files.
    rule
        ``fail``: every file has the same columns and types. ``widen``: types may differ if one type
        holds the values of both. ``add``: in addition, columns may be added, and files may lack
        columns that may be null.
    typed
        Files state their types. Otherwise samples tell the types, and with ``fail`` the types of
        ``existing`` replace them.
    named
        Files state their columns. Otherwise a file may lack known columns, and a record with
        unknown columns is an error.
    chosen
        The caller gave ``existing``, which has precedence over types inferred from samples.

    Raises
    ------
    SchemaError
        A file differs in a way that the rule forbids; the message names file and column.
    """
    known: dict[str, pa.Field[Any]] = {field.name: field for field in existing or ()}
    original = dict(known)
    seen: dict[str, str] = {}
    there, ruled = set[str](), set[str]()
    first: str | None = None
    for file, schema in files:
        uri = file.uri
        for field in schema:
            current = known.get(field.name)
            if current is None:
                if existing is not None and rule != "add" and not named:
                    continue
                if named and (existing is not None or first is not None) and rule != "add":
                    raise SchemaError(
                        f"{uri}: column {field.name} is not in "
                        f"{'the dataset' if existing is not None else first}. Pass "
                        "schema_drift='add' to add it"
                    )
                optional = existing is not None or first is not None
                known[field.name] = field.with_nullable(True) if optional else field
            elif field.name in original and (
                _fills_vectors(field.type, current.type)
                if typed
                else chosen or rule == "fail" or _is_readable_as(field.type, current.type)
            ):
                continue
            else:
                other = seen.get(field.name, "the dataset")
                inferred = not typed and field.name not in original
                known[field.name] = _joined(
                    current, field, rule, f"{uri} and {other}", inferred=inferred
                )
            seen.setdefault(field.name, uri)
        names = frozenset(schema.names)
        there |= names
        lacking = [name for name in known if name not in names]
        for name in lacking:
            if name not in there and _has_rule(original.get(name)):
                ruled.add(name)
                continue
            if (named and rule != "add") or (name in original and not known[name].nullable):
                raise SchemaError(
                    f"{uri}: column {name} is missing. "
                    + (
                        "It may not be null"
                        if rule == "add" or not named
                        else "Pass schema_drift='add' to read it as null"
                    )
                )
            known[name] = known[name].with_nullable(True)
        first = first or uri
    for name in ruled:
        if name in there:
            raise SchemaError(
                f"column {name} is in some files only, and the dataset has a rule for it. Ingest "
                "the files that lack it on their own"
            )
        del known[name]  # the writer computes it
    if not typed:  # values of new columns that are null in all files
        known = {
            name: field if name in original else with_texts(field) for name, field in known.items()
        }
    changed = [field for name, field in known.items() if name in original]
    return Reconciled(
        pa.schema(list(known.values())),
        tuple(field for field in changed if field.type != original[field.name].type),
        tuple(field for name, field in known.items() if name not in original),
    )


def _has_rule(field: pa.Field[Any] | None) -> bool:
    """Return whether a column of a dataset has a default, or is generated."""
    keys = (DEFAULT.encode(), GENERATED.encode(), IDENTITY.encode())
    return field is not None and any(key in (field.metadata or {}) for key in keys)


def _joined(
    current: pa.Field[Any], field: pa.Field[Any], rule: DriftRule, where: str, *, inferred: bool
) -> pa.Field[Any]:
    """Return the field that holds the values of both."""
    nullable = current.nullable or field.nullable
    if _plain(current.type) == _plain(field.type):
        return current if inferred else current.with_nullable(nullable)
    if rule == "fail" and not inferred:
        raise SchemaError(
            f"column {field.name}: {field.type} and {current.type} in {where}. Pass "
            "schema_drift='widen' if one type shall hold both, or schema= to name the types"
        )
    refused = SchemaError(
        f"column {field.name}: no type holds {field.type} and {current.type}, in {where}. Pass "
        "schema= to name the types"
    )
    if _would_round(current.type, field.type):
        raise refused
    joined: pa.Field[Any]
    both = (one.with_type(_nullable(one.type)).with_nullable(True) for one in (current, field))
    try:
        joined = pa.unify_schemas(
            [pa.schema([one]) for one in both], promote_options="permissive"
        ).field(0)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise refused from error
    if _plain(joined.type) == _plain(current.type):
        return current.with_nullable(nullable)
    return joined.with_nullable(nullable)


def _nullable(kind: Any) -> Any:
    """Return a type whose structs have members that may be null, as a file may lack them."""
    return mapped(kind, _nullable) or kind


def _fills_vectors(found: Any, known: Any) -> bool:
    """Return whether lists of a typed file become vectors of the dataset."""
    if not pa.types.is_fixed_size_list(known):
        return False
    if not (pa.types.is_list(found) or pa.types.is_large_list(found)):
        return False
    one, other = found.value_type, known.value_type
    return bool(one == other or (pa.types.is_floating(one) and pa.types.is_floating(other)))


def _is_readable_as(inferred: Any, known: Any) -> bool:
    """Return whether values of an inferred type are read as values of the known type.

    Strings and lists are read as lists or vectors. Numbers are read as decimals or ``uint64``,
    which are exact: for integers beyond ``bigint``, the inferred type is a float.
    """
    if pa.types.is_fixed_size_list(known):
        return bool(pa.types.is_string(inferred) or pa.types.is_list(inferred))
    if pa.types.is_decimal(known):
        return bool(pa.types.is_floating(inferred))
    if pa.types.is_uint64(known):
        return bool(pa.types.is_integer(inferred) or pa.types.is_floating(inferred))
    return bool(pa.types.is_string(inferred) and pa.types.is_list(known))


def _would_round(one: Any, other: Any) -> bool:
    """Return whether decimals would become floats, at the same position at any depth."""
    for decimal, kind in ((one, other), (other, one)):
        if pa.types.is_decimal(decimal) and pa.types.is_floating(kind):
            return True
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        names = {field.name for field in one} & {field.name for field in other}
        return any(_would_round(one.field(name).type, other.field(name).type) for name in names)
    if not one.num_fields or one.num_fields != other.num_fields:
        return False
    pairs = ((one.field(at).type, other.field(at).type) for at in range(one.num_fields))
    return any(_would_round(*pair) for pair in pairs)


def _plain(data_type: Any) -> Any:
    """Return one type for all types with the same values."""
    if pa.types.is_dictionary(data_type):
        return _plain(data_type.value_type)
    if isinstance(data_type, pa.BaseExtensionType):
        return _plain(storage_type(data_type))
    if pa.types.is_large_string(data_type) or data_type == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(data_type) or data_type == pa.binary_view():
        return pa.binary()
    if pa.types.is_large_list(data_type) or pa.types.is_list(data_type):
        return pa.list_(_plain(data_type.value_type))
    return data_type


_MAX_READERS = 16
"""Threads that read footers and samples."""

IngestMode: TypeAlias = Literal["create", "append", "overwrite", "merge"]


@dataclass(frozen=True, slots=True)
class Sources:
    """Files, their format, and the resulting columns."""

    files: tuple[SourceFile, ...]
    source_format: SourceFormat
    columns: Reconciled


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """Tasks that can run anywhere, and the plan of their commit.

    Parameters
    ----------
    tasks
        Tasks in the order of the rows.
    write
        The plan of the write to the dataset.
    bad_records
        The plan of the write to the dataset of bad records.
    job_id
        Id of the job, in the properties of both commits.
    """

    tasks: tuple[IngestTask, ...]
    write: WritePlan
    bad_records: WritePlan | None
    job_id: str

    @property
    def load(self) -> Load | None:
        """The load that the commit belongs to, for files that are read once."""
        return Load.of(self.write.options.transaction_properties)

    @property
    def journal(self) -> Journal | None:
        """The journal of finished tasks, if the caller named the job."""
        return self.tasks[0].journal if self.tasks else None


@dataclass(frozen=True, slots=True)
class Staged:
    """Fragments that were written with a plan, uncommitted."""

    write: WritePlan
    fragments: Sequence[Fragment] = ()


def find_sources(
    files: Sequence[SourceFile],
    *,
    format: SourceFormat | None,  # the public name
    existing: pa.Schema | None,
    schema: pa.Schema | None,
    vectors: Sequence[str],
    schema_drift: DriftRule,
    reader_options: Mapping[str, object],
) -> Sources:
    """Find the columns of files, with one or two requests for each file.

    Parameters
    ----------
    format
        The format; ``None``: the format that the names of the files suggest.
    existing
        Columns of the dataset to which rows are added, if there is one.
    schema
        Columns that the caller chose; they must be the columns of ``existing``, if there is one.
    vectors
        Columns of lists that become vectors of one length; the same rule applies.
    schema_drift
        The rule for differences between the columns of files.
    reader_options
        Options of the reader of their format.

    Raises
    ------
    OptionError
        An option has an invalid value or contradicts another option.
    FormatError
        A file is invalid in its format.
    SchemaError
        Columns of files contradict each other, or the dataset.
    """
    one_of(*get_args(DriftRule)).check("schema_drift", schema_drift)
    _check_chosen(schema)
    source_format = format or format_named(format_of(files), reader_options)
    if existing is not None:
        if source_format.typed:
            existing = extended(existing)
        _refuse_other_columns(existing, schema, vectors, schema_drift)
    known = schema if existing is None else existing
    folders = {}
    if source_format.folders:
        folders = columns_of_folders(files, known, schema_drift, chosen=schema is not None)
    schemas: Iterable[pa.Schema]
    if known is not None and not _depends_on_files(source_format, schema, schema_drift):
        schemas = repeat(known, len(files))
    else:
        # One schema at a time: a million files may have a thousand columns each.
        schemas = ordered_map(partial(schema_of, source_format), files, workers=_MAX_READERS)
    keep = source_format.typed or not source_format.named  # rows may lack all columns
    found = (one for one in zip(files, schemas, strict=True) if one[1] or (keep and one[0].size))
    columns = reconcile(
        ((file, with_folders(folders, file, own)) for file, own in found) if folders else found,
        known,
        schema_drift,
        typed=source_format.typed,
        named=source_format.named,
        chosen=schema is not None,
    )
    if not (source_format.typed or len(columns.schema)):
        raise FormatError(f"{files[0].uri} is empty or lacks columns. Omit it, or pass schema=.")
    if existing is None:
        columns = Reconciled(with_vectors(columns.schema, vectors))
    source_format.check(columns.schema)
    return Sources(tuple(files), source_format, columns)


def _check_chosen(schema: object) -> None:
    """Refuse columns that a caller chose, unless each has a different name."""
    if schema is None:
        return
    if not isinstance(schema, pa.Schema):
        raise OptionError(
            "schema: expected a pyarrow.Schema, or a string such as 'id bigint', found "
            f"{schema!r:.80}"
        )
    for name, count in Counter(schema.names).items():
        if count > 1:
            raise OptionError(f"schema: several columns are called {name!r:.80}")


def _depends_on_files(
    source_format: SourceFormat, chosen: pa.Schema | None, rule: DriftRule
) -> bool:
    """Return whether files can change known columns; otherwise files are read for their rows only.

    A record with other columns is then an error, or a bad record.
    """
    if source_format.typed or source_format.named:
        return True
    return rule == "add" or (chosen is None and rule != "fail")


def _refuse_other_columns(
    existing: pa.Schema, schema: pa.Schema | None, vectors: Sequence[str], rule: DriftRule
) -> None:
    """Refuse columns that the caller chose, unless a dataset has them.

    A stopped run of the same call may have given the dataset these columns.
    """
    chosen = with_vectors(existing if schema is None else schema, vectors)
    same = all(
        field.name in existing.names and existing.field(field.name).type == field.type
        for field in chosen
    )
    if not same or (rule != "add" and len(chosen) != len(existing)):
        raise OptionError(
            "schema, vectors: the dataset has its own, which differ; leave them out, or overwrite"
        )


def columns_of_folders(
    files: Sequence[SourceFile], known: pa.Schema | None, rule: DriftRule, *, chosen: bool
) -> dict[str, pa.Field[Any]]:
    """Return columns in names of folders, by lower-case name; known columns keep their spelling.

    Raises
    ------
    SchemaError
        The dataset lacks a column.
    """
    of_known = {field.name.lower(): field for field in known or ()}
    folders = {}
    for field in folder_columns((file.folder, file.path) for file in files):
        key = field.name.lower()
        if key in of_known or known is None or rule == "add":
            column = of_known.get(key, field)
            folders[key] = field.with_name(column.name) if rule == "widen" else column
        elif not chosen:
            raise SchemaError(
                f"{files[0].uri}: the column {field.name!r} in names of folders is not in the "
                "dataset. Pass schema_drift='add' to add it, or schema= with the columns of the "
                "dataset to leave it out"
            )
    return folders


def with_folders(
    folders: Mapping[str, pa.Field[Any]], file: SourceFile, schema: pa.Schema
) -> pa.Schema:
    """Return the columns of a file, and columns that only the names of its folders have."""
    own = {name.lower() for name in schema.names}
    keys = [name.lower() for name in folder_texts(file.folder, file.path)]
    return pa.schema([*schema, *(folders[key] for key in keys if key in folders.keys() - own)])


def schema_of(source_format: SourceFormat, file: SourceFile) -> pa.Schema:
    """Return the columns of a file; raise ``FormatError`` if two have the same name."""
    try:
        schema = source_format.schema(file)
        names = Counter(schema.names)  # the first read of the names, which may not be UTF-8
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{file.uri}: the name of a column is not UTF-8: {error}. Rename it, or leave the "
            "file out"
        ) from None
    if len(names) < len(schema):
        name = next(name for name, count in names.items() if count > 1)
        raise FormatError(
            f"{file.uri}: several columns are called {name!r}. Rename them, or leave the file out"
        )
    return schema


def plan_ingest(
    store: ObjectStore,
    sources: Sources,
    options: WriteOptions,
    *,
    job_id: str | None = None,
    bad_records: ObjectStore | None = None,
    expectations: Expectations | None = None,
    base: Manifest | None = None,
    task_bytes: int = TASK_BYTES,
) -> IngestPlan:
    """Cut the files into tasks of about the same bytes.

    Parameters
    ----------
    store, bad_records
        Root of the dataset, and root of the dataset for bad records.
    sources
        The files to read.
    options
        Options of the write.
    job_id
        Id of the job; default: a new id.
    expectations
        Conditions that rows must meet.
    base
        The version to append to.
    task_bytes
        Approximate number of bytes of the sources of a task.
    """
    integer(1).check("task_bytes", task_bytes)
    load = Load.of(options.transaction_properties)
    job = job_id or (str(uuid4()) if load is None else load.id)
    named = {JOB: job} if job_id is None else {JOB: job, **NamedJob(job).properties}
    properties = {**options.transaction_properties, **named}
    options = replace(options, transaction_properties=properties)
    write = plan_write(store, sources.columns.schema, options, base)
    if expectations is not None:
        expectations.check(write.schema)
    journal = None if job_id is None else Journal(store, job_id)
    quarantine = None
    if bad_records is not None:
        aside_options = WriteOptions(mode="append", transaction_properties=named)
        quarantine = plan_write(bad_records, BAD_RECORDS, aside_options)
    cut = sources.source_format.pieces
    pieces = tuple(piece for file in sources.files for piece in cut(file, task_bytes))
    schema = sources.columns.schema
    groups = [pieces[part] for part in in_groups([one.size for one in pieces], task_bytes)]
    alone, given = len(groups) == 1, (quarantine, job, journal, expectations)
    tasks = tuple(
        IngestTask(
            group,
            sources.source_format.for_task(group),
            schema,
            write.for_task(None if alone else at),
            *given,
        )
        for at, group in enumerate(groups)
    )
    return IngestPlan(tasks, write, quarantine, job)


# --- Commit the results of an ingest's tasks: bad records first, then the rows -----------


def check_bad_records(store: ObjectStore, bad_records: ObjectStore | None) -> None:
    """Refuse to store bad records in the dataset itself, also under another path.

    A job commits once in each dataset, and the bad records would take this commit.

    Raises
    ------
    OptionError
        Both datasets have the same location.
    """
    if bad_records is None:
        return
    places = [one.full("").rstrip("/") for one in (store, bad_records)]
    if store.is_local and bad_records.is_local:
        places = list(map(os.path.realpath, places))
    if places[0] == places[1]:
        raise OptionError(
            f"bad_records: {bad_records.uri} is the dataset itself. Name another place for bad "
            "records."
        )


def commit_ingest(
    plan: IngestPlan, results: Sequence[IngestedPieces], *, files: int
) -> IngestResult:
    """Commit the results of tasks: bad records first, then the rows; each once for the job."""
    commit_all_bad_records(plan, results)
    fragments = written_fragments(results)
    version = plan.write.read_version
    if fragments or not plan.write.appends or plan.load is not None:
        tasks = len(results) if len(results) > 1 else None
        rows = [written_fragments([result]).row_count for result in results]
        write = plan.write.recording(rows, tasks=tasks)
        with committing(plan, version):
            made = commit_plan(write, fragments, once=JOB)
            version = version_of(plan, made)
        after_upkeep(plan.write, made)
    return acknowledged(plan, results, version=version, rows=fragments.row_count, files=files)


def committing(plan: IngestPlan, since: int) -> AbstractContextManager[None]:
    """Record the commit of a job that has an id; see :meth:`Journal.committing`."""
    return nullcontext() if plan.journal is None else plan.journal.committing("rows", since)


def version_of(plan: IngestPlan, manifest: Manifest) -> int:
    """Return the version that the job made, given the version that its commit returned.

    The commit returns a later version if another run of the job was first.

    Raises
    ------
    CommitConflictError
        Another load of files was first.
    """
    if plan.load is not None and last_load(manifest) != plan.load.id:
        raise CommitConflictError(
            f"{plan.write.store.uri}: another load of files was committed while this one ran. "
            "Run it again: it reads the files that are left",
            retryable=False,
        )
    return made_version(manifest, plan.job_id) or manifest.version


def written_fragments(results: Sequence[IngestedPieces]) -> FragmentList:
    """Return the fragments of all tasks, in the order of the rows."""
    packed = (data for result in results for data in result.fragments)
    return unpacked_fragments(packed, "the result of a task")


def commit_all_bad_records(plan: IngestPlan, results: Sequence[IngestedPieces]) -> None:
    """Commit the bad records of all tasks."""
    bad = [data for result in results for data in result.bad_fragments]
    commit_bad_records(plan, unpacked_fragments(bad, "the result of a task"))


def commit_bad_records(plan: IngestPlan, fragments: Sequence[Fragment]) -> None:
    """Commit bad records, unless an earlier, stopped run of the job has done this.

    Raises
    ------
    OptionError
        The earlier run had other bad records.
    """
    quarantine, journal = plan.bad_records, plan.journal
    if quarantine is None:
        return
    if journal is None:
        if fragments:
            commit_plan(quarantine, fragments, once=JOB)
        return
    made = None
    if quarantine.base is not None:
        made = find_made(journal, "bad", quarantine.store, quarantine.base)
    if made is not None:
        _expect_same(journal, quarantine, made, fragments)
    elif fragments:
        with journal.committing("bad", quarantine.read_version):
            commit_plan(quarantine, fragments, once=JOB)


def _expect_same(
    journal: Journal, quarantine: WritePlan, made: int, fragments: Sequence[Fragment]
) -> None:
    """Check that a version has the current bad records of a job.

    Cost: two requests, and reading the records if they are in other files.
    """
    try:
        manifest = open_version(quarantine.store, made)
    except VersionNotFoundError:
        return  # it was cleaned up
    transaction = read_transaction(quarantine.store, manifest)
    if transaction is None or transaction.properties.get(JOB) != journal.job_id:
        return
    operation = read_operation(transaction.operation)
    if not isinstance(operation, Append | Overwrite):
        return
    earlier, now = (FragmentList.of(one) for one in (operation.fragments, fragments))
    if earlier.row_count != now.row_count:
        found = f"{now.row_count}"
    elif _paths(earlier) == _paths(now) or _are_same(quarantine, manifest, earlier, now):
        return
    else:
        found = "others"
    raise OptionError(
        f"job_id: a run of {journal.job_id} put {earlier.row_count} bad records into "
        f"{quarantine.store.uri} (version {made}), and then stopped. Now {found} were found: the "
        "files have changed since. Nothing was written. Ingest them with another job_id. To "
        "avoid duplicates, delete the records of this one"
    )


def _paths(fragments: FragmentList) -> list[str]:
    return [file.path for fragment in fragments for file in fragment.files]


def _are_same(
    quarantine: WritePlan, manifest: Manifest, earlier: FragmentList, now: FragmentList
) -> bool:
    """Return whether equally many bad records are from the same lines, or were removed.

    Reasons may differ, because other releases word them differently.
    """
    columns = ["file", "line", "record"]
    bases = manifest.wire.base_paths
    one, other = (
        Scanner.of(staged_rows(quarantine, part, bases), columns=columns).to_batches()
        for part in (earlier, now)
    )
    rest: Any = None
    try:
        for batch in one:
            left: Any = batch
            while left.num_rows:
                if rest is None or not rest.num_rows:
                    rest = next(other, None)
                count = 0 if rest is None else min(left.num_rows, rest.num_rows)
                if not count or not left.slice(0, count).equals(rest.slice(0, count)):
                    return False
                left, rest = left.slice(count), rest.slice(count)
    except (DataFileMissingError, ObjectNotFoundError):
        return True
    return True


def find_made(
    journal: Journal, commit: NotedCommit, store: ObjectStore, newest: Manifest
) -> int | None:
    """Return the version that an earlier run of a job made.

    Raises
    ------
    VersionNotFoundError
        The run may have made a version that clean-up removed.

    Notes
    -----
    The newest manifest has the version, unless it has forgotten jobs. In this case the cost is one
    listing of the journal, and one request for each version since a run that stopped during its
    commit.
    """
    begun = partial(journal.begun, commit)
    made, searched = search_forgotten(store, newest, JOB, journal.job_id, begun)
    if made is not None or not searched:
        return made
    left = {location.version for location in list_versions_past(store, newest.version)}
    missing = next((number for number in searched if number not in left), None)
    if missing is not None:
        raise VersionNotFoundError(
            f"job {journal.job_id} on {store.uri}: a run of it was stopped while it committed a "
            f"version after {searched[0] - 1}. Clean-up has removed version {missing}, so glaive "
            "cannot see whether the rows exist. Look for some of the rows; if the dataset does "
            "not have them, ingest the files with another job_id"
        )
    return None


def acknowledged(
    plan: IngestPlan, results: Sequence[IngestedPieces], *, version: int, rows: int, files: int
) -> IngestResult:
    """Record the end of the job, and return its result."""
    if plan.journal is not None:
        plan.journal.commit(version)
    return IngestResult(
        version=version,
        rows=rows,
        files=files,
        bad_records=sum(result.bad_records for result in results),
        dropped=sum(result.dropped for result in results),
        job_id=plan.job_id,
    )
