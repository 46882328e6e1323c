"""Facts about a table as frames: its versions, fragments, files, indices, tags and branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from glaive.dataset.tasks import COUNTS, JOB
from glaive.errors import ObjectNotFoundError, OptionError
from glaive.spark.jobs.runner import parse_counts
from glaive.spark.lance_table.handle import TableHandle
from glaive.spark.streams.frames import read_changes
from glaive.table.load import load_manifest, read_transaction
from glaive.table.refs import branch_of
from glaive.table.versions import list_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from glaive.dataset.dataset import LanceDataset
    from glaive.format.manifest import Manifest


_FILE_ROWS: Final = 1024
"""Files that are described as Python's values at a time."""

_TIME: Final = pa.timestamp("us", "UTC")
_STRINGS: Final = pa.map_(pa.string(), pa.string())

_DETAIL: Final[dict[str, pa.DataType]] = {
    "uri": pa.string(),
    "version": pa.int64(),
    "branch": pa.string(),
    "timestamp": _TIME,
    "num_rows": pa.int64(),
    "num_deleted_rows": pa.int64(),
    "num_fragments": pa.int64(),
    "num_files": pa.int64(),
    "size_in_bytes": pa.int64(),
    "data_storage_version": pa.string(),
    "stable_row_ids": pa.bool_(),
    "config": _STRINGS,
}
_HISTORY: Final[dict[str, pa.DataType]] = {
    "version": pa.int64(),
    "timestamp": _TIME,
    "operation": pa.string(),
    "read_version": pa.int64(),
    "job_id": pa.string(),
    "counts": pa.map_(pa.string(), pa.int64()),
    "properties": _STRINGS,
}
_FRAGMENTS: Final[dict[str, pa.DataType]] = {
    "fragment_id": pa.int64(),
    "num_rows": pa.int64(),
    "num_deleted_rows": pa.int64(),
}
_FILES: Final[dict[str, pa.DataType]] = {
    "fragment_id": pa.int64(),
    "path": pa.string(),
    "kind": pa.string(),
    "size_in_bytes": pa.int64(),
    "format_version": pa.string(),
    "field_ids": pa.list_(pa.int32()),
    "base_id": pa.int64(),
}
_INDICES: Final[dict[str, pa.DataType]] = {
    "name": pa.string(),
    "kind": pa.string(),
    "columns": pa.list_(pa.string()),
    "num_rows_indexed": pa.int64(),
    "num_rows_not_indexed": pa.int64(),
    "num_segments": pa.int64(),
    "size_in_bytes": pa.int64(),
}
_REFS: Final[dict[str, pa.DataType]] = {
    "name": pa.string(),
    "kind": pa.string(),
    "version": pa.int64(),
    "branch": pa.string(),
}


class TableDescription(TableHandle):
    """The methods of ``LanceTable`` that describe it."""

    @property
    def version(self) -> int:
        """Number of the newest version. One or two requests."""
        return self._latest().version

    def toDF(self) -> DataFrame:
        """A frame over the newest version at the time of this call.

        :func:`glaive.spark.read` reads some columns only, or another version.
        """
        self._latest()
        frame = self._frame()
        return frame if self._name is None else frame.alias(self._name)

    def detail(self) -> DataFrame:
        """One row about the newest version: its size, format and configuration."""
        dataset = self._latest()
        manifest, snapshot = dataset.manifest, dataset.snapshot
        physical = int(manifest.physical_rows.sum())
        live = snapshot.num_rows
        row = {
            "uri": dataset.uri,
            "version": dataset.version,
            "branch": branch_of(manifest) or "main",
            "timestamp": manifest.timestamp,
            "num_rows": live,
            "num_deleted_rows": physical - live,
            "num_fragments": manifest.num_fragments,
            "num_files": manifest.columns.file_count,
            "size_in_bytes": manifest.columns.file_bytes,
            "data_storage_version": dataset.data_storage_version,
            "stable_row_ids": dataset.has_stable_row_ids,
            "config": list(dataset.config().items()),
        }
        return self._described(pa.Table.from_pylist([row], pa.schema(_DETAIL)))

    def history(self, limit: int | None = None) -> DataFrame:
        """The versions, the newest first.

        Columns: ``version``, ``timestamp``, ``operation``, ``read_version``, and of those that
        jobs made ``job_id``, ``counts`` (such as ``num_deleted_rows``), ``properties``.

        Parameters
        ----------
        limit
            Versions at most; default: all.

        Notes
        -----
        One request for each version, two if its transaction is in a file of its own.
        """
        given: object = limit
        if given is not None and (not isinstance(given, int) or given < 1):
            raise OptionError(f"limit: expected a number of versions, found {given!r}")
        rows = list(_history(self._latest(), limit))
        return self._described(pa.Table.from_pylist(rows, pa.schema(_HISTORY)))

    def fragments(self) -> DataFrame:
        """The fragments: ``fragment_id``, ``num_rows`` (live), ``num_deleted_rows``."""
        dataset = self._latest()
        live = dataset.snapshot.live_counts.astype(np.int64)
        ids, physical = dataset.manifest.fragment_ids, dataset.manifest.physical_rows
        return self._described(pa.table([ids, live, physical - live], schema=pa.schema(_FRAGMENTS)))

    def files(self) -> DataFrame:
        """The data and deletion files of the newest version, with fragment and size."""
        return self._described(files_table(self._latest().manifest))

    def indices(self) -> DataFrame:
        """The indices: ``name``, ``kind``, ``columns``, and how many rows they cover."""
        dataset = self._latest()
        total = dataset.snapshot.num_rows
        rows = [
            {
                "name": index.name,
                "kind": index.index_type,
                "columns": index.field_names,
                "num_rows_indexed": index.num_rows_indexed,
                "num_rows_not_indexed": max(0, total - index.num_rows_indexed),
                "num_segments": len(index.segments),
                "size_in_bytes": index.total_size_bytes,
            }
            for index in dataset.describe_indices()
        ]
        return self._described(pa.Table.from_pylist(rows, pa.schema(_INDICES)))

    def refs(self) -> DataFrame:
        """Tags and branches: ``name``, ``kind`` (``tag`` or ``branch``), ``version``, ``branch``.

        A tag has its version and the branch that it is on; a branch has the version and branch
        that it started from.
        """
        dataset = self._latest()
        rows: list[dict[str, Any]] = [
            {"name": name, "kind": "tag", "version": tag["version"], "branch": tag["branch"]}
            for name, tag in dataset.tags.list().items()
        ]
        rows += [
            {
                "name": name,
                "kind": "branch",
                "version": branch["parent_version"],
                "branch": branch["parent_branch"],
            }
            for name, branch in dataset.branches.list().items()
        ]
        for row in rows:
            row["branch"] = row["branch"] or "main"
        return self._described(pa.Table.from_pylist(rows, pa.schema(_REFS)))


