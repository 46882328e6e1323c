"""Add columns: from expressions, functions or streams, or of nulls.

Each fragment gets one more file with the new columns only; its other files stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.chunked import as_numpy, batch_parts, join_batches, join_column, take_rows
from glaive.arrow.conditions import filled
from glaive.arrow.validation import own_rows, refuse_half_characters
from glaive.config import default_batch_size
from glaive.dataclass import dataclass
from glaive.dataset.columns.column_files import (
    WINDOW_ROWS,
    Batches,
    Grown,
    Shares,
    discard_files,
    for_each,
    grow,
    live_batches,
    physical_rows,
    replace_files,
    replaced_values,
    view_of,
    write_column_file,
    write_live,
)
from glaive.dataset.columns.udf import BatchUDF, Checkpoint, CheckpointFolder, as_batch
from glaive.dataset.tasks import (
    LOCAL,
    FragmentRange,
    Job,
    commit_operation,
    cut_evenly,
    refuse_for_logged_rows,
)
from glaive.dataset.writing.conform import conform, match_schema
from glaive.dataset.writing.rules import refuse_ruled
from glaive.dataset.writing.source import Rows, batches_of, read_source
from glaive.errors import (
    ColumnNotFoundError,
    CommitConflictError,
    CommitContentionError,
    ObjectNotFoundError,
    OptionError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.expr.bind import check_column_texts
from glaive.expr.filters import Value, bind_value, refuse_blob_uses
from glaive.expr.tree import Literal
from glaive.format.bitmaps import bitmap_of
from glaive.format.fields import LanceSchema
from glaive.format.fragment import LEGACY, DataFile, Fragment, FragmentList, check_fragment
from glaive.format.manifest import Manifest
from glaive.format.paths import data_file_path, new_data_file_name
from glaive.format.pb import table_pb2
from glaive.format.rowids import check_at_once
from glaive.format.wire import parse
from glaive.io.store import ObjectStore
from glaive.options import integer
from glaive.scan.projection import ROW_ADDRESS, ROW_ID, SystemColumns, computed_field
from glaive.scan.snapshot import Snapshot
from glaive.table.copying import copy_data_file
from glaive.table.operations.merge import Merge
from glaive.table.references import can_be_committed
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion


# --- Files with new columns of fragments, from tasks to the commit ----------------------


@dataclass(frozen=True, slots=True, eq=False)
class AddedFiles:
    """One more file for some fragments of a version; can be pickled.

    Parameters
    ----------
    positions
        Positions of the fragments in the list of the version; shape ``(files,)``.
    parts
        For each fragment a fragment that has only the new file.
    """

    positions: Int64s
    parts: FragmentList

    @classmethod
    def of(cls, files: Mapping[int, DataFile]) -> Self:
        """Make the value from files by position."""
        positions = np.fromiter(files, np.int64, len(files))
        parts = (Fragment(files=(file,), physical_rows=0) for file in files.values())
        return cls(positions, FragmentList.of(parts))

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """Join the files of several tasks."""
        found = list(parts)
        none = np.empty(0, np.int64)
        positions = np.concatenate([none, *(part.positions for part in found)])
        return cls(positions, FragmentList.joined(part.parts for part in found))

    def __len__(self) -> int:
        return len(self.positions)

    def files(self) -> Iterator[DataFile]:
        """Yield the files."""
        return (file for part in self.parts for file in part.files)

    def added_to(self, manifest: Manifest) -> FragmentList:
        """Return all fragments of the version, with these files.

        Raises
        ------
        CorruptFileError
            A fragment of the manifest is unreadable.
        """
        number = np.full(manifest.num_fragments, -1, np.int64)
        number[self.positions] = np.arange(len(self))
        before, added = manifest.complete_wire.fragments, self.parts.packed

        def grown() -> Iterator[bytes]:
            for position, part in enumerate(number.tolist()):
                if part < 0:
                    yield before[position]
                    continue
                # Protobuf reads concatenated messages as one message, with the files of both.
                both = before[position] + added[part]
                message = parse(table_pb2.DataFragment(), both, "fragment", manifest.where)
                check_fragment(message, manifest.where)
                yield message.SerializeToString()

        return FragmentList(grown())


# --- A file with new columns of a fragment, which an earlier run has finished -----------


def existing_file(store: ObjectStore, file: DataFile) -> DataFile | None:
    """Return the file if the dataset still has it; copy a file that a clean-up may soon delete.

    Makes one request, and at least three more to copy the file with its blobs.
    """
    path = data_file_path(file.path)
    try:
        meta = store.head(path)
        if meta.size != file.size:
            return None
        if can_be_committed(meta):
            return file
        copy = replace(file, path=new_data_file_name())
        copy_data_file(store, path, data_file_path(copy.path))
    except ObjectNotFoundError:
        return None
    return copy


_SYSTEM: Final = (ROW_ID, ROW_ADDRESS)


@dataclass(frozen=True, slots=True)
class _Recipe:
    """The new columns, and how to compute them for a fragment.

    ``write`` is ``None`` for columns of nulls. ``checkpoint`` keeps the files of a failed
    attempt for the next attempt.
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
        See ``LanceDataset.add_columns``.
    checkpoint
        Folder of the results of finished fragments, which a later attempt uses.
    """

    fragments: FragmentRange
    transforms: Any
    read_columns: tuple[str, ...] | None
    batch_size: int | None
    checkpoint: str | None = None

    def execute(self, dataset: OpenDataset) -> AddedFiles:
        """Write files with the new columns, for a later commit."""
        opened = self.fragments.opened(dataset)
        positions = self.fragments.positions(opened)
        recipe = self.recipe(opened, positions)
        return AddedFiles.of(_write_files(opened.snapshot, recipe, positions))

    def recipe(self, opened: OpenedVersion, positions: Sequence[int]) -> _Recipe:
        """Check the input and return how to compute the columns."""
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
        # Schemas lack values, and streams of rows are indivisible.
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
        parts = _divide_for_cores(dataset, parts, job.runner.parallelism)
    tasks = [replace(task, fragments=part) for part in parts]
    added = AddedFiles.joined(job.runner.run(dataset, tasks))
    keep = recipe.checkpoint is not None
    manifest = commit_columns(dataset, recipe.grown, added, keep=keep, job=job)
    if recipe.checkpoint is not None:
        recipe.checkpoint.remove()
    return manifest


def _divide_for_cores(
    dataset: OpenedVersion, parts: Sequence[FragmentRange], cores: int
) -> Sequence[FragmentRange]:
    """Divide work for all cores: a function, such as a model, costs more than its rows suggest."""
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
    """Return one fragment with new columns, uncommitted, and the new schema."""
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
    dataset: OpenedVersion, grown: Grown, files: AddedFiles, *, keep: bool = False, job: Job = LOCAL
) -> Manifest:
    """Commit files with new columns; after a conflict remove them, unless ``keep``."""
    operation = Merge(
        fragments=files.added_to(dataset.manifest),
        schema=grown.schema,
        preserves_nullability=grown.preserves_nullability,
    )
    properties = job.recording(num_fragments=len(files))
    try:
        return commit_operation(dataset, operation, properties=properties, once=job.once)
    except (CommitConflictError, CommitContentionError):  # after other errors they may be used
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
    if batch_size is not None:
        integer(1).check("batch_size", batch_size)
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
    if isinstance(transforms, str | int | None):
        raise OptionError(f"transforms: expected rows or {{'b': 'a+1'}}, found {transforms!r:.50}.")
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
                f"Column expressions must be a string: transforms has {name!r}: {text!r:.60}. "
                "Write expressions as strings, such as {'b': 'a + 1'}."
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
    # When a job resumes, a column of the same name may be another column.
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
                result = _call(udf, batch, schema, f"fragment {fragment.id}, row {start}")
                if checkpoint is not None:
                    checkpoint.keep_batch(fragment, start, result)
            yield result

    def write(position: int) -> DataFile | None:
        fragment = manifest.fragment(position)
        done: DataFile | None = None if checkpoint is None else checkpoint.file(fragment)
        kept = None if done is None else existing_file(snapshot.store, done)
        if kept is not None:
            if checkpoint is not None and kept is not done:
                checkpoint.keep_file(fragment, kept)
            return kept
        made = write_live(snapshot, position, grown.added, rows(position, fragment))
        if checkpoint is not None and made is not None:
            checkpoint.keep_file(fragment, made)
        return made

    # User functions may be unsafe for threads.
    return _Recipe(grown, write, threads=1, checkpoint=checkpoint)


def _call(udf: BatchUDF, batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """Call the user's function; if it raises, add where it was called."""
    try:
        result = udf(batch)
    except Exception as error:
        error.add_note(f"in the function for new columns, for {batch.num_rows} rows from {where}")
        raise
    owned: pa.RecordBatch = own_rows(as_batch(result, schema, batch.num_rows))
    return owned


