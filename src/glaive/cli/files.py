"""Commands for files of other formats: ``convert``, and ``ingest`` for many at once."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
import pyarrow.dataset as pads

from glaive.cli.options import SCAN, command, options_of, pairs_of, storage_option, storage_pairs
from glaive.cli.output import KINDS, json_line, number_of, print_json, public, replacing, say
from glaive.dataset.writing.source import lost_values
from glaive.errors import FormatError

if TYPE_CHECKING:
    from glaive.ingestion import IngestResult

# --- The columns of several files that ``glaive convert`` reads as one ------------------

_TYPED = ("arrow", "parquet")
"""Formats that state types: in others, values are parsed as those of the first file, or refused."""


def schema_of(path: str, kind: str) -> pa.Schema:
    """Return the columns of a file."""
    if kind == "arrow":
        return pads.dataset([path], format="arrow").schema
    from glaive.ingestion.formats import format_named
    from glaive.ingestion.sources import local_file

    return format_named(kind, {}).schema(local_file(path))


def columns_of(found: list[str], kind: str, wanted: list[str] | None) -> pa.Schema:
    """The columns of the first file, then those that only others have.

    Parameters
    ----------
    found
        The files.
    kind
        Their format.
    wanted
        Columns that are converted; None for all.

    Raises
    ------
    FormatError
        Values of a file would lose something as those of the type that a column has.
    """
    first = schema_of(found[0], kind)
    fields = list(first)
    places = {field.name: at for at, field in enumerate(fields)}
    for path in found[1:]:
        known = len(fields)
        for field in schema_of(path, kind):
            at = places.get(field.name)
            if at is None:
                fields.append(field.with_nullable(True))
                continue
            joined = _joined(fields[at], field)
            if kind in _TYPED and (wanted is None or field.name in wanted):
                _refuse_losses(path, field, joined)
                _refuse_losses(f"a file before {path}", fields[at], joined)
            fields[at] = joined
        places |= {fields[at].name: at for at in range(known, len(fields))}
    metadata: Any = first.metadata
    return pa.schema(fields, metadata)


def places_of(source: str, found: list[str]) -> list[tuple[str, str]]:
    """The folder that was given, or that of the file, and the path of each file below it."""
    folder = source if Path(source).is_dir() else str(Path(source).parent)
    below = (Path(os.path.relpath(path, folder)).as_posix() for path in found)
    return [(f"{Path(folder).absolute().as_posix()}/", path) for path in below]


def _refuse_losses(path: str, field: pa.Field, joined: pa.Field) -> None:
    lost = lost_values(field.type, joined.type)
    if lost is not None:
        raise FormatError(f"{path}: column {field.name} has {lost}. Convert such files separately")


def _joined(first: pa.Field, other: pa.Field) -> pa.Field:
    """A column with the members that its structs have in either of two files."""
    kind = first.type
    if kind == other.type or not (pa.types.is_null(kind) or pa.types.is_nested(kind)):
        return first
    unify: Any = pa.unify_schemas
    try:
        both = unify(
            [pa.schema([one.with_type(_may_lack(one.type))]) for one in (first, other)],
            promote_options="permissive",
        )
    except pa.ArrowException:  # values are cast to the first type, or refused
        return first
    found: pa.Field = both.field(0)
    return found


def _may_lack(kind: Any) -> Any:
    """A type whose structs have members that may be null, as those are that a file lacks."""
    if pa.types.is_struct(kind):
        return pa.struct(
            [member.with_type(_may_lack(member.type)).with_nullable(True) for member in kind]
        )
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_may_lack(kind.value_type)))
    return kind


_BATCH_BYTES = 64 << 20


@command(
    "glaive convert flights.parquet flights.lance",
    "glaive convert flights.lance flights.csv --filter \"carrier = 'UA'\"",
    "glaive convert old.lance new.lance --format-version 2.2",
    opens=None,
)
@click.argument("source")
@click.argument("target")
@storage_option
@click.option("--from", "source_kind", type=click.Choice(sorted(set(KINDS.values()))))
@click.option("--to", "target_kind", type=click.Choice(sorted(set(KINDS.values()))))
@options_of(SCAN, "columns", "filter")
@click.option("--format-version", help="Format version of a Lance target, such as 2.1.")
@click.option("--overwrite", is_flag=True, help="Replace a target that exists.")
def convert(
    source: str,
    target: str,
    *,
    storage_options: tuple[str, ...],
    source_kind: str | None,
    target_kind: str | None,
    columns: Any,
    filter: str | None,
    format_version: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Convert SOURCE to TARGET: Lance, Parquet, CSV, JSON lines or Arrow, by their endings.

    Batch by batch, in one process without Spark. Files of a folder give their
    rows once each, also where links lead to them, but not those in folders behind links; the result
    has the columns of all of them, and columns for folders such as day=1. A name that JSON has only
    beyond 4 MiB is an error, and so is a type of Parquet or Arrow whose values that of the
    first file does not hold as they are.
    Values of blobs are converted, too: to bytes, and to blobs where TARGET is a Lance dataset.
    """
    have, want = source_kind or _kind(source, "--from"), target_kind or _kind(target, "--to")
    if filter is not None and have != "lance":
        raise click.UsageError("--filter: only rows of a Lance dataset are filtered")
    if isinstance(columns, dict) and have != "lance":
        raise click.UsageError("--columns: only columns of a Lance dataset are computed")
    if storage_options and "lance" not in (have, want):
        raise click.UsageError("--storage-option: only Lance datasets have storage options")
    storage = storage_pairs(storage_options)
    reader, schema = _reader(source, have, columns, filter, storage)
    if want == "lance":
        import glaive

        try:
            made = glaive.write_dataset(
                reader,
                target,
                schema=schema,
                mode="overwrite" if overwrite else "create",
                data_storage_version=format_version,
                storage_options=storage,
            )
        except glaive.errors.DatasetExistsError:
            raise click.ClickException(f"{target} exists; --overwrite replaces it") from None
        rows = made.count_rows()
    else:
        if not overwrite and Path(target).exists():
            raise click.ClickException(f"{target} exists; --overwrite replaces it")
        if not Path(target).parent.is_dir():
            raise click.ClickException(f"{Path(target).parent} is no folder: make it first")
        rows = write_file(reader, Path(target), want)
    if as_json:
        print_json({"source": public(source), "target": public(target), "rows": rows})
    else:
        say(f"{number_of(rows, 'row')} written to {public(target)}")


