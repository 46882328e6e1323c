"""Tasks of a compaction and their plan, which can be sent to other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import partial
from json import dumps, loads
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.chunked import coalesced
from glaive.dataclass import dataclass
from glaive.dataset.fragment_metadata import FragmentMetadata, checked_integer, stored_fragments
from glaive.dataset.tasks import FragmentRange
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.plan import COMPRESSION, WriteOptions, plan_write
from glaive.errors import OptionError
from glaive.file.files import has_checksums
from glaive.format.fragment import Fragment, FragmentList
from glaive.format.manifest import Feature
from glaive.format.rowids import (
    check_at_once,
    concatenate_row_ids,
    encode_row_ids,
    encode_version_array,
    select_row_ids,
)
from glaive.index.remap import any_holds_addresses
from glaive.options import (
    ANYTHING,
    SWITCH,
    TEXT,
    Kind,
    TypedDict,
    check_fields,
    integer,
    kinds_of,
    listed,
    number,
    option,
)
from glaive.scan.options import REWRITE_BLOBS, ScanOptions
from glaive.scan.query import make_query
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import Views
from glaive.table.index_coverage import address_map
from glaive.table.rowids import load_lineage
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion


# --- Options of a compaction ------------------------------------------------------------

CONFIG_PREFIX = "lance.compaction."
"""Prefix of table configuration entries that set defaults of the options."""

_LEAST: Final = {"max_bytes_per_file": 1 << 20, "batch_size": 1024, "max_rows_per_group": 64}
"""Minimum values in a configuration, which may be untrusted. Lower values would make a file, a
page or a step for each of billions of rows."""

_LIMITS: Final = ("max_source_fragments", "max_source_rows", "max_source_bytes")

_MODES = ("reencode", "try_binary_copy", "force_binary_copy")


def _mode(given: Any) -> str:
    if given not in _MODES:
        raise OptionError(
            f"Invalid compaction mode {given!r:.60}: compaction_mode: expected one of "
            f"{', '.join(_MODES)}"
        )
    if given == "force_binary_copy":
        raise OptionError(
            "compaction_mode 'force_binary_copy' is not supported: pages are always re-encoded. "
            "Choose 'try_binary_copy' or 'reencode'"
        )
    return str(given)


_COUNT: Final = integer(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """Options of a compaction.

    Parameters
    ----------
    target_rows_per_fragment
        Rows per new fragment. Smaller fragments are candidates.
    max_rows_per_group
        Maximum rows per page, in files of format 0.1.
    max_bytes_per_file
        Approximate maximum bytes per file.
    materialize_deletions, materialize_deletions_threshold
        Whether fragments with a larger share of deleted rows are candidates.
    defer_index_remap
        Store a remapping table for readers to apply, instead of rebuilding indices that store
        row addresses. Ignored for datasets with stable row ids.
    num_threads
        Accepted and ignored; the number of cores decides.
    batch_size
        Rows to read at a time; default: by the width of rows.
    io_buffer_size
        Accepted and ignored; other limits bound the memory.
    compaction_mode
        ``reencode``, or ``try_binary_copy``, which glaive treats alike.
    max_source_fragments, max_source_rows, max_source_bytes
        Limits of one run: glaive takes the oldest groups that stay below them.
    excluded_fragment_ids
        Fragments to leave unchanged; they separate groups.
    data_storage_version
        Format of the files; default: the format of the dataset.
    compression
        ``balanced`` gives smaller files, as Spark writes do. ``automatic`` encodes as
        :func:`glaive.write_dataset`.
    """

    target_rows_per_fragment: int = option(_COUNT, 1024 * 1024)
    max_rows_per_group: int = option(_COUNT, 1024)
    max_bytes_per_file: int = option(_COUNT, 90 * 1024**3)
    materialize_deletions: bool = option(SWITCH, True)
    materialize_deletions_threshold: float = option(number(0, 1), 0.1)
    defer_index_remap: bool = option(SWITCH, False)
    num_threads: int | None = option(ANYTHING)
    batch_size: int | None = option(_COUNT)
    io_buffer_size: int | None = option(ANYTHING)
    compaction_mode: str = option(Kind("a mode", _mode), "reencode")
    binary_copy_read_batch_bytes: int | None = option(ANYTHING)
    max_source_fragments: int | None = option(_COUNT)
    max_source_rows: int | None = option(_COUNT)
    max_source_bytes: int | None = option(_COUNT)
    excluded_fragment_ids: tuple[int, ...] = option(listed(integer(0)), ())
    data_storage_version: str | None = option(TEXT)
    compression: Literal["automatic", "balanced"] = option(COMPRESSION, "automatic")

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def writing(self) -> WriteOptions:
        """The options of writers of new fragments; the rows of each are the caller's choice."""
        return WriteOptions(
            mode="append",
            max_rows_per_group=self.max_rows_per_group,
            max_bytes_per_file=self.max_bytes_per_file,
            data_storage_version=self.data_storage_version,
            compression=self.compression,
        )

    @property
    def limits_source(self) -> bool:
        """Whether a run takes only some of the groups."""
        return any(getattr(self, name) is not None for name in _LIMITS)

    @classmethod
    def of(cls, given: Mapping[str, Any] | None, config: Mapping[str, str]) -> Self:
        """Return the given options, with defaults from the table's configuration.

        Raises
        ------
        OptionError
            An option is unknown or has an invalid value.
        """
        if given is not None and not isinstance(given, Mapping):
            raise OptionError(f"compaction: expected a dict of options, found {given!r:.60}")
        given = given or {}
        known = kinds_of(cls)
        kept: dict[str, Any] = {}
        for key, text in config.items():
            name = key.removeprefix(CONFIG_PREFIX)
            if key == name or name not in known or given.get(name) is not None or not text.strip():
                continue
            kept[name] = known[name].parse(key, text)
            if name in _LEAST and kept[name] < _LEAST[name]:
                raise OptionError(
                    f"{key}: expected {_LEAST[name]} at least in a configuration, found "
                    f"{text!r:.60}. Change it, or give {name} with the call"
                )
        for name, value in given.items():
            if name not in known:
                raise OptionError(
                    f"Invalid compaction option: {name}{OptionError.did_you_mean(name, known)}"
                )
            if value is not None:
                kept[name] = known[name].check(name, value)
        return cls(**kept)


