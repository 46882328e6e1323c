"""``dataset.changes``: read the rows that versions inserted, updated and deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import in_parts, total_width
from glaive.dataclass import NamedTuple, dataclass
from glaive.dataset.change_plan import (
    ChangedSide,
    ChangeTask,
    Commit,
    CommitSummary,
    RewrittenRows,
    check_range,
    commits,
    plan_commit,
    plan_net,
)
from glaive.dataset.scanner import Scanner
from glaive.dataset.transactions import Transaction, transaction_of
from glaive.dataset.version import find_version
from glaive.errors import OptionError, SchemaError, UnsupportedFeatureError, VersionNotFoundError
from glaive.format.bitmaps import offsets_of
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Feature, Manifest
from glaive.options import integer
from glaive.scan.projection import (
    CREATED_AT,
    ROW_ID,
    SYSTEM_COLUMNS,
    UPDATED_AT,
    SystemColumns,
    column_names,
    project,
    refuse_reserved_names,
)
from glaive.scan.snapshot import Session, Snapshot
from glaive.scan.take import take_physical
from glaive.scan.views import BoundProjection, Views
from glaive.table.load import check_not_replaced
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion


# --- Columns of a change feed in each version that its rows come from -------------------

_ADDED: list[Any] = [
    pa.field("_change_type", pa.string(), nullable=False),
    pa.field("_commit_version", pa.int64(), nullable=False),
    pa.field("_commit_timestamp", pa.timestamp("us", "UTC"), nullable=False),
]
CHANGE_COLUMNS = pa.schema(_ADDED)
"""Columns that a feed adds after the columns of the dataset."""


_SAME_COLUMNS: Final = frozenset(
    {
        "append",
        "create_index",
        "data_replacement",
        "delete",
        "reserve_fragments",
        "rewrite",
        "update",
        "update_bases",
        "update_config",
    }
)
"""Operations that keep the columns of a dataset."""


class ColumnHistory:
    """Columns that field ids of each version mean: writers may reuse ids of dropped columns.

    Add versions in their order. Most versions share the data of the version before.
    """

    def __init__(self) -> None:
        self._since: dict[int, dict[int, int]] = {}
        """By version and id: the version that added the column."""
        self._unknown = 0

    def add(self, commit: Commit) -> None:
        """Add the version that a commit made."""
        before, after, number = commit.before, commit.after, commit.version
        known = {} if before is None else self._columns_of(before)
        if commit.operation == "restore" and commit.transaction is not None:
            restored = commit.transaction.operation.to_wire().version
            if restored in self._since:
                self._since[number] = self._since[restored]
                return
        if before is not None and commit.operation in _SAME_COLUMNS:
            self._since[number] = known
            return
        if before is None or commit.replaced_everything:
            known = {}
        elif commit.operation in (None, "overwrite", "restore") and _renamed(before, after):
            # Unseen versions renamed columns, or reused their ids.
            self._unknown = number
        self._since[number] = {id_: known.get(id_, number) for id_ in after.schema.field_ids()}

    def _columns_of(self, version: Manifest) -> dict[int, int]:
        number = version.version
        if number not in self._since:
            self._since[number] = dict.fromkeys(version.schema.field_ids(), number)
        return self._since[number]

    def replaced(self, before: Manifest | None, after: Manifest) -> frozenset[int]:
        """Return ids that are known to mean different columns in the two versions."""
        others = None if before is None else self.others(before.version, after.version)
        return frozenset() if others is None else others

    def others(self, version: int, reference: int) -> frozenset[int] | None:
        """Return ids that mean different columns in two versions; None if unknown."""
        if min(version, reference) < self._unknown <= max(version, reference):
            return None
        there = self._since[reference]
        mine = self._since[version]
        return frozenset(id_ for id_, since in mine.items() if there.get(id_, since) != since)


def _renamed(before: Manifest, after: Manifest) -> bool:
    """Return whether a field id changed its name."""
    names = {field.id: field.name for field in before.schema.walk()}
    return any(names.get(field.id, field.name) != field.name for field in after.schema.walk())


class Source(NamedTuple):
    """A column of a version.

    Parameters
    ----------
    name
        Name in that version; ``None`` if the version lacks the column.
    members
        The column with the feed's names of its members, if the names differ.
    """

    name: str | None
    members: Field | None


def sources(
    names: Sequence[str],
    wanted: LanceSchema,
    stored: LanceSchema,
    *,
    others: frozenset[int] | None,
    where: str,
) -> list[Source]:
    """Find the values of each column in a version.

    Parameters
    ----------
    names
        Top-level columns of ``wanted``, and system columns.
    wanted, stored
        Schema of the feed, and schema of the version.
    others
        Field ids that mean other columns in the version than in the feed; ``None`` if unknown.

    Raises
    ------
    SchemaError
        A column may have been renamed, which only field ids would show.
    """
    selected = [field for field in wanted.fields if others is not None or field.name in names]
    matched = _Names(others, where).of(selected, stored.fields)
    known = {field.name: (of, field) for of, field in zip(stored.fields, matched, strict=True)}
    found: list[Source] = []
    for name in names:
        if name in SYSTEM_COLUMNS:
            found.append(Source(name, None))
        elif name in known:
            of, field = known[name]
            same = of.children == field.children
            found.append(Source(of.name, None if same else field))
        else:
            found.append(Source(None, None))
    return found


class _Names(NamedTuple):
    """Maps fields of a version to their names in the feed."""

    others: frozenset[int] | None
    where: str

    def of(self, wanted: Sequence[Field], stored: Sequence[Field]) -> list[Field]:
        """Return fields of the version with their names in the feed, or new unique names.

        Fields with equal ids are the same. A field with a new id or another type matches by
        name if the name is unique.
        """
        by_id = {field.id: field for field in wanted if field.id >= 0}
        by_name = {field.name: field for field in wanted}
        same: dict[int, Field] = {}
        if self.others is None:
            self._check(by_id, stored)
        else:
            known = by_id.keys() - self.others
            same = {field.id: by_id[field.id] for field in stored if field.id in known}
        taken = {field.name for field in same.values()}
        made: list[Field] = []
        for field in stored:
            there = same.get(field.id)
            if there is None and field.name not in taken:
                there = by_name.get(field.name)
            if there is not None:
                children = tuple(self.of(there.children, field.children))
                made.append(_with_name(field, there.name, children))
            elif field.name in by_name:
                made.append(_with_name(field, f"{field.name}:{field.id}", field.children))
            else:
                made.append(field)
        return made

    def _check(self, wanted: Mapping[int, Field], stored: Sequence[Field]) -> None:
        """Check that all columns kept their names."""
        names = {field.name for field in stored}
        for field in stored:
            there = wanted.get(field.id)
            if there is not None and there.name not in names:
                raise SchemaError(
                    f"column {there.name!r} does not exist in {self.where}, where {field.name!r} "
                    "may be the same column under another name. Start at a later version, or leave "
                    "the column out"
                )


def _with_name(field: Field, name: str, children: tuple[Field, ...]) -> Field:
    if field.name == name and field.children == children:
        return field
    return replace(field, name=name, children=children)


def fitted(
    array: pa.ChunkedArray, column: pa.Field, members: Field | None, where: str
) -> pa.ChunkedArray:
    """Convert values of an earlier type of a column to the type of the feed.

    Parameters
    ----------
    members
        See :class:`Source`.

    Raises
    ------
    SchemaError
        A value cannot be converted.
    """
    if members is None and array.type == column.type:
        return array
    try:
        if members is not None:
            kind = _with_names(array.type, members)
            chunks: Any = [chunk.view(kind) for chunk in array.chunks]
            array = pa.chunked_array(chunks, kind)
        return array.cast(column.type)
    except pa.ArrowException as error:
        raise SchemaError(
            f"column {column.name!r} is {array.type} in {where} and {column.type} in the feed: "
            f"{error}. Leave the column out, or read changes since its type was changed"
        ) from error


def _with_names(kind: Any, named: Field) -> Any:
    """Return a type with the names that a field gives its members."""
    types, children = pa.types, named.children
    if not children:
        return kind
    if types.is_struct(kind) and kind.num_fields == len(children):
        return pa.struct(
            [
                member.with_name(child.name).with_type(_with_names(member.type, child))
                for member, child in zip(kind, children, strict=True)
            ]
        )
    if types.is_map(kind):
        (entries,) = children
        item = kind.item_field
        item = item.with_type(_with_names(item.type, entries.children[1]))
        return pa.map_(kind.key_field, item, kind.keys_sorted)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = kind.value_field.with_type(_with_names(kind.value_type, children[0]))
        if types.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.list_(item) if types.is_list(kind) else pa.large_list(item)
    return kind


# --- Changed rows of a fragment, and how they changed -----------------------------------

Flags = NDArray[np.bool_]


def changed_rows(task: ChangeTask, here: Snapshot, there: Snapshot | None) -> tuple[Int64s, Flags]:
    """Return the rows that a task must read.

    Parameters
    ----------
    here, there
        The version with the rows, and the version on the other side of the commit.

    Returns
    -------
    tuple
        Physical rows, ascending, and for each whether it was updated. The other rows were deleted
        or inserted.

    Notes
    -----
    A row that both sides have under one id has moved. It is unchanged if both sides record the same
    version as its last update. Without stable row ids a moved row counts as deleted and inserted.
    """
    (position,) = here.positions_of((task.fragment_id,))
    rows = _live(here, position, task.start, task.stop)
    if there is None:
        return rows, np.zeros(len(rows), np.bool_)
    kept = np.zeros(len(rows), np.bool_)
    other = -1
    if task.shared:
        (other,) = there.positions_of((task.fragment_id,))
        kept = np.isin(rows, _live(there, other, task.start, task.stop), assume_unique=True)
    changed, updated = ~kept, np.zeros(len(rows), np.bool_)
    if here.manifest.uses(Feature.STABLE_ROW_IDS) and there.manifest.uses(Feature.STABLE_ROW_IDS):
        moved, same = _moved(here, there, position, rows[changed])
        where = np.flatnonzero(changed)
        updated[where[moved & ~same]] = True
        changed[where[moved & same]] = False
    if task.rewritten is not None:
        rewritten = np.zeros(len(rows), np.bool_)
        rewritten[kept] = _rewritten(task.rewritten, here, there, (position, other), rows[kept])
        changed |= rewritten
        updated |= rewritten
    return rows[changed], updated[changed]


def _live(snapshot: Snapshot, position: int, start: int, stop: int) -> Int64s:
    """Return live rows of a fragment from ``start`` to ``stop``."""
    fragment = snapshot.manifest.fragment(position)
    live = snapshot.live_rows(fragment)
    if live is None:
        snapshot.check_rows(fragment)
        return np.arange(start, stop, dtype=np.int64)
    return live.among(start, stop).astype(np.int64, copy=False)


def _moved(here: Snapshot, there: Snapshot, position: int, rows: Int64s) -> tuple[Flags, Flags]:
    """Return for each row whether the other version has it elsewhere, and unchanged."""
    ids = SystemColumns(here, position).of(ROW_ID, rows)
    versions = SystemColumns(here, position).of(UPDATED_AT, rows)

    def is_deleted(at: int, rows: Int64s) -> Flags | None:
        live = there.live_rows(there.manifest.fragment(at))
        return None if live is None else live.is_deleted(rows)

    fragments, offsets = there.row_id_index.locate(ids, is_deleted)
    same = np.zeros(len(rows), np.bool_)
    for at in np.unique(fragments[fragments >= 0]).tolist():
        in_fragment = fragments == at
        theirs = SystemColumns(there, at).of(UPDATED_AT, offsets[in_fragment])
        same[in_fragment] = theirs == versions[in_fragment]
    return fragments >= 0, same


def _rewritten(
    rewritten: RewrittenRows,
    here: Snapshot,
    there: Snapshot,
    positions: tuple[int, int],
    rows: Int64s,
) -> Flags:
    """Return for each of these rows whether its values were rewritten."""
    if rewritten.by_version:
        mine = SystemColumns(here, positions[0]).of(UPDATED_AT, rows)
        flags: Flags = mine != SystemColumns(there, positions[1]).of(UPDATED_AT, rows)
        return flags
    if rewritten.offsets is None:
        return np.ones(len(rows), np.bool_)
    return np.isin(rows, offsets_of(rewritten.offsets, here.manifest.where))


_MAX_OPEN_VERSIONS: Final = 4
"""Versions to keep open: adjacent tasks read the same two."""

_BATCH_BYTES: Final = 8 << 20
_BATCH_ROWS: Final = 32 * 1024


class ChangeReader:
    """Reads tasks of a change feed. Works in any process that can open the dataset.

    Parameters
    ----------
    dataset
        A version of the dataset.
    schema
        Schema of the feed; default: the schema of ``dataset``.
    columns
        Columns of the dataset, and system columns; default: all columns of the dataset.
    preimages
        Whether to read the old values of updated rows as well.
    batch_size
        Rows per batch; default: at most 32,768 rows and about 8 MiB.

    Raises
    ------
    OptionError
        ``columns`` is not a list of names.
    ColumnNotFoundError
        A column is unknown.
    SchemaError
        The dataset has a column with the name of a column that the feed adds.
    """

    def __init__(
        self,
        dataset: OpenedVersion,
        columns: Sequence[str] | None = None,
        *,
        schema: LanceSchema | None = None,
        preimages: bool = True,
        batch_size: int | None = None,
    ) -> None:
        if isinstance(columns, Mapping):
            raise OptionError("columns: a change feed has columns of the dataset, no expressions")
        names: Any = column_names(columns)
        self._dataset = dataset
        self._wanted = dataset.manifest.schema if schema is None else schema
        self._names: tuple[str, ...] = names or tuple(self._wanted.names)
        rows: Any = (
            dataset.views.take(self._names).schema
            if schema is None
            else project(schema, self._names, nested=True).schema
        )
        taken = [name for name in CHANGE_COLUMNS.names if name in rows.names]
        if taken:
            raise SchemaError(
                f"{dataset.uri} has a column {taken[0]!r}, as the change feed. Select other columns"
            )
        self._columns = [_column(self._wanted, name) for name in self._names]
        # A version that lacks a column has nulls in it.
        fields = [
            field if field.name in SYSTEM_COLUMNS else field.with_nullable(True) for field in rows
        ]
        self.schema = pa.schema([*fields, *CHANGE_COLUMNS])
        """Columns of the dataset, then the columns that describe the change of a row."""
        self._fields = fields
        self._preimages = preimages
        width = max(1.0, total_width(field.type for field in fields).total)
        self._batch_size = batch_size or max(64, min(_BATCH_ROWS, int(_BATCH_BYTES / width)))
        self._versions: dict[int, OpenedVersion] = {}
        self._sources: tuple[tuple[int, frozenset[int] | None], list[Source]] | None = None

    def read(self, task: ChangeTask) -> Iterator[pa.RecordBatch]:
        """Yield the changed rows of a task in batches, in the order of the fragment."""
        here, compared = self._version(task.side.read_version), task.side.compared_version
        there = None if compared is None else self._version(compared)
        other = None if there is None else there.snapshot
        rows, updated = changed_rows(task, here.snapshot, other)
        if not task.side.after and not self._preimages:
            rows, updated = rows[~updated], updated[~updated]
        if not len(rows):
            return
        manifest = here.manifest
        stored = self._sources_of(manifest, task.side.others)
        view = here.views.take(
            tuple(dict.fromkeys(one.name for one in stored if one.name is not None))
        )
        position = manifest.position_of(task.fragment_id)
        for start in range(0, len(rows), self._batch_size):
            part = rows[start : start + self._batch_size]
            taken = _take(view, position, part)
            columns = [
                pa.nulls(len(part), field.type)
                if name is None
                else fitted(taken.column(name), field, members, manifest.where)
                for (name, members), field in zip(stored, self._fields, strict=True)
            ]
            columns += _described(task, updated[start : start + len(part)])
            table = pa.Table.from_arrays(columns, schema=self.schema)
            yield from table.combine_chunks().to_batches()

    def _sources_of(self, manifest: Manifest, others: frozenset[int] | None) -> list[Source]:
        """Return the sources of the columns; tasks of one version follow each other."""
        key = (manifest.version, others)
        if self._sources is None or self._sources[0] != key:
            found = sources(
                self._columns, self._wanted, manifest.schema, others=others, where=manifest.where
            )
            self._sources = (key, found)
        return self._sources[1]

    def _version(self, version: int) -> OpenedVersion:
        opened = self._versions.get(version)
        if opened is None:
            while len(self._versions) >= _MAX_OPEN_VERSIONS:
                del self._versions[next(iter(self._versions))]
            opened = self._dataset.at(version)
            self._versions[version] = opened
        return opened


class ChangeFeed:
    """Changed rows of a range of versions; returned by ``dataset.changes``.

    Rows come version by version, old rows before new rows. You can send :attr:`tasks` to other
    processes, where :class:`ChangeReader` reads them.
    """

    def __init__(self, reader: ChangeReader, tasks: Sequence[ChangeTask]) -> None:
        self._reader = reader
        self.tasks = tasks
        """The parts that can be read independently, in order."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the dataset, then ``CHANGE_COLUMNS``."""
        return self._reader.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the changed rows; read each task when its first batch is asked for."""
        for task in self.tasks:
            yield from self._reader.read(task)

    def to_reader(self) -> pa.RecordBatchReader:
        """Stream the changed rows as an Arrow reader."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Read all changed rows into memory."""
        return self.to_reader().read_all()

    @cached_property
    def estimated_rows(self) -> int:
        """Number of changed rows, from the manifests: exact for whole fragments, else a bound."""
        return sum(task.rows for task in self.tasks)