def _inferred_schema(udf: BatchUDF, batches: Callable[[int], Batches], fragments: int) -> pa.Schema:
    """Return the schema of the function's result for the first row; may compute all its values."""
    for position in range(fragments):
        for _, batch in batches(position):
            return as_batch(udf(batch.slice(0, 1)), None, None).schema
    raise OptionError(
        "output_schema cannot be inferred, because the function cannot be called without rows. "
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


# --- ``merge`` and ``update_columns``: columns from a table, joined by a key ------------


def merge_data(
    dataset: OpenedVersion,
    data: object,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
) -> Manifest:
    """Commit new columns from a table, joined by a key; see ``LanceDataset.merge``."""
    snapshot = dataset.snapshot
    lookup = _Lookup.of(snapshot, data, left_on, right_on, schema)
    grown, files = _write(snapshot, lookup, range(snapshot.manifest.num_fragments))
    return commit_columns(dataset, grown, AddedFiles.of(files))


def merge_into_fragment(
    snapshot: Snapshot,
    position: int,
    data: object,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
) -> tuple[Fragment, Grown]:
    """Add columns of a table to one fragment, uncommitted; return it and the new schema."""
    lookup = _Lookup.of(snapshot, data, left_on, right_on, schema)
    grown, files = _write(snapshot, lookup, (position,))
    fragment = snapshot.manifest.fragment(position)
    more = [files[position]] if position in files else []
    return replace(fragment, files=(*fragment.files, *more)), grown


def _write(
    snapshot: Snapshot, lookup: _Lookup, positions: Sequence[int]
) -> tuple[Grown, dict[int, DataFile]]:
    columns = lookup.columns
    taken = [name for name in columns.names if name in snapshot.manifest.schema.by_name]
    if taken:
        raise SchemaError(
            f"Column {taken[0]} exists in both sides of the dataset: column {taken[0]!r} exists in "
            "the dataset and in the rows to be joined. Rename or drop one of the two; to change "
            "its values, use update_columns or merge_insert."
        )
    grown = grow(snapshot.manifest, columns)
    matched = dict(zip(positions, lookup.find(snapshot, positions), strict=True))
    strict = [column.name for column in columns if not column.nullable]
    missing = sum(int((rows < 0).sum()) for rows in matched.values())
    if strict and missing:
        raise SchemaError(
            f"column {strict[0]!r} is not nullable, but {missing} rows of the dataset have no "
            "match in the joined rows. Make it nullable."
        )
    values = lookup.rows.select(columns.names)

    def write(position: int) -> DataFile | None:
        return write_live(snapshot, position, grown.added, taken_rows(values, matched[position]))

    return grown, for_each(snapshot, write, positions=positions)


def taken_rows(values: pa.Table, rows: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """Yield the rows at these positions, nulls for -1, in windows."""
    for start in range(0, len(rows), WINDOW_ROWS):
        yield from join_batches(take_rows(values, rows[start : start + WINDOW_ROWS]))


def update_columns(
    snapshot: Snapshot,
    position: int,
    data: object,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
) -> tuple[Fragment, list[int], bytes]:
    """Set values in one fragment from table rows with the same key.

    Returns
    -------
    tuple
        The fragment; ids of the rewritten fields; and the physical rows with new values, as a
        roaring bitmap in the portable layout.
    """
    manifest = snapshot.manifest
    lookup = _Lookup.of(snapshot, data, left_on, right_on, schema)
    columns = _columns_of(lookup, snapshot)
    refuse_ruled(manifest, columns.names, "written without their rows", own=True)
    fragment = manifest.fragment(position)
    (rows,) = lookup.find(snapshot, (position,))
    live = snapshot.live_rows(fragment)
    offsets = np.flatnonzero(rows >= 0)
    offsets = offsets if live is None else live.physical(offsets)
    wanted = take_rows(lookup.rows.select(columns.names), rows[rows >= 0])
    values: Any = conform(wanted, columns.to_arrow())
    view = view_of(snapshot, columns.names)
    batches = replaced_values(physical_rows(view, position), offsets, values)
    file = write_column_file(snapshot, fragment, columns, batches)
    matched = bitmap_of(offsets.astype(np.uint32))
    return replace_files(fragment, file), list(file.fields), matched


def _columns_of(lookup: _Lookup, snapshot: Snapshot) -> LanceSchema:
    """Return the columns of the dataset for which a table has complete values."""
    schema = snapshot.manifest.schema
    known = [name for name in lookup.columns.names if name in schema.by_name]
    for name in lookup.columns.names:
        if name not in schema.by_name:
            raise SchemaError(
                f"update_columns: Column {name} in right side fragment does not exist in left side "
                "fragment. It replaces values of existing columns; add_columns makes new columns"
            )
    part = schema.project(known)
    if match_schema(lookup.columns, part, where=snapshot.store.uri) != part:
        raise SchemaError("update_columns: the rows lack members of structs; give complete columns")
    return part


@dataclass(frozen=True, slots=True)
class _Lookup:
    """The right side of a left join by a key, and the key column of the dataset."""

    rows: pa.Table
    left: str
    right: str

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        data: object,
        left_on: str,
        right_on: str | None,
        schema: pa.Schema | None,
    ) -> _Lookup:
        """Read all rows into memory, and check the keys."""
        right = left_on if right_on is None else right_on
        kind, rows = read_source(data, schema)
        if left_on not in snapshot.manifest.schema.names and left_on not in _SYSTEM:
            names = [*snapshot.manifest.schema.names, *_SYSTEM]
            raise ColumnNotFoundError.among(left_on, names, where="the left side dataset")
        if right not in kind.names:
            raise ColumnNotFoundError.among(right, kind.names, where="the rows to be joined")
        if len(kind.names) < 2:
            raise OptionError(
                f"the rows to be joined have no column but the key {right!r}; expected columns to "
                "take values from"
            )
        wanted = (
            pa.uint64()
            if left_on in _SYSTEM
            else snapshot.manifest.schema.to_arrow().field(left_on).type
        )
        key_type = kind.field(right).type
        if not key_type.equals(wanted):
            raise SchemaError(
                f"Index column type mismatch: key column {right!r} is {key_type}, but "
                f"{left_on!r} of the dataset is {wanted}. Cast it first."
            )
        joined = join_batches(pa.Table.from_batches(list(batches_of(rows)), kind))
        return cls(pa.Table.from_batches(joined, kind), left_on, right)

    @property
    def columns(self) -> pa.Schema:
        """The columns to take values from."""
        return pa.schema([field for field in self.rows.schema if field.name != self.right])

    def find(self, snapshot: Snapshot, positions: Sequence[int]) -> list[NDArray[np.int64]]:
        """Return the matching row for each live row of the fragments, or -1.

        Of several rows with the same key the last is used. Null is a key like any other.
        """
        keys: Any = join_column(self.rows.column(self.right))
        backwards = keys[::-1]
        parts = [self._keys_of(snapshot, position) for position in positions]
        try:
            cast = [chunk.cast(keys.type) for part in parts for chunk in part]
            at: Any = pc.index_in(pa.chunked_array(cast, keys.type), value_set=backwards)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SchemaError(
                f"key column {self.left!r} of type {keys.type} cannot be joined by: {error}"
            ) from error
        matched = as_numpy(filled(at, -1)).astype(np.int64)
        rows = np.where(matched < 0, -1, len(keys) - 1 - matched)
        ends = np.cumsum([sum(map(len, part)) for part in parts])
        return np.split(rows, ends[:-1]) if parts else []

    def _keys_of(self, snapshot: Snapshot, position: int) -> list[Any]:
        """Return values of the key for the live rows of a fragment."""
        fragment = snapshot.manifest.fragment(position)
        if self.left in _SYSTEM:
            snapshot.check_rows(fragment)
            check_at_once(fragment.physical_rows, snapshot.manifest.where)
            live = snapshot.live_rows(fragment)
            rows = np.arange(fragment.physical_rows) if live is None else live.among(0, live.rows)
            return [pa.array(SystemColumns(snapshot, position).of(self.left, rows))]
        view = view_of(snapshot, [self.left])
        kept = snapshot.live_rows(fragment)
        arrays, start = [], 0
        for batch in physical_rows(view, position):
            array: Any = batch.column(0)
            stop = start + len(array)
            arrays.append(array if kept is None else kept.keep(start, stop, [array])[0])
            start = stop
        return arrays
