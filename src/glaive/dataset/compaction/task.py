"""Tasks of a compaction, and the plan they are part of: values that go to other processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from glaive.dataset.compaction.options import CompactionOptions
from glaive.dataset.compaction.result import RewriteResult, read_fragments, read_json
from glaive.dataset.compaction.rewrite import rewrite
from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.format.fragment import Fragment

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset

__all__ = ["CompactionPlan", "CompactionTask"]


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """Fragments to be put together, by id, as of a version; can be pickled.

    :meth:`execute` carries it out.
    """

    read_version: int
    fragment_ids: tuple[int, ...]
    options: CompactionOptions
    old: tuple[Fragment, ...] = ()

    @property
    def fragments(self) -> tuple[FragmentMetadata, ...]:
        """The fragments, as users know them."""
        return tuple(map(FragmentMetadata.of, self.old))

    def execute(self, dataset: OpenDataset) -> RewriteResult:
        """Write the rows into new fragments that no version has yet.

        They are those of ``read_version``, though the dataset may be at another one.

        Raises
        ------
        VersionNotFoundError
            That version was cleaned up.
        """
        given = (self.read_version, self.fragment_ids, self.options, self.old)
        return rewrite(dataset.opened, *given)

    def json(self) -> str:
        """As text."""
        return json.dumps(
            {
                "read_version": self.read_version,
                "fragment_ids": self.fragment_ids,
                "options": asdict(self.options),
                "fragments": [fragment.to_json() for fragment in self.fragments],
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
        old = read_fragments(found["fragments"])
        return cls(found["read_version"], ids, CompactionOptions(**options), old)


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
        tasks = [task.json() for task in self.tasks]
        return json.dumps({"read_version": self.read_version, "tasks": tasks})

    @classmethod
    def from_json(cls, json: str) -> Self:
        """Read what :meth:`json` gave."""
        return read_json(json, cls.__name__, cls._of)

    @classmethod
    def _of(cls, found: Any) -> Self:
        tasks = tuple(map(CompactionTask.from_json, found["tasks"]))
        return cls(found["read_version"], tasks)
