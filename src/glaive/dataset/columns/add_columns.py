"""``dataset.add_columns``: new columns from expressions, functions, streams, or without values.

Each fragment gets one more file, which holds the new columns only; nothing is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from glaive.arrow.capacity import batch_parts
from glaive.arrow.own_memory import own_rows
from glaive.arrow.utf8 import refuse_half_characters
from glaive.config import default_batch_size
from glaive.dataclass import dataclass
from glaive.dataset.columns.added_files import AddedFiles
from glaive.dataset.columns.checkpoint_folder import CheckpointFolder
from glaive.dataset.columns.column_files import discard_files, for_each, view_of
from glaive.dataset.columns.finished_file import still_there
from glaive.dataset.columns.live_columns import Batches, Shares, live_batches, write_live
from glaive.dataset.columns.logged_rows import refuse_for_logged_rows
from glaive.dataset.columns.new_columns import Grown, grow
from glaive.dataset.columns.udf import BatchUDF, Checkpoint, as_batch
from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.tasks import LOCAL, FragmentRange, Job, cut_evenly
from glaive.dataset.writing.source import Rows, read_source
from glaive.errors import (
    CommitConflictError,
    CommitContentionError,
    OptionError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.expr.blob_uses import refuse_blob_uses
from glaive.expr.filters import Value, bind_value
from glaive.expr.names import check_column_texts
from glaive.expr.tree import Literal
from glaive.format.fragment import LEGACY, DataFile, Fragment
from glaive.format.manifest import Manifest
from glaive.scan.nullability import computed_field
from glaive.scan.snapshot import Snapshot
from glaive.scan.system_columns import ROW_ADDRESS, ROW_ID
from glaive.table.operations.merge import Merge

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion

__all__ = ["ColumnsTask", "add_columns", "commit_columns", "make_columns"]

_SYSTEM: Final = (ROW_ID, ROW_ADDRESS)


@dataclass(frozen=True, slots=True)
class _Recipe:
    """The new columns, and how to compute them for a fragment.

    ``write`` is ``None`` if the columns have no values; ``checkpoint`` keeps the files of a
    failed attempt for the next one.
    """

    grown: Grown
    write: Callable[[int], DataFile | None] | None
    threads: int | None = None
    checkpoint: Checkpoint | CheckpointFolder | None = None


@dataclass(frozen=True, slots=True)
class ColumnsTask:
    """Compute new columns for some fragments; can be pickled if its function can.

    Parameters
    ----------
    transforms
        Expressions by name, or a function with a known schema.
    read_columns, batch_size
        As for ``LanceDataset.add_columns``.
    checkpoint
        Folder of finished fragments, which are not computed again.
    """

    fragments: FragmentRange
    transforms: Any
    read_columns: tuple[str, ...] | None
    batch_size: int | None
    checkpoint: str | None = None

    def execute(self, dataset: OpenDataset) -> AddedFiles:
        """Write files with the new columns, uncommitted."""
        opened = self.fragments.opened(dataset)
        positions = self.fragments.positions(opened)
        recipe = self.recipe(opened, positions)
        return AddedFiles.of(_write_files(opened.snapshot, recipe, positions))

    def recipe(self, opened: OpenedVersion, positions: Sequence[int]) -> _Recipe:
        """What is to be computed, checked."""
        given = (self.transforms, self.read_columns, None, self.batch_size, positions)
        folder = None if self.checkpoint is None else (self.checkpoint, opened.storage_options)
        return _recipe(opened.snapshot, *given, folder=folder)


def add_columns(
    dataset: OpenedVersion,
    transforms: Any,
    read_columns: Sequence[str] | None,
    reader_schema: pa.Schema | None,
    batch_size: int | None,
    *,
    checkpoint: str | None = None,
    job: Job = LOCAL,
) -> Manifest:
    """Commit new columns; see ``LanceDataset.add_columns``.

    ``checkpoint`` is a folder that the tasks of a job share.
    """
    snapshot = dataset.snapshot
    positions = range(snapshot.manifest.num_fragments)
    if not isinstance(transforms, Mapping) and not callable(transforms):
        # Schemas have no values, and streams of rows cannot be divided among tasks.
        recipe = _recipe(snapshot, transforms, read_columns, reader_schema, batch_size, positions)
        files = _write_files(snapshot, recipe, positions)
        return commit_columns(dataset, recipe.grown, AddedFiles.of(files), job=job)
    if callable(transforms) and not isinstance(transforms, BatchUDF):
        transforms = BatchUDF(transforms)
    wanted = None if read_columns is None else tuple(read_columns)
    whole = FragmentRange(snapshot.manifest.version)
    task = ColumnsTask(whole, transforms, wanted, batch_size, checkpoint)
    recipe = task.recipe(dataset, positions)  # before any task
    parts = job.runner.parts(dataset)
    if isinstance(transforms, BatchUDF):
        parts = _for_all_cores(dataset, parts, job.runner.parallelism)
    tasks = [replace(task, fragments=part) for part in parts]
    added = AddedFiles.joined(job.runner.run(dataset, tasks))
    keep = recipe.checkpoint is not None
    manifest = commit_columns(dataset, recipe.grown, added, keep=keep, job=job)
    if recipe.checkpoint is not None:
        recipe.checkpoint.remove()
    return manifest


def _for_all_cores(
    dataset: OpenedVersion, parts: Sequence[FragmentRange], cores: int
) -> Sequence[FragmentRange]:
    """Parts for a function, such as a model: it costs much more than the bytes of its rows tell."""
    manifest = dataset.manifest
    if len(parts) >= min(cores, manifest.num_fragments):
        return parts
    cuts = cut_evenly(manifest.physical_rows, cores)
    return [FragmentRange(manifest.version, start, stop) for start, stop in pairwise(cuts)]


def make_columns(
    snapshot: Snapshot,
    position: int,
    transforms: Any,
    read_columns: Sequence[str] | None,
    reader_schema: pa.Schema | None,
    batch_size: int | None,
) -> tuple[Fragment, Grown]:
    """One fragment with new columns, uncommitted, and the resulting schema."""
    if isinstance(transforms, BatchUDF) and transforms.checkpoint_file is not None:
        raise OptionError(
            "checkpoint_file is only for LanceDataset.add_columns. Leave it out for one fragment "
            "and keep the result of merge_columns."
        )
    recipe = _recipe(snapshot, transforms, read_columns, reader_schema, batch_size, (position,))
    files = _write_files(snapshot, recipe, (position,))
    fragment = snapshot.manifest.fragment(position)
    if position in files:
        fragment = replace(fragment, files=(*fragment.files, files[position]))
    return fragment, recipe.grown


def commit_columns(
    dataset: OpenedVersion,
    grown: Grown,
    files: AddedFiles,
    *,
    keep: bool = False,
    job: Job = LOCAL,
) -> Manifest:
    """Commit files with new columns; after a conflict they are removed, unless ``keep``."""
    operation = Merge(
        fragments=files.added_to(dataset.manifest),
        schema=grown.schema,
        preserves_nullability=grown.preserves_nullability,
    )
    properties = job.recording(num_fragments=len(files))
    try:
        return commit_operation(dataset, operation, properties=properties, once=job.once)
    except (CommitConflictError, CommitContentionError):  # after others a version may have them
        if not keep:
            discard_files(dataset.snapshot, files.files())
        raise


def _write_files(
    snapshot: Snapshot, recipe: _Recipe, positions: Sequence[int]
) -> dict[int, DataFile]:
    if recipe.write is None or not recipe.grown.added.fields:
        return {}
    keep = recipe.checkpoint is not None
    threads = recipe.threads
    return for_each(snapshot, recipe.write, positions=positions, threads=threads, keep=keep)


def _recipe(
    snapshot: Snapshot,
    transforms: Any,
    read_columns: Sequence[str] | None,
    reader_schema: pa.Schema | None,
    batch_size: int | None,
    positions: Sequence[int],
    *,
    folder: tuple[str, Mapping[str, str] | None] | None = None,
) -> _Recipe:
    size: object = batch_size
    if size is not None and (not isinstance(size, int) or size < 1):
        raise OptionError(f"batch_size: expected a number ≥ 1, found {size!r}")
    if isinstance(transforms, pa.Field):
        transforms = [transforms]
    if isinstance(transforms, list) and transforms and isinstance(transforms[0], pa.Field):
        transforms = pa.schema(transforms)
    if isinstance(transforms, pa.Schema):
        return _without_values(snapshot, transforms)
    refuse_for_logged_rows(snapshot.manifest, "columns with values cannot be added")
    if isinstance(transforms, Mapping):
        return _expressions(snapshot, transforms, batch_size)
    if callable(transforms) and not isinstance(transforms, BatchUDF):
        transforms = BatchUDF(transforms)
    if isinstance(transforms, BatchUDF):
        return _function(snapshot, transforms, read_columns, batch_size, folder)
    schema, rows = read_source(transforms, reader_schema)
    return _stream(snapshot, schema, rows, positions)


# ------------------------------------------------------------------ kinds


def _without_values(snapshot: Snapshot, schema: pa.Schema) -> _Recipe:
    if snapshot.manifest.data_format == LEGACY:
        raise UnsupportedFeatureError(
            "columns without values are not possible in format 0.1. Give them values, or rewrite "
            "the dataset in a later format."
        )
    grown = grow(snapshot.manifest, schema)
    for field in schema:
        if not field.nullable:
            raise SchemaError(
                f"All-null columns must be nullable: column {field.name!r} is not nullable, but "
                "would have no values. Make it nullable, or give it values with an expression."
            )
    return _Recipe(grown, None)


def _expressions(
    snapshot: Snapshot, transforms: Mapping[Any, Any], batch_size: int | None
) -> _Recipe:
    schema = snapshot.manifest.schema
    values: dict[str, Value] = {}
    for name, text in transforms.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise OptionError(
                "Column expressions must be a string: transforms: expected names and expressions "
                f"as strings, such as {{'b': 'a + 1'}}, found {name!r}: {text!r:.60}"
            )
        check_column_texts(schema, text)
        values[name] = bind_value(text, schema)
        refuse_blob_uses(values[name].expression, schema.fields, f"new column {name!r}")

    def nullable(path: str) -> bool:
        return any(field.nullable for field in schema.find(path))

    with refuse_half_characters("name of a column"):
        fields = [
            computed_field(name, value.type, value.expression, nullable)
            for name, value in values.items()
        ]
    grown = grow(snapshot.manifest, pa.schema(fields))
    constants = [value.expression for value in values.values()]
    if snapshot.manifest.data_format != LEGACY and all(
        isinstance(one, Literal) and one.value is None for one in constants
    ):
        return _Recipe(grown, None)
    needed = sorted({path for value in values.values() for path in value.columns})
    view = view_of(snapshot, needed)

    def evaluated(batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [value.evaluate(batch) for value in values.values()]
        return pa.RecordBatch.from_arrays(arrays, names=list(values))

    def write(position: int) -> DataFile | None:
        batches = live_batches(snapshot, view, position, (), batch_size)
        rows = (part for _, batch in batches for part in batch_parts(evaluated, batch))
        return write_live(snapshot, position, grown.added, rows)

    return _Recipe(grown, write)


def _function(
    snapshot: Snapshot,
    udf: BatchUDF,
    read_columns: Sequence[str] | None,
    batch_size: int | None,
    folder: tuple[str, Mapping[str, str] | None] | None,
) -> _Recipe:
    manifest = snapshot.manifest
    wanted = manifest.schema.names if read_columns is None else list(read_columns)
    system = tuple(name for name in _SYSTEM if name in wanted)
    view = view_of(snapshot, [name for name in wanted if name not in _SYSTEM], blobs="values")
    window = batch_size or default_batch_size()

    def batches(position: int) -> Batches:
        return live_batches(snapshot, view, position, system, window)

    if udf.output_schema is None:
        udf.output_schema = _inferred_schema(udf, batches, manifest.num_fragments)
    schema = udf.output_schema
    grown = grow(manifest, schema)
    ids = [(field.id, field.name, field.logical_type) for field in grown.added.walk()]
    # A column of the same name may be another one by the time that the job is resumed.
    read = [manifest.schema.find(name)[-1].id for name in wanted if name not in _SYSTEM]
    named = f"{ids} {wanted} {read} {window}"
    checkpoint: Checkpoint | CheckpointFolder | None = None
    if folder is not None:
        checkpoint = CheckpointFolder.open(folder[0], named, folder[1])
    elif udf.checkpoint_file is not None:
        checkpoint = Checkpoint.open(udf.checkpoint_file, named)

    def rows(position: int, fragment: Fragment) -> Iterator[pa.RecordBatch]:
        for start, batch in batches(position):
            result = None if checkpoint is None else checkpoint.batch(fragment, start)
            if result is None:
                result = _called(udf, batch, schema, f"fragment {fragment.id}, row {start}")
                if checkpoint is not None:
                    checkpoint.keep_batch(fragment, start, result)
            yield result

    def write(position: int) -> DataFile | None:
        fragment = manifest.fragment(position)
        done: DataFile | None = None if checkpoint is None else checkpoint.file(fragment)
        kept = None if done is None else still_there(snapshot, fragment, grown.added, done)
        if kept is not None:
            if checkpoint is not None and kept is not done:
                checkpoint.keep_file(fragment, kept)
            return kept
        made = write_live(snapshot, position, grown.added, rows(position, fragment))
        if checkpoint is not None and made is not None:
            checkpoint.keep_file(fragment, made)
        return made

    # User functions need not be thread-safe.
    return _Recipe(grown, write, threads=1, checkpoint=checkpoint)


def _called(udf: BatchUDF, batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """The result of the user's function; where it was called, if it raises."""
    try:
        result = udf(batch)
    except Exception as error:
        error.add_note(f"in the function for new columns, for {batch.num_rows} rows from {where}")
        raise
    owned: pa.RecordBatch = own_rows(as_batch(result, schema, batch.num_rows))
    return owned


def _inferred_schema(udf: BatchUDF, batches: Callable[[int], Batches], fragments: int) -> pa.Schema:
    """Schema of the function's result for the first row; it may have values for all rows."""
    for position in range(fragments):
        for _, batch in batches(position):
            return as_batch(udf(batch.slice(0, 1)), None, None).schema
    raise OptionError(
        "output_schema cannot be inferred, because there are no rows to call the function with. "
        "Specify it: batch_udf(output_schema=...)"
    )


def _stream(
    snapshot: Snapshot, schema: pa.Schema, rows: Iterator[Rows], positions: Sequence[int]
) -> _Recipe:
    grown = grow(snapshot.manifest, schema)
    shares = Shares(rows, int(snapshot.live_counts[list(positions)].sum()))
    if not positions:
        shares.end()

    def write(position: int) -> DataFile | None:
        count = int(snapshot.live_counts[position])

        def share() -> Iterator[pa.RecordBatch]:
            yield from shares.take(count)
            if position == positions[-1]:
                shares.end()

        return write_live(snapshot, position, grown.added, share())

    return _Recipe(grown, write, threads=1)
