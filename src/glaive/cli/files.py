"""Commands for files of other formats: ``convert``, and ``ingest`` for many at once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

from glaive.cli.options import SCAN, command, options_of, pairs_of, storage_option, storage_pairs
from glaive.cli.output import KINDS, echo, json_line, number_of, print_json, public, replacing
from glaive.errors import FormatError, SchemaError

if TYPE_CHECKING:
    from glaive.ingestion import IngestResult
    from glaive.ingestion.sources import SourceFile, SourceFormat

_BATCH_BYTES = 64 << 20
_KIND = click.Choice(sorted(set(KINDS.values())))


@command(
    "glaive convert flights.parquet flights.lance",
    "glaive convert flights.lance flights.csv --filter \"carrier = 'UA'\"",
    "glaive convert old.lance new.lance --format-version 2.2",
    opens=None,
)
@click.argument("source")
@click.argument("target")
@storage_option
@click.option("--from", "source_kind", type=_KIND, help="Format of SOURCE. Default: by its suffix.")
@click.option("--to", "target_kind", type=_KIND, help="Format of TARGET. Default: by its suffix.")
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

    One process converts batch by batch, in bounded memory. If SOURCE is a folder, its files become
    one TARGET. It has the columns of all files, types that hold all values, and a column for
    folders such as day=1. Each file is read once, also if several symlinks name it; symlinks to
    folders are skipped. Columns of JSON come from the first 4 MiB of each file; a later new name is
    an error. Blobs stay blobs in a Lance TARGET and become bytes in other formats.
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
            raise click.ClickException(f"{Path(target).parent} is not a folder. Create it")
        rows = write_file(reader, Path(target), want)
    if as_json:
        print_json({"source": public(source), "target": public(target), "rows": rows})
    else:
        echo(f"{number_of(rows, 'row')} written to {public(target)}")


def _kind(path: str, option: str) -> str:
    kind = KINDS.get(Path(path.rstrip("/")).suffix.lower())
    if kind is None and option == "--from" and Path(path).is_dir():
        raise click.UsageError(f"{path} is a folder. Name its format, as in --from parquet")
    if kind is None:
        raise click.UsageError(f"{option}: {path} has an unknown suffix. Use {', '.join(KINDS)}")
    return kind


def _reader(
    source: str, kind: str, columns: Any, condition: str | None, storage: dict[str, str] | None
) -> tuple[pa.RecordBatchReader, pa.Schema]:
    """Return the rows of the source, and their columns as for a dataset, with blobs marked."""
    if kind != "lance" and not Path(source).exists():
        raise click.ClickException(f"{source} does not exist. Name a file or a folder")
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
    from glaive.arrow.validation import damaged_text
    from glaive.ingestion.formats import format_named
    from glaive.ingestion.sources import Piece, Rejects
    from glaive.ingestion.task import conformed, whole_rows

    chosen = kind == "json" and columns is not None  # else an unknown member is an error
    source_format = format_named(kind, {"ignore_unknown": True} if chosen else {})
    files = _files_of(source)
    schema = _columns_of(source, files, source_format, columns)

    def rows() -> Iterator[pa.RecordBatch]:
        for file in files:
            piece = Piece(file, 0, None, file.size)
            for part in whole_rows(piece, source_format, schema, Rejects(keep=False)):
                for batch in conformed(part, schema):
                    # Parquet passes on invalid UTF-8.
                    fault = next(filter(None, map(damaged_text, batch.columns)), None)
                    if fault is not None:
                        raise FormatError(f"{file.uri} is damaged: {fault}")
                    yield batch

    return pa.RecordBatchReader.from_batches(schema, rows()), schema


def _columns_of(
    source: str, files: list[SourceFile], source_format: SourceFormat, columns: list[str] | None
) -> pa.Schema:
    """Return the columns of all files and of names of folders; the types hold all values."""
    from glaive.ingestion.plan import columns_of_folders, reconcile, schema_of, with_folders

    folders = columns_of_folders(files, None, "add", chosen=False)
    given = (with_folders(folders, file, schema_of(source_format, file)) for file in files)
    wanted = (
        schema if columns is None else pa.schema([one for one in schema if one.name in columns])
        for schema in given
    )
    typed, named = source_format.typed, source_format.named
    try:
        found = reconcile(zip(files, wanted, strict=True), None, "add", typed=typed, named=named)
    except SchemaError as error:
        message = f"{error}".partition(" Pass schema=")[0]
        raise FormatError(f"{message} Convert such files separately") from error
    if columns is None:
        return found.schema
    if unknown := [name for name in columns if name not in found.schema.names]:
        raise FormatError(f"{source}: column {unknown[0]!r} is missing")
    return pa.schema([found.schema.field(name) for name in columns])


def _files_of(source: str) -> list[SourceFile]:
    """Return a file, or the files below a folder by name, each once; skip symlinks to folders."""
    from glaive.ingestion.sources import file_at, files_in

    if not Path(source).is_dir():
        return [file_at(source)]
    found = sorted(files_in(source, {}), key=attrgetter("path"), reverse=True)
    if not found:
        raise click.ClickException(f"{source} has no files")
    return list({os.path.realpath(file.uri): file for file in found}.values())[::-1]


def write_file(reader: pa.RecordBatchReader, target: Path, kind: str) -> int:
    """Write rows to a file, which replaces an existing one; return the number of rows."""
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
    "glaive ingest in/ orders.lance --mode append --once",
    "glaive ingest items.parquet items.lance --vector embedding:128:float16",
    "glaive ingest photos/ photos.lance --format images --bad-records broken.lance",
    "glaive ingest s3://in/2026/ s3://out/t.lance --format csv --master spark://host:7077",
    opens=None,
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("dataset")
@storage_option
@options_of(_INGEST, "format", "mode", "merge_keys", "once", "schema", "schema_drift")
@click.option("--null", help="CSV: the text that means null, such as NA.")
@options_of(
    _INGEST, "vectors", flags=["--vector"], multiple=True, type=str, metavar="COLUMN:DIM[:TYPE]"
)
@options_of(_INGEST, "bad_records", "job_id")
@click.option(
    "--master", help="Spark cluster to run on, such as spark://host:7077. Default: this process."
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
    The work is cut into tasks, which run on the cores of this machine, or on Spark with --master.
    One commit at the end makes the version.
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
        result = _run_locally(list(sources), dataset, keywords)
    seconds, shown = time.perf_counter() - started, public(dataset)
    if as_json:
        print_json({"dataset": shown, **asdict(result), "seconds": round(seconds, 3)})
    elif result.repeated:
        echo(f"{shown}: job {result.job_id} was done before: version {result.version}")
    else:
        text = f", {number_of(result.bad_records, 'bad record')}" if result.bad_records else ""
        if result.changed:
            text += f", {number_of(result.changed, 'changed file')} left out"
        echo(
            f"{shown}: version {result.version}, {number_of(result.rows, 'row')} from "
            f"{number_of(result.files, 'file')}{text}, {seconds:.1f} s"
        )


def _run_locally(sources: list[str], dataset: str, keywords: dict[str, Any]) -> IngestResult:
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
    """Run the tasks on Spark; hide its log."""
    from glaive.cli.progress import steps_of_spark
    from glaive.spark import ingest

    with steps_of_spark(to_stderr=True) as steps:
        spark = steps.start_spark(master, "glaive ingest", conf)
        return steps.run(f"Write {dataset}", lambda: ingest(spark, sources, dataset, **keywords))
