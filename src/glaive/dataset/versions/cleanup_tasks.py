"""Parts of a clean-up as tasks, which run in this process or in those of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final, Generic, TypeVar

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.tasks import TaskRunner
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.io.store import ObjectStore
from glaive.table.cleanup.division import Division
from glaive.table.cleanup.found_files import FoundFiles
from glaive.table.cleanup.parts import Part

__all__ = ["FILES_DDL", "FILES_SCHEMA", "CleanupTask", "CleanupTasks", "FileRows"]

R = TypeVar("R")

_COLUMNS: Final[dict[str, pa.DataType]] = {
    "path": pa.string(),
    "kind": pa.string(),
    "size_in_bytes": pa.int64(),
    "unverified": pa.bool_(),
}

FILES_SCHEMA: Final = pa.schema(_COLUMNS)
"""Columns of :class:`FileRows`."""

FILES_DDL: Final = "path string, kind string, size_in_bytes bigint, unverified boolean"
"""The same for Spark."""


@dataclass(frozen=True, slots=True)
class CleanupTask(Generic[R]):
    """A part of a clean-up; can be pickled."""

    part: Part[R]

    def execute(self, dataset: OpenDataset) -> R:
        """Do it in the branch that the dataset is at."""
        return self.part.run(dataset.opened.store)


@dataclass(frozen=True, slots=True)
class CleanupTasks:
    """Runs parts of a clean-up as tasks; a lone one in this process, where it costs less.

    Parameters
    ----------
    dataset
        The version that the clean-up keeps.
    runner
        Runs the tasks.
    division
        How much is one task.
    """

    dataset: OpenedVersion
    runner: TaskRunner
    division: Division | None = field(default_factory=Division)

    def run(self, store: ObjectStore, parts: Sequence[Part[R]]) -> list[R]:
        """Run parts in any order; their results in the order of the parts."""
        if len(parts) < 2:
            return [part.run(store) for part in parts]
        return self.runner.run(self.dataset, [CleanupTask(part) for part in parts])


@dataclass(frozen=True, slots=True)
class FileRows:
    """Files of a plan as rows: they are unpacked where somebody reads them. Can be pickled."""

    found: FoundFiles

    def rows(self, dataset: OpenDataset | None = None) -> Iterator[pa.RecordBatch]:
        """One batch: ``path``, ``kind``, ``size_in_bytes``, ``unverified``."""
        files = self.found.files
        columns = [
            [file.path for file in files],
            [file.kind for file in files],
            [file.size for file in files],
            [file.unverified for file in files],
        ]
        yield pa.record_batch(columns, schema=FILES_SCHEMA)