def _kind(path: str, option: str) -> str:
    kind = KINDS.get(Path(path.rstrip("/")).suffix.lower())
    if kind is None and option == "--from" and Path(path).is_dir():
        raise click.UsageError(f"{path} is a folder: name its files' format, as in --from parquet")
    if kind is None:
        raise click.UsageError(f"{option}: the ending of {path} is none of {', '.join(KINDS)}")
    return kind


def _reader(
    source: str, kind: str, columns: Any, condition: str | None, storage: dict[str, str] | None
) -> tuple[pa.RecordBatchReader, pa.Schema]:
    """Rows of the source, and their columns as a dataset holds them: blobs are no mere bytes."""
    if kind != "lance" and not Path(source).exists():
        raise click.ClickException(f"{source} does not exist: expected a file, or a folder of them")
    if kind == "lance":
        from glaive.dataset.open import dataset as open_dataset

        opened = open_dataset(source, storage_options=storage)
        scanner = opened.scanner(
            columns=columns,
            filter=condition,
            blob_handling="all_binary",
            batch_size_bytes=_BATCH_BYTES,
        )
        reader = scanner.to_reader()
        schema = opened.schema  # made again each time, with a look at all columns
        whole = [name for name in schema.names if not isinstance(columns, dict)]
        known = {name: schema.field(name) for name in whole}
        return reader, pa.schema([known.get(field.name, field) for field in reader.schema])
    found = _files_of(source)
    if not found:
        raise click.ClickException(f"{source} has no files")
    from glaive.ingestion.task import completed, folder_columns, folder_values

    try:
        given = columns_of(found, kind, columns)
        places = places_of(source, found)
        others = {field.name: field for field in folder_columns(places, given.names)}
        folders = {field.name.lower() for field in folder_columns(places)}
        shared = {name for name in given.names if name.lower() in folders}  # a file may lack them
        if unknown := [name for name in columns or () if name not in (*given.names, *others)]:
            raise FormatError(f"{source}: there is no column {unknown[0]!r}")
        own = given.names
        if columns is not None:  # without a column of its own, a file of Parquet has no rows
            own = [name for name in columns if name not in others] or own[:1]
        metadata: Any = given.metadata
        stored = pa.schema([given.field(name) for name in own], metadata)
    except UnicodeDecodeError as error:
        raise FormatError(f"{source}: a name is not UTF-8: {error}") from None
    except pa.ArrowInvalid as error:
        raise FormatError(f"{source}: {error}") from error

    wanted = [*stored.names, *others] if columns is None else columns
    if (others.keys() | shared).isdisjoint(wanted):
        batches = _sound(
            (row for path in found for row in _rows(path, kind, given, stored)), source, kind
        )
        return pa.RecordBatchReader.from_batches(stored, batches), stored
    schema = pa.schema([others.get(name) or stored.field(name) for name in wanted], metadata)
    names = [schema_of(path, kind).names if shared else given.names for path in found]
    complete = (
        part
        for path, place, own in zip(found, places, names, strict=True)
        for batch in _rows(path, kind, given, stored)
        for part in completed(batch, schema, folder_values(*place, schema, own)).to_batches()
    )
    return pa.RecordBatchReader.from_batches(schema, _sound(complete, source, kind)), schema


