"""Change a dataset in three steps: a plan, tasks that can run anywhere, and one commit.

A task is a value that can be pickled. It names the version and the fragments that it reads. It
writes new files under fresh names and returns a small description of them. Only the commit makes
the files visible. So a task may run twice, or continue after the commit: readers see only committed
files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.errors import OptionError, SchemaError
from glaive.format.field import PRIMARY_KEY, is_primary_key
from glaive.format.manifest import Manifest
from glaive.format.transaction import Transaction
from glaive.io.pool import task_bytes
from glaive.table.commit import commit_transaction
from glaive.table.configuration import string_map
from glaive.table.operations.update_config import UpdateConfig
from glaive.table.protocol import CommitOptions, TableOperation

# --- Commit an operation that was made for an opened version ----------------------------


def commit_operation(
    dataset: OpenedVersion,
    operation: TableOperation,
    *,
    properties: Mapping[str, str] | None = None,
    once: str | None = None,
    options: CommitOptions | None = None,
) -> Manifest:
    """Commit an operation that was built for this version.

    Parameters
    ----------
    properties, once
        Entries of the transaction, and the key that identifies the commit; see
        :func:`glaive.table.commit.commit_transaction`.

    Raises
    ------
    CommitConflictError
        Another writer changed the same thing meanwhile.
    """
    manifest = dataset.manifest
    transaction = Transaction(
        read_version=manifest.version, operation=operation, properties=dict(properties or {})
    )
    return commit_transaction(dataset.store, transaction, base=manifest, once=once, options=options)


JOB = "glaive.job"
"""Transaction property that holds the id of a job."""

COUNTS = "glaive.counts"
"""Transaction property with the counts of a job, as JSON."""

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Task(Protocol[R_co]):
    """Part of a change; can be pickled."""

    def execute(self, dataset: OpenDataset) -> R_co:
        """Do the work and return input for the commit; ``dataset`` may be at another version."""


class SharingTask(Protocol[R_co]):
    """A task with a large input that all tasks of its job share."""

    def execute(self, dataset: OpenDataset, shared: Any) -> R_co:
        """Do the work and return input for the commit."""


@dataclass(frozen=True, slots=True)
class FragmentRange:
    """Neighbouring fragments of one version, by their positions in its list.

    Parameters
    ----------
    read_version
        The version.
    start, stop
        The first position, and the position after the last; ``None`` for all fragments.
    """

    read_version: int
    start: int = 0
    stop: int | None = None

    def opened(self, dataset: OpenDataset) -> OpenedVersion:
        """Return the version.

        Raises
        ------
        VersionNotFoundError
            The version was cleaned up.
        """
        return opened_at(dataset, self.read_version)

    def positions(self, opened: OpenedVersion) -> range:
        """Return the positions of the fragments."""
        count = opened.manifest.num_fragments
        return range(self.start, count if self.stop is None else min(self.stop, count))

    def ids(self, opened: OpenedVersion) -> tuple[int, ...] | None:
        """Return the ids of the fragments; ``None`` for all fragments of the version."""
        positions = self.positions(opened)
        if len(positions) == opened.manifest.num_fragments:
            return None
        return tuple(opened.manifest.fragment_ids[positions.start : positions.stop].tolist())


def opened_at(dataset: OpenDataset, version: int) -> OpenedVersion:
    """Return the version that a task names, from a dataset that may be at another version.

    Raises
    ------
    VersionNotFoundError
        The version was cleaned up.
    """
    opened = dataset.opened
    return opened if opened.manifest.version == version else opened.at(version)


def cut_evenly(rows: Any, parts: int) -> list[int]:
    """Return positions that cut fragments into at most ``parts`` parts of about equal rows."""
    fragments = len(rows)
    wanted = min(parts, fragments)
    if wanted < 2:
        return [0, fragments] if fragments else [0]
    # Fragments without rows also have files to open; float64 cannot overflow.
    ends = np.cumsum(rows.astype(np.float64) + 1)
    targets = ends[-1] * np.arange(1, wanted) / wanted
    cuts = np.unique(np.searchsorted(ends, targets, side="left") + 1)
    inner = cuts[(cuts > 0) & (cuts < fragments)].tolist()
    return [0, *inner, fragments]


PARTS: Final[dict[str, pa.DataType]] = {"part": pa.int32(), "rows": pa.binary()}
"""Columns of shuffled rows: the number of the part, and an Arrow stream."""


class CuttingTask(Protocol):
    """A task that reads rows and cuts them into numbered parts."""

    def rows(self, dataset: Any, shared: Any) -> Iterator[pa.RecordBatch]:
        """Yield parts of rows, as :data:`PARTS`."""


class RowTask:
    """A task that gets rows of others, such as one partition of a frame; can be pickled."""

    def execute(self, dataset: Any, rows: Iterator[pa.RecordBatch]) -> Any:
        """Do the work and return input for the commit."""
        raise NotImplementedError


MAX_TASKS: Final = 10_000
"""Maximum tasks of one job of a cluster; beyond it, a task of the cluster executes several."""


def parts_for(total_bytes: int, parallelism: int) -> int:
    """Return the number of parts that pay off for this many bytes, at least one."""
    return max(1, min(math.ceil(total_bytes / task_bytes(total_bytes, parallelism)), MAX_TASKS))


class TaskRunner(Protocol):
    """Runs tasks: in this process, or in the processes of a cluster."""

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at a time."""

    def parts(self, dataset: OpenedVersion) -> Sequence[FragmentRange]:
        """Divide all fragments of a version among as many tasks as pay off."""

    def run(
        self,
        dataset: OpenedVersion,
        tasks: Sequence[Task[R] | SharingTask[R]],
        shared: object | None = None,
    ) -> list[R]:
        """Execute tasks, in any order; return results in the order of the tasks.

        With ``shared``, each task gets this value as a second argument.
        """

    def shuffled(
        self,
        dataset: OpenedVersion,
        tasks: Sequence[CuttingTask],
        shared: object,
        parts: int,
        then: RowTask,
    ) -> list[Any]:
        """Execute tasks that cut rows into ``parts`` parts, and ``then`` on each part.

        Returns the results of ``then`` in any order. An empty part may give a result.
        """