def _column(schema: LanceSchema, name: str) -> str:
    """Return the column with this name; raise an ``OptionError`` for members of columns."""
    if name in SYSTEM_COLUMNS:
        return name
    column, *members = schema.find(name)
    if members:
        raise OptionError(f"columns: {name!r} is a part of {column.name!r}. Select all of it")
    return column.name


def _take(view: BoundProjection, position: int, rows: Int64s) -> pa.Table:
    """Return ascending rows of a fragment; scan them if they are all rows of a range."""
    if view.projection.outputs:
        bound = view.fragment(position)
        start, stop = int(rows[0]), int(rows[-1]) + 1
        live = stop - start if bound.live is None else bound.live.count_between(start, stop)
        if live == len(rows):
            parts = [
                pa.RecordBatch.from_arrays(arrays, schema=view.schema)
                for arrays in in_parts(bound.read, start, stop)
            ]
            return pa.Table.from_batches(parts, view.schema)
    return take_physical(view, np.full(len(rows), position, np.int64), rows)


def change_feed(
    dataset: OpenedVersion,
    start_version: int,
    end_version: int | None,
    *,
    preimages: bool,
    net: bool,
    **reading: Any,
) -> ChangeFeed:
    """Plan the feed of a range of versions; see ``LanceDataset.changes``.

    ``reading`` are other parameters of :class:`ChangeReader`.
    """
    newest = dataset.manifest
    start, end = check_range(start_version, end_version, newest.version)
    # Otherwise glaive would compare versions of two datasets.
    check_not_replaced(dataset.store, newest)
    first: Manifest | None = None
    last = newest
    tasks: list[ChangeTask] = []
    passed: list[CommitSummary] = []
    columns = ColumnHistory()
    for commit in commits(dataset.store, newest, start, end):
        # Release each manifest when the next is read: each lists all fragments.
        if net and not passed:
            first = commit.before
        last = commit.after
        passed.append(commit.summary)
        columns.add(commit)
        if not net:
            tasks += plan_commit(commit, columns.replaced(commit.before, commit.after))
    reference = dataset if end == newest.version else dataset.at(last)
    reader = ChangeReader(reference, preimages=preimages, **reading)
    if net:
        tasks = plan_net(first, last, passed, columns.replaced(first, last))
    known: dict[ChangedSide, ChangedSide] = {}
    for at, task in enumerate(tasks):
        side = task.side
        if side not in known:
            others = columns.others(side.read_version, last.version)
            known[side] = replace(side, others=others)
        tasks[at] = replace(task, side=known[side])
    return ChangeFeed(reader, tasks)


