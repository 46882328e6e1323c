"""Tasks of a compaction and their plan: values that can be sent to other processes."""

from __future__ import annotations

from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any, Self

from glaive.dataclass import dataclass
from glaive.dataset.compaction.options import CompactionOptions
from glaive.dataset.compaction.result import (
    JsonValue,
    RewriteResult,
    read_fragments,
    read_number,
)
from glaive.dataset.compaction.rewrite import rewrite
from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.dataset.tasks import FragmentRange
from glaive.format.fragment import Fragment

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset

__all__ = ["CompactionPlan", "CompactionTask", "RewriteTask"]


@dataclass(frozen=True, slots=True)
class CompactionTask(JsonValue):
    """Ids of fragments of one version to be merged; can be pickled. :meth:`execute` runs it."""

    read_version: int
    fragment_ids: tuple[int, ...]
    options: CompactionOptions
    old: tuple[Fragment, ...] = ()
    is_of_json: bool = field(default=False, compare=False)
    """Whether ``old`` is what JSON said: the fragments themselves are read again then."""

    @property
    def fragments(self) -> list[FragmentMetadata]:
        """The fragments to be merged."""
        return list(map(FragmentMetadata.of, self.old))

    def __repr__(self) -> str:
        return f"CompactionTask(read_version={self.read_version}, fragments={self.fragments})"

    def execute(self, dataset: OpenDataset) -> RewriteResult:
        """Write the rows of ``read_version`` into new fragments, uncommitted.

        ``dataset`` may be at another version.

        Raises
        ------
        VersionNotFoundError
            That version was cleaned up.
        """
        known = () if self.is_of_json else self.old
        return rewrite(dataset.opened, self.read_version, self.fragment_ids, self.options, known)

    def content(self) -> dict[str, Any]:
        """The value as JSON can represent it."""
        return {
            "task": {"fragments": [fragment.to_json() for fragment in self.fragments]},
            "read_version": self.read_version,
            "options": asdict(self.options),
        }

    @classmethod
    def of_content(cls, values: Any) -> Self:
        """The value with this content."""
        options = dict(values["options"])
        options["excluded_fragment_ids"] = tuple(options["excluded_fragment_ids"])
        old = read_fragments(values["task"]["fragments"])
        ids = tuple(fragment.id for fragment in old)
        version = read_number(values, "read_version")
        return cls(version, ids, CompactionOptions(**options), old, is_of_json=True)


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """The same for neighbouring fragments, small enough for a million of them; can be pickled.

    The result lacks the old fragments, which the planner knows.
    """

    fragments: FragmentRange
    options: CompactionOptions

    def execute(self, dataset: OpenDataset) -> RewriteResult:
        """Write the rows into new fragments, uncommitted."""
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
        """The number of tasks."""
        return len(self.tasks)

    def content(self) -> dict[str, Any]:
        """The value as JSON can represent it."""
        tasks = [task.content() for task in self.tasks]
        return {
            "tasks": [task["task"] for task in tasks],
            "read_version": self.read_version,
            "options": tasks[0]["options"] if tasks else None,
        }

    @classmethod
    def of_content(cls, values: Any) -> Self:
        """The value with this content."""
        shared = {name: values[name] for name in ("read_version", "options")}
        tasks = [CompactionTask.of_content({"task": task, **shared}) for task in values["tasks"]]
        return cls(read_number(values, "read_version"), tasks)