class CompactionKeywords(TypedDict, total=False):
    """Options of :class:`Compaction`: a dictionary with any of these keys.

    :class:`CompactionOptions` describes them.
    """

    target_rows_per_fragment: int | None
    max_rows_per_group: int | None
    max_bytes_per_file: int | None
    materialize_deletions: bool | None
    materialize_deletions_threshold: float | None
    num_threads: int | None
    batch_size: int | None
    io_buffer_size: int | None
    compaction_mode: str | None
    binary_copy_read_batch_bytes: int | None
    defer_index_remap: bool | None
    max_source_fragments: int | None
    max_source_rows: int | None
    max_source_bytes: int | None
    excluded_fragment_ids: Sequence[int] | None
    data_storage_version: str | None


# --- The uncommitted result of a compaction task ----------------------------------------


class JsonValue:
    """A value that can be sent to other processes as JSON."""

    __slots__ = ()

    def json(self) -> str:
        """Encode as JSON."""
        return dumps(self.content())

    @classmethod
    def from_json(cls, json: str) -> Self:
        """Decode the output of :meth:`json`.

        Raises
        ------
        OptionError
            The string is invalid.
        """
        try:
            return cls.of_content(loads(json))
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise OptionError(
                f"Could not load {cls.__name__} due to error: expected its JSON, found "
                f"{json!r:.80} ({error})"
            ) from error

    def content(self) -> dict[str, Any]:
        """Return the value in a form that JSON can represent."""
        raise NotImplementedError

    @classmethod
    def of_content(cls, values: Any) -> Self:
        """Make the value from this content."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CompactionMetrics:
    """Counts of fragments and files that a compaction removed and added."""

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0

    @classmethod
    def of(cls, old: Sequence[Fragment], new: Sequence[Fragment]) -> Self:
        """Count the fragments, and their data files and deletion files."""
        files = (FragmentList.of(fragments).file_count for fragments in (old, new))
        return cls(len(old), len(new), *files)

    def __add__(self, other: CompactionMetrics) -> CompactionMetrics:
        counts = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return CompactionMetrics(*map(sum, counts))


@dataclass(frozen=True, slots=True)
class RewriteResult(JsonValue):
    """The uncommitted fragments that a task wrote; can be pickled.

    Parameters
    ----------
    old
        Fragments whose rows were rewritten.
    new
        Fragments with these rows; the commit assigns their ids.
    moved
        Old addresses of the live rows, as a bitmap; empty unless an index needs them.
    is_sorted
        Whether the rows have another order than before.
    """

    read_version: int
    metrics: CompactionMetrics
    old: Sequence[Fragment]
    new: Sequence[Fragment]
    moved: bytes = b""
    is_sorted: bool = False

    def __repr__(self) -> str:
        return (
            f"RewriteResult(read_version={self.read_version}, "
            f"new_fragments={self.new_fragments}, old_fragments={self.original_fragments})"
        )

    @property
    def original_fragments(self) -> list[FragmentMetadata]:
        """Fragments whose rows were rewritten."""
        return list(map(FragmentMetadata.of, self.old))

    @property
    def new_fragments(self) -> list[FragmentMetadata]:
        """Fragments with these rows."""
        return list(map(FragmentMetadata.of, self.new))

    def content(self) -> dict[str, Any]:
        """Return the value in a form that JSON can represent."""
        return {
            "read_version": self.read_version,
            "metrics": asdict(self.metrics),
            "original_fragments": [fragment.to_json() for fragment in self.original_fragments],
            "new_fragments": [fragment.to_json() for fragment in self.new_fragments],
            "row_addrs": self.moved.hex() or None,
        }

    @classmethod
    def of_content(cls, values: Any) -> Self:
        """Make the value from this content."""
        counts = {name: read_number(values["metrics"], name) for name in values["metrics"]}
        return cls(
            read_number(values, "read_version"),
            CompactionMetrics(**counts),
            read_fragments(values["original_fragments"]),
            read_fragments(values["new_fragments"]),
            bytes.fromhex(values["row_addrs"] or ""),
        )


def read_number(values: Any, name: str) -> int:
    """Return the entry of this name, a version or a count."""
    return checked_integer(values[name], name)


def read_fragments(documents: Iterable[str]) -> tuple[Fragment, ...]:
    """Decode outputs of ``FragmentMetadata.to_json``."""
    return tuple(stored_fragments(map(FragmentMetadata.from_json, documents), "fragments"))


# --- Execute one task of a compaction: rewrite the live rows of fragments ---------------


def rewrite(
    dataset: OpenedVersion,
    read_version: int,
    fragment_ids: Sequence[int],
    options: CompactionOptions,
    known: Sequence[Fragment] = (),
) -> RewriteResult:
    """Write the live rows of fragments into new fragments, in order.

    Reads ``read_version``, whichever version ``dataset`` is at. ``known`` are the fragments, if
    they were read already.

    Notes
    -----
    Holds the pages being written in memory, whatever the size of the fragments.
    """
    if dataset.manifest.version != read_version:
        dataset = dataset.at(read_version)
    manifest = dataset.manifest
    positions = list(dataset.snapshot.positions_of(fragment_ids))
    old = list(known)
    if [fragment.id for fragment in old] != list(fragment_ids):
        old = list(map(manifest.fragment, positions))
    rows = int(dataset.snapshot.live_counts[positions].sum())
    # Write as many fragments as the rows fill; their sizes differ by at most one row.
    count = max(1, rows // options.target_rows_per_fragment)
    max_rows = max(1, -(-rows // count))
    # Bytes may fill files earlier and make more files; each has at least the rows aimed at.
    full = rows % count or None
    writing = replace(options.writing, max_rows_per_file=max_rows, full_files=full)
    plan = plan_write(dataset.store, manifest.schema, writing, manifest, enforce=False)
    reading = ScanOptions.of(fragments=fragment_ids, use_cache=False, batch_size=options.batch_size)
    reading = replace(reading, blob_handling=REWRITE_BLOBS)
    query = make_query(Views(dataset.snapshot), reading)
    # Opened like the scan opens it, so that it is opened once.
    if plan.checksums is None and _has_checksums(query.source.snapshot, old):
        plan = replace(plan, checksums=True)
    batches = coalesced(query.tables())
    stable, addressed = manifest.uses(Feature.STABLE_ROW_IDS), any_holds_addresses(manifest)
    if stable or addressed:  # fail before the rows are written
        for fragment in old:
            dataset.snapshot.check_rows(fragment)
            check_at_once(fragment.physical_rows, manifest.where)
    new = write_fragments(plan, batches)
    new = [fragment for fragment in new if fragment.physical_rows]
    if stable:
        new = _with_lineage(dataset, old, new)
    moved = live_addresses(dataset, old) if addressed else b""
    metrics = CompactionMetrics.of(old, new)
    return RewriteResult(read_version, metrics, tuple(old), tuple(new), moved)


def _has_checksums(snapshot: Snapshot, fragments: Sequence[Fragment]) -> bool:
    """Return whether the first file to rewrite has checksums; new files then have them too."""
    files = (file for fragment in fragments for file in fragment.files)
    first = next(files, None)
    return first is not None and has_checksums(snapshot.open_file(first))


def live_addresses(dataset: OpenedVersion, fragments: Iterable[Fragment]) -> bytes:
    """Return the addresses of the live rows of fragments, as a bitmap."""
    return address_map(
        part.astype(np.uint64) + np.uint64(fragment.id << 32)
        for fragment in fragments
        for part in _live_parts(dataset, fragment)
    )


def _live_parts(dataset: OpenedVersion, fragment: Fragment) -> Iterator[Int64s]:
    """Yield offsets of the live rows of a fragment, in parts that fit into memory."""
    live = dataset.snapshot.live_rows(fragment)
    for start in range(0, fragment.physical_rows, _MAX_LISTED_ROWS):
        stop = min(fragment.physical_rows, start + _MAX_LISTED_ROWS)
        yield np.arange(start, stop) if live is None else live.among(start, stop)


_MAX_LISTED_ROWS = 1 << 20
"""Maximum rows whose addresses are listed at a time: few bytes may encode billions of rows."""


def _with_lineage(
    dataset: OpenedVersion, old: Sequence[Fragment], new: Sequence[Fragment]
) -> list[Fragment]:
    """Return new fragments with the row ids and versions of their rows."""
    where = dataset.manifest.where
    ids: list[bytes] = []
    created: list[NDArray[np.uint64]] = []
    updated: list[NDArray[np.uint64]] = []
    for fragment in old:
        parts = [part.astype(np.uint32) for part in _live_parts(dataset, fragment)]
        offsets = np.concatenate([np.empty(0, np.uint32), *parts])
        load = partial(load_lineage, dataset.store, dataset.manifest, fragment)
        if fragment.row_ids_in_column:
            ids.append(encode_row_ids(load("row_ids").at(offsets)))
        else:
            row_ids, rows = fragment.row_ids or b"", fragment.physical_rows
            ids.append(select_row_ids(row_ids, rows, offsets, where=where))
        created.append(load("created_at").at(offsets))
        updated.append(load("updated_at").at(offsets))
    sequence = concatenate_row_ids(ids, where=where)
    total = sum(fragment.physical_rows for fragment in new)

    def ids_of(start: int, stop: int) -> bytes:
        if len(new) == 1:
            return sequence
        window = np.arange(start, stop, dtype=np.uint32)
        return select_row_ids(sequence, total, window, where=where)

    return with_lineage(new, ids_of, np.concatenate(created), np.concatenate(updated))


def with_lineage(
    new: Sequence[Fragment],
    ids_of: Callable[[int, int], bytes],
    created: NDArray[np.uint64],
    updated: NDArray[np.uint64],
) -> list[Fragment]:
    """Return fragments with encoded ids and versions of their rows, given for all rows in order."""
    numbered, start = [], 0
    for fragment in new:
        stop = start + fragment.physical_rows
        numbered.append(
            replace(
                fragment,
                row_ids=ids_of(start, stop),
                created_at=encode_version_array(created[start:stop]),
                updated_at=encode_version_array(updated[start:stop]),
            )
        )
        start = stop
    return numbered


@dataclass(frozen=True, slots=True)
class CompactionTask(JsonValue):
    """Ids of fragments of one version to merge; can be pickled. :meth:`execute` runs it."""

    read_version: int
    fragment_ids: tuple[int, ...]
    options: CompactionOptions
    old: tuple[Fragment, ...] = ()
    is_of_json: bool = field(default=False, compare=False)
    """Whether ``old`` comes from JSON: then glaive reads the fragments themselves again."""

    @property
    def fragments(self) -> list[FragmentMetadata]:
        """The fragments to merge."""
        return list(map(FragmentMetadata.of, self.old))

    def __repr__(self) -> str:
        return f"CompactionTask(read_version={self.read_version}, fragments={self.fragments})"

    def execute(self, dataset: OpenDataset) -> RewriteResult:
        """Write the rows of ``read_version`` into new fragments.

        ``dataset`` may be at another version.

        Raises
        ------
        VersionNotFoundError
            The version to read was cleaned up.
        """
        known = () if self.is_of_json else self.old
        return rewrite(dataset.opened, self.read_version, self.fragment_ids, self.options, known)

    def content(self) -> dict[str, Any]:
        """Return the value in a form that JSON can represent."""
        return {
            "task": {"fragments": [fragment.to_json() for fragment in self.fragments]},
            "read_version": self.read_version,
            "options": asdict(self.options),
        }

    @classmethod
    def of_content(cls, values: Any) -> Self:
        """Make the value from this content."""
        options = dict(values["options"])
        options["excluded_fragment_ids"] = tuple(options["excluded_fragment_ids"])
        old = read_fragments(values["task"]["fragments"])
        ids = tuple(fragment.id for fragment in old)
        version = read_number(values, "read_version")
        return cls(version, ids, CompactionOptions(**options), old, is_of_json=True)


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Rewrite adjacent fragments; so small that a plan may have a million. Can be pickled.

    The result lacks the old fragments, which the planner knows.
    """

    fragments: FragmentRange
    options: CompactionOptions

    def execute(self, dataset: OpenDataset) -> RewriteResult:
        """Write the rows into new fragments."""
        opened = self.fragments.opened(dataset)
        positions = self.fragments.positions(opened)
        ids = opened.manifest.fragment_ids[positions.start : positions.stop].tolist()
        return replace(rewrite(opened, opened.manifest.version, ids, self.options), old=())


@dataclass(frozen=True, slots=True)
class CompactionPlan(JsonValue):
    """The groups of a compaction, one task each."""

    read_version: int
    tasks: list[CompactionTask]

    def __repr__(self) -> str:
        return (
            f"CompactionPlan(read_version={self.read_version}, "
            f"tasks=<{len(self.tasks)} compaction tasks>)"
        )

    def num_tasks(self) -> int:
        """Return the number of tasks."""
        return len(self.tasks)

    def content(self) -> dict[str, Any]:
        """Return the value in a form that JSON can represent."""
        tasks = [task.content() for task in self.tasks]
        return {
            "tasks": [task["task"] for task in tasks],
            "read_version": self.read_version,
            "options": tasks[0]["options"] if tasks else None,
        }

    @classmethod
    def of_content(cls, values: Any) -> Self:
        """Make the value from this content."""
        shared = {name: values[name] for name in ("read_version", "options")}
        tasks = [CompactionTask.of_content({"task": task, **shared}) for task in values["tasks"]]
        return cls(read_number(values, "read_version"), tasks)