def _described(task: ChangeTask, updated: np.ndarray[Any, np.dtype[np.bool_]]) -> list[Any]:
    """Return the columns that describe the change of the rows of one batch."""
    kinds = ("insert", "update_postimage") if task.side.after else ("delete", "update_preimage")
    indices: Any = pa.array(updated.view(np.int8))
    types = pa.DictionaryArray.from_arrays(indices, pa.array(kinds)).cast(pa.string())
    rows = len(updated)
    return [
        types,
        _repeated(task.side.commit_version, 1, rows),
        _repeated(task.side.commit_timestamp, 2, rows),
    ]


def _repeated(value: object, column: int, rows: int) -> Any:
    scalar: Any = pa.scalar(value, CHANGE_COLUMNS.types[column])
    return pa.repeat(scalar, rows)


# --- Changes between two versions: transactions, and inserted, updated and deleted rows -

_IDS: Final = pa.schema([pa.field(ROW_ID, pa.uint64())])
_IDS_PER_BATCH: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DatasetDelta:
    """Changes after ``begin_version`` up to ``end_version``; returned by ``dataset.delta``.

    Rows come from the opened version. Only datasets with stable row ids record when rows were
    created and updated. In other datasets all rows count as created by the first version.
    """

    dataset: OpenedVersion
    begin_version: int
    end_version: int

    def list_transactions(self) -> list[Transaction | None]:
        """Return the transactions of the versions, oldest first.

        Makes at most two requests per version, and one to check that the dataset is still the same.

        Raises
        ------
        VersionNotFoundError
            A version is missing.
        CommitConflictError
            Another dataset has replaced this one.
        """
        check_not_replaced(self.dataset.store, self.dataset.manifest)
        wanted = range(self.begin_version + 1, self.end_version + 1)
        return [transaction_of(self.dataset, version) for version in wanted]

    def get_inserted_rows(self) -> pa.RecordBatchReader:
        """Stream the inserted rows, with ``_rowid`` and the versions of each row."""
        return self._rows(
            f"{CREATED_AT} > {self.begin_version} AND {CREATED_AT} <= {self.end_version}"
        )

    def get_updated_rows(self) -> pa.RecordBatchReader:
        """Stream the updated rows, with the same columns as :meth:`get_inserted_rows`."""
        return self._rows(
            f"{CREATED_AT} <= {self.begin_version} AND {UPDATED_AT} > {self.begin_version} "
            f"AND {UPDATED_AT} <= {self.end_version}"
        )

    def get_deleted_row_ids(self) -> pa.RecordBatchReader:
        """Stream the ids of deleted rows, in one column.

        Holds the row ids of both versions in memory.

        Raises
        ------
        UnsupportedFeatureError
            The dataset lacks stable row ids.
        OptionError, VersionNotFoundError
            The range is empty, or a version is missing.
        CommitConflictError
            Another dataset has replaced this one.
        """
        if self.begin_version > self.end_version:
            raise OptionError(
                f"begin_version {self.begin_version} comes after end_version {self.end_version}"
            )
        check_not_replaced(self.dataset.store, self.dataset.manifest)
        before = self._ids(self.begin_version) if self.begin_version else np.empty(0, np.uint64)
        after = self._ids(self.end_version) if len(before) else before
        deleted = before[~np.isin(before, after)]

        def batches() -> Iterator[pa.RecordBatch]:
            for start in range(0, len(deleted), _IDS_PER_BATCH):
                ids: Any = pa.array(deleted[start : start + _IDS_PER_BATCH])
                yield pa.RecordBatch.from_arrays([ids], schema=_IDS)

        return pa.RecordBatchReader.from_batches(_IDS, batches())

    def _rows(self, predicate: str) -> pa.RecordBatchReader:
        names = self.dataset.manifest.schema.names
        system = (ROW_ID, CREATED_AT, UPDATED_AT)
        refuse_reserved_names(self.dataset.manifest.schema, *system)
        columns = [*names, *system]
        scanner = Scanner.of(Views(self.dataset.snapshot), columns=columns, filter=predicate)
        return scanner.to_reader()

    def _ids(self, version: int) -> NDArray[np.uint64]:
        store = self.dataset.store
        manifest = find_version(store, version)
        if not manifest.uses(Feature.STABLE_ROW_IDS):
            raise UnsupportedFeatureError(
                f"version {version} of {store.uri} has no stable row ids, so deleted rows cannot "
                "be listed. Only datasets created with enable_stable_row_ids=True have them."
            )
        refuse_reserved_names(manifest.schema, ROW_ID)
        scanner = Scanner.of(Views(Snapshot(store, manifest, Session())), columns=[ROW_ID])
        ids: NDArray[np.uint64] = scanner.to_table().column(ROW_ID).to_numpy()
        return ids