@dataclass(slots=True)
class _AtVersion:
    """The dataset that tasks of this process get."""

    opened: OpenedVersion

    def move_to(self, manifest: Manifest) -> None:
        self.opened = self.opened.at(manifest)


class InProcess:
    """Runs tasks in this process one by one; each task uses all cores."""

    @property
    def parallelism(self) -> int:
        """One task at a time."""
        return 1

    def parts(self, dataset: OpenedVersion) -> Sequence[FragmentRange]:
        """Return all fragments in one part."""
        return (FragmentRange(dataset.manifest.version),)

    def run(
        self,
        dataset: OpenedVersion,
        tasks: Sequence[Task[R] | SharingTask[R]],
        shared: object | None = None,
    ) -> list[R]:
        """Execute tasks in their order."""
        given = () if shared is None else (shared,)
        return [task.execute(_AtVersion(dataset), *given) for task in tasks]

    def shuffled(
        self,
        dataset: OpenedVersion,
        tasks: Sequence[CuttingTask],
        shared: object,
        parts: int,
        then: RowTask,
    ) -> list[Any]:
        """Execute tasks in their order; rows wait in a temporary file for their part."""
        from tempfile import TemporaryFile

        at, found = _AtVersion(dataset), dict[int, list[tuple[int, int]]]()
        with TemporaryFile() as waiting:
            for task in tasks:
                for batch in task.rows(at, shared):
                    for part, stream in zip(*batch.to_pydict().values(), strict=True):
                        found.setdefault(part, []).append((waiting.tell(), len(stream)))
                        waiting.write(stream)

            def of_part(part: int) -> Iterator[pa.RecordBatch]:
                for start, size in found[part]:
                    waiting.seek(start)
                    yield pa.record_batch([[part], [waiting.read(size)]], schema=pa.schema(PARTS))

            return [then.execute(at, of_part(part)) for part in sorted(found)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Where the tasks of a change run, and what its commit records.

    Parameters
    ----------
    runner
        Runs the tasks.
    properties
        Entries of the transaction.
    once
        The key that identifies the change. If a version after the read version has the same
        value, that version is the result.
    """

    runner: TaskRunner = field(default_factory=InProcess)
    properties: Mapping[str, str] = field(default_factory=dict)
    once: str | None = None

    def recording(self, **counts: int) -> dict[str, str]:
        """Return the properties, with counts if the change has an identity: a rerun returns
        them.
        """
        properties = dict(self.properties)
        if self.once is not None:
            properties[COUNTS] = json.dumps(counts)
        return properties


LOCAL = Job()
"""Tasks in this process, and a plain commit."""


# --- Set string maps of a table: its configuration, and metadata of table, schema and fields

# --- Rows that another library keeps in a log (MemWAL) until it merges them into the table.
# They have the columns that the table had when they were written, matched by field id.

_LOG: Final = "__lance_mem_wal"
"""Name of the entry of the index section that declares a log."""


def refuse_for_logged_rows(manifest: Manifest, change: str) -> None:
    """Refuse a change of columns that would lose rows of a log.

    Raises
    ------
    SchemaError
        The table has a log.
    """
    if any(index.name == _LOG for index in manifest.indices):
        raise SchemaError(
            f"{change}: the table has a log of rows (MemWAL), which would lose these values or "
            "not be found any more. Merge its rows and drop it (drop_index) first, with pylance."
        )


StringMap = Literal["config", "table_metadata", "schema_metadata"]
StringUpdates = Mapping[str, str | None]
"""Values by key; ``None`` removes the key."""


def set_entries(
    dataset: OpenedVersion, kind: StringMap, values: StringUpdates, *, replace: bool = False
) -> Manifest:
    """Set entries of the configuration or of metadata; ``replace`` removes all other entries."""
    entries = string_map(kind.removeprefix("table_").replace("_", " "), values, removes=True)
    given: Any = {kind: entries}
    return commit_operation(dataset, UpdateConfig.of(**given, replace=replace))


def set_field_metadata(
    dataset: OpenedVersion,
    values: Mapping[str, StringUpdates],
    *,
    replace: bool | Collection[str] = False,
) -> Manifest:
    """Set entries of the metadata of fields, by path, in one commit.

    ``replace`` removes all other entries, or the other entries of the fields that it names.

    Raises
    ------
    SchemaError
        The entries declare the primary key, and a log (MemWAL) finds rows by that key.
    """
    schema = dataset.manifest.schema
    given: list[Any] = list(values)
    wrong = [path for path in given if not isinstance(path, str)]
    if wrong:
        raise OptionError(f"field_updates: expected paths of fields, found {wrong[0]!r}")
    by_id: dict[int, Mapping[str, str | None]] = {}
    for path, metadata in values.items():  # a field may have several, which differ in quotes
        at = schema.find(path)[-1].id
        entries = string_map(f"metadata of {path!r}", metadata, removes=True)
        by_id[at] = {**by_id.get(at, {}), **entries}
    all_of = by_id if replace is True else [schema.find(path)[-1].id for path in replace or ()]
    declares = any(key.startswith(PRIMARY_KEY) for entries in by_id.values() for key in entries)
    if declares or any(is_primary_key(schema.field_by_id(one)) for one in all_of):
        refuse_for_logged_rows(dataset.manifest, "the primary key cannot be changed")
    if isinstance(replace, bool):
        return commit_operation(dataset, UpdateConfig.of(field_metadata=by_id, replace=replace))
    change = UpdateConfig.of(field_metadata=by_id, replaced_fields=set(all_of))
    return commit_operation(dataset, change)