def _rows(path: str, kind: str, given: pa.Schema, stored: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows of a file with the columns and types of a schema: null where it has none."""
    if kind == "arrow":
        yield from pads.dataset([path], schema=stored, format="arrow").scanner().to_reader()
        return
    from glaive.ingestion.formats import format_named
    from glaive.ingestion.sources import Piece, Rejects, local_file

    file = local_file(path)
    wanted = given if kind == "json" else stored  # a member that no column has is an error
    whole = Piece(file, 0, None, file.size)
    for rows in format_named(kind, {}).read(whole, wanted, Rejects(keep=False)):
        have = dict(zip(rows.schema.names, rows.columns, strict=True))
        columns: list[Any] = []
        for field in stored:
            values: Any = have.get(field.name)
            try:
                columns.append(
                    pa.nulls(len(rows), field.type) if values is None else values.cast(field.type)
                )
            except pa.ArrowException as error:
                raise FormatError(
                    f"{path}: column {field.name} is not {field.type} as in other files: {error}"
                ) from error
        yield from pa.Table.from_arrays(columns, schema=stored).to_batches()


def _files_of(source: str) -> list[str]:
    """A file, or those below a folder by name, each once; folders behind links are left out.

    Names that begin with "." or "_" are left out, too, as by Arrow.
    """
    if not Path(source).is_dir():
        return [source]
    from glaive.io.confined import is_link

    found: dict[str, str] = {}
    folders = [source]
    for folder in folders:  # those near the source first, so that files have the shortest names
        with os.scandir(folder) as entries:
            named = sorted(entries, key=lambda entry: entry.name)
        for entry in named:
            if entry.name.startswith((".", "_")):
                continue
            if Path(entry.path).is_file():
                found.setdefault(os.path.realpath(entry.path), entry.path)
            elif Path(entry.path).is_dir() and not is_link(entry.path):
                folders.append(entry.path)
    return sorted(found.values())


def _sound(batches: Iterable[pa.RecordBatch], source: str, kind: str) -> Iterator[pa.RecordBatch]:
    """The batches, checked: all formats pass on texts that are not UTF-8 without a word."""
    from glaive.arrow.validation import damaged_text
    from glaive.io.failures import as_store_errors

    check = _invalid if kind == "arrow" else damaged_text
    try:
        with as_store_errors(source, "read"):
            for batch in batches:
                fault = next(filter(None, map(check, batch.columns)), None)
                if fault is not None:
                    raise FormatError(f"{source} is damaged: {fault}")
                yield batch
    except pa.ArrowInvalid as error:
        raise FormatError(f"{source}: {error}") from error


def _invalid(column: Any) -> str | None:
    """What is wrong with a column of a file of Arrow: its offsets are as in memory, any at all."""
    kind = column.type
    if pa.types.is_time(kind) or pa.types.is_date(kind):  # such as 24:00, which does no harm
        column = column.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    try:
        column.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:  # the latter of views
        return str(error)
    return None


def write_file(reader: pa.RecordBatchReader, target: Path, kind: str) -> int:
    """Write rows to a file, which takes the place of one there is; returns their number."""
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in reader:
            rows += batch.num_rows
            yield batch

    with replacing(target) as unfinished:
        if kind == "json":
            from glaive.arrow.conditions import exact_rows

            with unfinished.open("w", encoding="utf-8") as lines:
                for batch in counted():
                    lines.writelines(f"{json_line(row)}\n" for row in exact_rows(batch))
            return rows
        from glaive.ingestion.exporting import format_named

        made = format_named(kind, {"compression": "none"} if kind == "arrow" else {})
        made.check(reader.schema)
        path: Any = os.fsencode(unfinished)
        with pa.OSFile(path, "w") as out:
            made.write(out, reader.schema, counted())
    return rows


# --- ``ingest``: many files, in tasks, here or on Spark ----------------------------------

_INGEST = "glaive.ingestion.job:ingest"


@command(
    "glaive ingest flights.csv flights.lance --null NA",
    "glaive ingest 'logs/**/*.jsonl.gz' logs.lance --mode append --job-id logs-2026-11",
    "glaive ingest items.parquet items.lance --vector embedding:128:float16",
    "glaive ingest photos/ photos.lance --format images --bad-records broken.lance",
    "glaive ingest s3://in/2026/ s3://out/t.lance --format csv --master spark://host:7077",
    opens=None,
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("dataset")
@storage_option
@options_of(_INGEST, "format", "mode", "merge_keys", "schema", "schema_drift")
@click.option("--null", help="CSV: the text that means null, such as NA.")
@options_of(
    _INGEST, "vectors", flags=["--vector"], multiple=True, type=str, metavar="COLUMN:DIM[:TYPE]"
)
@options_of(_INGEST, "bad_records", "job_id")
@click.option(
    "--master", help="Run on this Spark, such as spark://host:7077; else in this process."
)
@click.option(
    "--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; may be repeated."
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the format, such as sep=;; may be repeated.",
)
def ingest(
    sources: tuple[str, ...],
    dataset: str,
    *,
    storage_options: tuple[str, ...],
    null: str | None,
    master: str | None,
    conf: tuple[str, ...],
    options: tuple[str, ...],
    as_json: bool,
    **keywords: Any,
) -> None:
    """Write the rows of SOURCE... as one new version of DATASET.

    SOURCE is a file, a folder, a pattern (** matches across folders) or a URI of an object store.
    The work is cut into tasks, which run on the cores of this machine or on Spark; one commit at
    their end makes the version.
    """
    reader_options: dict[str, object] = dict(pairs_of("--option", options))
    if null is not None:
        reader_options["null"] = null
    keywords["reader_options"] = reader_options
    keywords["storage_options"] = storage_pairs(storage_options)
    started = time.perf_counter()
    if master is not None or conf:
        result = _on_spark(list(sources), dataset, master, pairs_of("--conf", conf), keywords)
    else:
        result = _here(list(sources), dataset, keywords)
    seconds, shown = time.perf_counter() - started, public(dataset)
    if as_json:
        summary = {
            "dataset": shown,
            "version": result.version,
            "rows": result.rows,
            "files": result.files,
            "bad_records": result.bad_records,
            "job_id": result.job_id,
            "repeated": result.repeated,
            "seconds": round(seconds, 3),
        }
        say(json.dumps(summary))
    elif result.repeated:
        say(f"{shown}: job {result.job_id} was done before: version {result.version}")
    else:
        aside = f", {number_of(result.bad_records, 'bad record')}" if result.bad_records else ""
        say(
            f"{shown}: version {result.version}, {number_of(result.rows, 'row')} from "
            f"{number_of(result.files, 'file')}{aside}, {seconds:.1f} s"
        )


def _here(sources: list[str], dataset: str, keywords: dict[str, Any]) -> IngestResult:
    """Run the tasks in this process, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from glaive.ingestion import ingest

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bars:
        bar = bars.add_task(f"Write {escape(public(dataset))}", total=None)

        def progress(done: int, count: int) -> None:
            bars.update(bar, completed=done, total=count)

        return ingest(sources, dataset, progress=progress, **keywords)


def _on_spark(
    sources: list[str],
    dataset: str,
    master: str | None,
    conf: dict[str, str],
    keywords: dict[str, Any],
) -> IngestResult:
    """Run the tasks on Spark, without its log."""
    from glaive.cli.progress import steps_of_spark
    from glaive.spark import ingest

    with steps_of_spark(to_stderr=True) as steps:
        spark = steps.start_spark(master, "glaive ingest", conf)
        return steps.run(f"Write {dataset}", lambda: ingest(spark, sources, dataset, **keywords))