def _history(dataset: LanceDataset, limit: int | None) -> Iterator[dict[str, Any]]:
    newest_first = list_versions(dataset.store)[::-1]
    for location in newest_first[:limit]:
        with suppress(ObjectNotFoundError):  # cleaned up after the listing
            manifest = load_manifest(dataset.store, location)
            transaction = read_transaction(dataset.store, manifest)
            properties = {} if transaction is None else dict(transaction.properties)
            yield {
                "version": manifest.version,
                "timestamp": manifest.timestamp,
                "operation": None if transaction is None else transaction.operation.wire_name,
                "read_version": None if transaction is None else transaction.read_version,
                "job_id": properties.get(JOB),
                "counts": list(parse_counts(properties.get(COUNTS)).items()),
                "properties": list(properties.items()),
            }


def files_table(manifest: Manifest) -> pa.Table:
    """The rows of :meth:`TableDescription.files`."""
    rows, schema = _files(manifest), pa.schema(_FILES)
    # Some at a time: as Python's values they take several times the memory.
    parts = iter(lambda: list(islice(rows, _FILE_ROWS)), [])
    return pa.Table.from_batches((pa.RecordBatch.from_pylist(one, schema) for one in parts), schema)


def _files(manifest: Manifest) -> Iterator[dict[str, Any]]:
    from glaive.format.paths import data_file_path, deletion_file_path

    for fragment in manifest.fragments():
        for file in fragment.files:
            yield {
                "fragment_id": fragment.id,
                "path": data_file_path(file.path),
                "kind": "data",
                "size_in_bytes": file.size,
                "format_version": str(file.version),
                "field_ids": list(file.fields),
                "base_id": file.base_id,
            }
        deleted = fragment.deletion_file
        if deleted is not None:
            version, number = deleted.read_version, deleted.number
            yield {
                "fragment_id": fragment.id,
                "path": deletion_file_path(fragment.id, version, number, bitmap=deleted.bitmap),
                "kind": "deletion",
                "base_id": deleted.base_id,
            }


# --- The change feed of a table ---------------------------------------------------------


class TableChanges(TableHandle):
    """The method of ``LanceTable`` that tells what versions changed."""

    def changes(
        self,
        startVersion: int,  # Delta's spelling, as of all methods here
        endVersion: int | None = None,  # the same
        columns: Sequence[str] | None = None,
        preimages: bool = True,
        net: bool = False,
    ) -> DataFrame:
        """Return the rows that versions inserted, updated and deleted.

        Parameters
        ----------
        startVersion, endVersion
            The first and the last version whose changes are read, both included; default for the
            last: the newest.
        columns
            Columns of the dataset; default: all.
        preimages
            Whether updated rows are also returned as they were before.
        net
            The difference of the two ends, instead of the changes of every version in between.

        Returns
        -------
        DataFrame
            The columns, then ``_change_type``, ``_commit_version`` and ``_commit_timestamp``.

        Raises
        ------
        OptionError, ColumnNotFoundError, SchemaError, VersionNotFoundError
            As for ``LanceDataset.changes``, before any job runs.
        """
        dataset = self._latest()
        storage = dataset.storage_options
        return read_changes(
            self._spark,
            dataset.uri,
            startVersion,
            endVersion,
            columns=columns,
            preimages=preimages,
            net=net,
            branch=branch_of(dataset.manifest),
            storage_options=None if storage is None else dict(storage),
        )
