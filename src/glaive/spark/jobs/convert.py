"""A dataset from Parquet files, written by tasks; rows do not pass through Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.plan import WriteOptions, WritePlan, plan_write
from glaive.dataset.writing.rows import commit_plan
from glaive.dataset.writing.source import lost_values
from glaive.errors import NotFoundError, NotLanceError, SchemaError
from glaive.format.fragment import FragmentList
from glaive.ingestion.formats import open_parquet
from glaive.ingestion.sources import folder_of
from glaive.ingestion.task import completed, folder_columns, folder_values
from glaive.io.store import ObjectStore
from glaive.io.uri import open_store
from glaive.spark.jobs.runner import divide
from glaive.spark.types import unassignable
from glaive.table.root import open_root

if TYPE_CHECKING:
    from glaive.dataset.tasks import Job
    from glaive.format.manifest import Manifest


_BATCH_ROWS = 64 * 1024


@dataclass(frozen=True, slots=True)
class Conversion:
    """What all tasks of a conversion share; can be pickled.

    Parameters
    ----------
    plan
        Of the new dataset.
    source
        The folder of the files.
    """

    plan: WritePlan
    source: ObjectStore

    def rows(self, paths: Sequence[str]) -> Iterator[pa.RecordBatch | pa.Table]:
        """The rows of some files.

        Raises
        ------
        SchemaError
            A file has other columns than the first one, or of another kind of type.
        """
        whole = self.plan.schema.to_arrow()
        for path in paths:
            file = _opened(self.source, path)
            found = file.schema_arrow
            values = folder_values(folder_of(self.source), path, whole, found.names)
            wanted = pa.schema([field for field in whole if field.name not in values])
            if found.names != wanted.names:
                raise SchemaError(
                    f"{self.source.full(path)} has the columns {', '.join(found.names)}, the first "
                    f"file has {', '.join(wanted.names)}. Convert such files separately"
                )
            # Arrow casts a struct without the members that are not asked for, and a time to its
            # day, without a word.
            fault = unassignable(found, wanted)
            if fault is not None:
                column, first, brought = fault
                raise SchemaError(
                    f"{self.source.full(path)} has {brought} in the column {column!r}, the first "
                    f"file has {first}. Convert such files separately"
                )
            for field in found:
                lost = lost_values(field.type, wanted.field(field.name).type)
                if lost is not None:
                    raise SchemaError(
                        f"{self.source.full(path)}: the column {field.name!r} has {lost}. "
                        "Convert such files separately"
                    )
            for batch in file.iter_batches(_BATCH_ROWS):
                yield completed(batch, whole, values) if values else batch


@dataclass(frozen=True, slots=True)
class ConvertFiles:
    """Write the rows of Parquet files into data files; can be pickled.

    Parameters
    ----------
    paths
        Of the files, below the folder.
    """

    paths: tuple[str, ...]

    def execute(self, dataset: object, shared: Conversion) -> FragmentList:  # there is none yet
        """New fragments, uncommitted. Memory: a file as it is stored, and a batch of rows."""
        return FragmentList.of(write_fragments(shared.plan, shared.rows(self.paths)))


def convert_parquet(
    uri: str, folder: str, storage: Mapping[str, str] | None, options: Mapping[str, Any], job: Job
) -> Manifest:
    """Commit a new dataset with the rows of all Parquet files below a folder.

    Raises
    ------
    DatasetExistsError
        There is a dataset already.
    NotFoundError
        There is no such file.
    SchemaError
        The files differ, or hold a type that datasets do not have.
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
    places = ((folder_of(source), path) for path, _ in found)
    schema = pa.schema([*schema, *folder_columns(places, schema.names)])
    properties = dict(job.properties)
    kept = {"compression": "balanced", **options}
    given = WriteOptions(mode="create", transaction_properties=properties, **kept)
    plan = plan_write(open_root(uri, storage), schema, given)
    runner: Any = job.runner  # that of a session
    tasks = convert_tasks(found, runner.parallelism)
    written = runner.run(None, tasks, Conversion(plan, source))
    return commit_plan(plan, FragmentList.joined(written), once=job.once)


def _opened(source: ObjectStore, path: str) -> Any:
    try:
        return open_parquet(pa.BufferReader(source.get(path)))
    except pa.ArrowInvalid as error:
        raise NotLanceError(f"{source.full(path)} is no Parquet file: {error}") from error


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def convert_tasks(files: Sequence[tuple[str, int]], parallelism: int) -> list[ConvertFiles]:
    """Tasks for neighbouring files, of about equal bytes.

    Parameters
    ----------
    files
        Paths and sizes, at least one.
    parallelism
        Tasks that run at a time.
    """
    sizes = np.fromiter((size for _, size in files), np.int64, len(files))
    cuts = divide(sizes, int(sizes.sum()), parallelism)
    return [
        ConvertFiles(tuple([path for path, _ in files[start:stop]]))
        for start, stop in pairwise(cuts)
    ]
