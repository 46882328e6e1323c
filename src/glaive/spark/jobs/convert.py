"""A dataset from Parquet files, written by tasks; rows do not pass through Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from glaive.dataclass import dataclass
from glaive.dataset.writing.commit import commit_plan
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.plan import WritePlan, plan_write
from glaive.errors import NotFoundError, NotLanceError, SchemaError
from glaive.format.fragment import Fragment
from glaive.ingestion.partition_folders import refuse_partition_folders
from glaive.io.store import ObjectStore
from glaive.io.uri import open_store
from glaive.spark.jobs.runner import MAX_TASKS, parts_for
from glaive.table.root import open_root

if TYPE_CHECKING:
    from glaive.dataset.tasks import Job
    from glaive.format.manifest import Manifest

__all__ = ["ConvertFiles", "convert_parquet"]

_BATCH_ROWS = 64 * 1024


@dataclass(frozen=True, slots=True)
class ConvertFiles:
    """Write the rows of Parquet files into data files; can be pickled.

    Parameters
    ----------
    source
        The folder of the files.
    paths
        Below it.
    """

    plan: WritePlan
    source: ObjectStore
    paths: tuple[str, ...]

    def execute(self, dataset: object) -> list[Fragment]:  # there is none yet
        """New fragments, uncommitted. Memory: a file as it is stored, and a batch of rows."""
        return write_fragments(self.plan, self._rows())

    def _rows(self) -> Iterator[pa.RecordBatch]:
        wanted = self.plan.schema.to_arrow()
        for path in self.paths:
            file = _opened(self.source, path)
            found = file.schema_arrow
            if found.names != wanted.names:
                raise SchemaError(
                    f"{self.source.full(path)} has the columns {', '.join(found.names)}, the first "
                    f"file has {', '.join(wanted.names)}. Convert such files separately"
                )
            yield from file.iter_batches(_BATCH_ROWS)


def convert_parquet(
    uri: str,
    folder: str,
    storage: Mapping[str, str] | None,
    options: Mapping[str, Any],
    job: Job,
) -> Manifest:
    """Commit a new dataset with the rows of all Parquet files below a folder.

    Raises
    ------
    DatasetExistsError
        There is a dataset already.
    NotFoundError
        There is no such file.
    SchemaError
        The files differ, or hold a type that datasets do not have; or a column is only in the
        names of folders.
    """
    source = open_store(folder, storage)
    found = [
        (meta.path, meta.size)
        for meta in source.walk("")
        if meta.path.endswith(".parquet") and not _is_hidden(meta.path)
    ]
    if not found:
        raise NotFoundError(f"there is no file *.parquet below {source.uri}. Check the path")
    schema = _opened(source, found[0][0]).schema_arrow.remove_metadata()
    refuse_partition_folders((path for path, _ in found), schema.names, source.uri)
    properties = dict(job.properties)
    kept = {"compression": "balanced", **options}
    given = WriteOptions(mode="create", transaction_properties=properties, **kept)
    plan = plan_write(open_root(uri, storage), schema, given)
    runner: Any = job.runner  # that of a session
    tasks = [
        ConvertFiles(plan, source, tuple(paths)) for paths in _divided(found, runner.parallelism)
    ]
    written = runner.run(None, tasks)
    return commit_plan(plan, [part for parts in written for part in parts], once=job.once)


def _opened(source: ObjectStore, path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(pa.BufferReader(source.get(path)))
    except pa.ArrowInvalid as error:
        raise NotLanceError(f"{source.full(path)} is no Parquet file: {error}") from error


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _divided(files: Sequence[tuple[str, int]], parallelism: int) -> Iterator[list[str]]:
    """Neighbouring files, in parts of about equal bytes."""
    total = sum(size for _, size in files)
    share = total / min(parts_for(total, parallelism), MAX_TASKS)
    part: list[str] = []
    held = 0
    for path, size in files:
        part.append(path)
        held += size
        if held >= share:
            yield part
            part, held = [], 0
    if part:
        yield part
