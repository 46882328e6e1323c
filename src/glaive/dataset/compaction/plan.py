"""Which fragments a compaction puts together: options and the plan.

Fragments with few rows, or with many deleted ones, are candidates. Neighbours among them are
put together as long as the same indices cover them, in groups that fill a fragment each. A
group of one is only rewritten to get rid of its deleted rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Self, TypeVar

from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.errors import OptionError
from glaive.index.remap import pinned_fragments
from glaive.table.indices import covered_fragments
from glaive.table.reuse import REUSE_INDEX, followed

if TYPE_CHECKING:
    from glaive.dataset.compaction.task import RewriteResult
    from glaive.dataset.opened import OpenedVersion

__all__ = ["CompactionOptions", "CompactionPlan", "CompactionTask", "plan_compaction", "read_json"]

T = TypeVar("T")

CONFIG_PREFIX = "lance.compaction."
"""Of entries of the table's configuration that hold defaults of the options."""

_MODES = ("reencode", "try_binary_copy", "force_binary_copy")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """How to compact.

    Parameters
    ----------
    target_rows_per_fragment
        Rows of the fragments that are made; smaller ones are candidates.
    max_rows_per_group
        Rows of a page at most, in files of format 0.1.
    max_bytes_per_file
        Bytes after which a new file is begun, about.
    materialize_deletions, materialize_deletions_threshold
        Whether fragments of whose rows a greater share is deleted are candidates.
    defer_index_remap
        Whether indices are left as they are, beside a map of where rows went; otherwise
        those that hold row addresses are made anew. Not for datasets with stable row ids,
        where it changes nothing.
    num_threads
        Accepted; the cores decide.
    batch_size
        Rows read at a time; by width when omitted.
    io_buffer_size
        Accepted; what is under way is bounded otherwise.
    compaction_mode
        ``reencode``, or ``try_binary_copy``, which comes to the same.
    max_source_fragments, max_source_rows, max_source_bytes
        Limits of one run: groups are taken, oldest first, while they stay below.
    excluded_fragment_ids
        Fragments that stay as they are, and are not reached across.
    data_storage_version
        Format of the files; that of the dataset when omitted.
    """

    target_rows_per_fragment: int = 1024 * 1024
    max_rows_per_group: int = 1024
    max_bytes_per_file: int = 90 * 1024**3
    materialize_deletions: bool = True
    materialize_deletions_threshold: float = 0.1
    defer_index_remap: bool = False
    num_threads: int | None = None
    batch_size: int | None = None
    io_buffer_size: int | None = None
    compaction_mode: str = "reencode"
    binary_copy_read_batch_bytes: int | None = None
    max_source_fragments: int | None = None
    max_source_rows: int | None = None
    max_source_bytes: int | None = None
    excluded_fragment_ids: tuple[int, ...] = ()
    data_storage_version: str | None = None

    def __post_init__(self) -> None:
        for name in (
            "target_rows_per_fragment",
            "max_rows_per_group",
            "max_bytes_per_file",
            "batch_size",
            "max_source_fragments",
            "max_source_rows",
            "max_source_bytes",
        ):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise OptionError(f"{name}: expected a whole number ≥ 1, found {value!r}")
        if not 0 <= self.materialize_deletions_threshold <= 1:
            raise OptionError(
                "materialize_deletions_threshold: expected a share from 0 to 1, found "
                f"{self.materialize_deletions_threshold!r}"
            )
        if self.compaction_mode not in _MODES:
            raise OptionError(
                f"compaction_mode: expected one of {', '.join(_MODES)}, found "
                f"{self.compaction_mode!r}"
            )
        if self.compaction_mode == "force_binary_copy":
            raise OptionError(
                "compaction_mode 'force_binary_copy': pages are always encoded anew here; choose "
                "'try_binary_copy' or 'reencode'"
            )

    @classmethod
    def of(cls, given: Mapping[str, Any] | None, config: Mapping[str, str]) -> Self:
        """Options as users give them, over those of the table's configuration.

        Raises
        ------
        OptionError
            An option does not exist or has a value it cannot have.
        """
        known = {one.name: one for one in fields(cls)}
        kept: dict[str, Any] = {}
        for key, text in config.items():
            name = key.removeprefix(CONFIG_PREFIX)
            if key.startswith(CONFIG_PREFIX) and name in known:
                kept[name] = _from_text(name, text)
        for name, value in (given or {}).items():
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else "."
                raise OptionError(
                    f"compaction: unknown option {name!r}{hint} Known: {', '.join(known)}"
                )
            if value is not None:
                kept[name] = tuple(value) if name == "excluded_fragment_ids" else value
        return cls(**kept)


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """Fragments to be put together, by id, as of a version; can be pickled.

    :meth:`execute` carries it out.
    """

    read_version: int
    fragment_ids: tuple[int, ...]
    options: CompactionOptions
    fragments: tuple[FragmentMetadata, ...] = ()

    def execute(self, dataset: OpenedVersion) -> RewriteResult:
        """Write the rows into new fragments that no version has yet.

        Raises
        ------
        OptionError
            The dataset is at another version than the plan.
        """
        from glaive.dataset.compaction.task import rewrite

        return rewrite(dataset, self)

    def json(self) -> str:
        """As text."""
        return json.dumps(
            {
                "read_version": self.read_version,
                "fragment_ids": self.fragment_ids,
                "options": asdict(self.options),
                "fragments": [one.to_json() for one in self.fragments],
            }
        )

    @classmethod
    def from_json(cls, json: str) -> Self:
        """Read what :meth:`json` gave."""
        return read_json(json, cls.__name__, cls._of)

    @classmethod
    def _of(cls, found: Any) -> Self:
        options = dict(found["options"])
        options["excluded_fragment_ids"] = tuple(options["excluded_fragment_ids"])
        ids = tuple(found["fragment_ids"])
        fragments = tuple(map(FragmentMetadata.from_json, found["fragments"]))
        return cls(found["read_version"], ids, CompactionOptions(**options), fragments)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The groups of a compaction; each is a task of its own."""

    read_version: int
    tasks: tuple[CompactionTask, ...]

    def num_tasks(self) -> int:
        """Groups."""
        return len(self.tasks)

    def json(self) -> str:
        """As text."""
        tasks = [one.json() for one in self.tasks]
        return json.dumps({"read_version": self.read_version, "tasks": tasks})

    @classmethod
    def from_json(cls, json: str) -> Self:
        """Read what :meth:`json` gave."""
        return read_json(json, cls.__name__, cls._of)

    @classmethod
    def _of(cls, found: Any) -> Self:
        tasks = tuple(map(CompactionTask.from_json, found["tasks"]))
        return cls(found["read_version"], tasks)


def read_json(text: str, what: str, make: Callable[[Any], T]) -> T:
    """Make something of what its ``json`` gave.

    Raises
    ------
    OptionError
        It is nothing of the kind.
    """
    try:
        return make(json.loads(text))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise OptionError(f"expected the JSON of a {what}, found {text!r:.80} ({error})") from error


def plan_compaction(dataset: OpenedVersion, options: CompactionOptions) -> CompactionPlan:
    """Work out the groups; reads no data file."""
    groups: list[list[int]] = []
    for run in _runs(dataset, options):
        groups.extend(_split(dataset, run, options.target_rows_per_fragment))
    groups = [one for one in groups if len(one) > 1 or _is_worn(dataset, one[0], options)]
    manifest = dataset.manifest
    ids = manifest.fragment_ids
    # Sizes that steer only the plan are no business of the tasks.
    alone = replace(options, excluded_fragment_ids=())
    tasks = tuple(
        CompactionTask(
            dataset.version,
            tuple(ids[one].tolist()),
            alone,
            tuple(FragmentMetadata.of(manifest.fragment(at)) for at in one),
        )
        for one in _within_limits(dataset, groups, options)
    )
    return CompactionPlan(dataset.version, tasks)


def _runs(dataset: OpenedVersion, options: CompactionOptions) -> Iterator[list[int]]:
    """Positions of neighbouring candidates that the same indices cover."""
    manifest = dataset.manifest
    ids = manifest.fragment_ids.tolist()
    physical = manifest.physical_rows.tolist()
    covered = [
        covered_fragments(one) or frozenset()
        for one in followed(manifest.indices)
        if one.name != REUSE_INDEX
    ]
    excluded = pinned_fragments(manifest).union(options.excluded_fragment_ids)
    run: list[int] = []
    cover: list[bool] | None = None
    for position, fragment_id in enumerate(ids):
        small = physical[position] < options.target_rows_per_fragment
        wanted = small or _is_worn(dataset, position, options)
        if fragment_id in excluded or not wanted:
            if run:
                yield run
            run, cover = [], None
            continue
        mine = [fragment_id in one for one in covered]
        if run and mine != cover:
            yield run
            run = []
        run.append(position)
        cover = mine
    if run:
        yield run


def _is_worn(dataset: OpenedVersion, position: int, options: CompactionOptions) -> bool:
    """Whether enough rows are deleted."""
    if not options.materialize_deletions:
        return False
    physical = int(dataset.manifest.physical_rows[position])
    deleted = physical - int(dataset.snapshot.live_counts[position])
    return deleted > options.materialize_deletions_threshold * physical


def _split(dataset: OpenedVersion, run: Sequence[int], target: int) -> Iterator[list[int]]:
    """Cut a run into groups that fill a fragment each, as long as the rest fills one too."""
    counts = dataset.snapshot.live_counts
    left = sum(int(counts[one]) for one in run)
    group: list[int] = []
    rows = 0
    for position in run:
        group.append(position)
        rows += int(counts[position])
        if rows >= target and left - rows >= target:
            yield group
            left -= rows
            group, rows = [], 0
    if group:
        yield group


def _within_limits(
    dataset: OpenedVersion, groups: Sequence[Sequence[int]], options: CompactionOptions
) -> Iterator[list[int]]:
    counts = dataset.snapshot.live_counts
    fragments = rows = size = 0
    for group in groups:
        fragments += len(group)
        rows += sum(int(counts[one]) for one in group)
        if options.max_source_bytes is not None:
            size += sum(
                file.size or 0 for one in group for file in dataset.manifest.fragment(one).files
            )
        for limit, reached in (
            (options.max_source_fragments, fragments),
            (options.max_source_rows, rows),
            (options.max_source_bytes, size),
        ):
            if limit is not None and reached > limit:
                return
        yield list(group)


def _from_text(name: str, text: str) -> Any:
    if name in ("materialize_deletions", "defer_index_remap"):
        if text.lower() not in ("true", "false"):
            raise OptionError(f"{CONFIG_PREFIX}{name}: expected true or false, found {text!r}")
        return text.lower() == "true"
    if name in ("compaction_mode", "data_storage_version"):
        return text
    try:
        return float(text) if name.endswith("threshold") else int(text)
    except ValueError:
        raise OptionError(f"{CONFIG_PREFIX}{name}: expected a number, found {text!r}") from None