def compare_versions(
    dataset: OpenedVersion,
    compared_against: int | None,
    begin_version: int | None,
    end_version: int | None,
) -> DatasetDelta:
    """Describe the change from one version to another.

    Raises
    ------
    OptionError
        Give either ``compared_against``, or both ``begin_version`` and ``end_version``.
    VersionNotFoundError
        ``compared_against`` is newer than the opened version.
    """
    ends = (begin_version, end_version)
    if compared_against is not None and ends == (None, None):
        begin_version, end_version = compared_against, dataset.manifest.version
    elif compared_against is not None or begin_version is None or end_version is None:
        half = compared_against is None and ends != (None, None)
        message = "Must specify both with_begin_version and with_end_version: " if half else ""
        raise OptionError(
            f"delta: {message}Must specify either compared_against or both begin_version and "
            f"end_version; found {compared_against=}, {begin_version=}, {end_version=}"
        )
    integer(0).check("begin_version or compared_against", begin_version)
    integer(0).check("end_version", end_version)
    if compared_against is not None and compared_against > dataset.manifest.version:
        raise VersionNotFoundError(
            f"delta: Version not found error: {dataset.uri} has no version {compared_against} "
            f"before version {dataset.manifest.version}, which is open. Compare with an earlier one"
        )
    return DatasetDelta(dataset, begin_version, end_version)
