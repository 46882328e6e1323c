"""What changed between two versions: transactions, and inserted, updated and deleted rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.dataset.commits.transactions import Transaction, transaction_of
from glaive.dataset.scanner import Scanner
from glaive.dataset.versions.history import find_version
from glaive.errors import OptionError, UnsupportedFeatureError, VersionNotFoundError
from glaive.format.manifest import Feature
from glaive.scan.projection import CREATED_AT, ROW_ID, UPDATED_AT, refuse_taken
from glaive.scan.snapshot import Session, Snapshot
from glaive.scan.views import Views
from glaive.table.load import check_not_replaced

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion


_IDS: Final = pa.schema([pa.field(ROW_ID, pa.uint64())])
_BATCH: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DatasetDelta:
    """Changes after ``begin_version`` up to ``end_version``; returned by ``dataset.delta``.

    Rows are those of the opened version. Only datasets with stable row ids record when rows were
    created and updated; in others all rows count as created by the first version.
    """

    dataset: OpenedVersion
    begin_version: int
    end_version: int

    def list_transactions(self) -> list[Transaction | None]:
        """The transactions of the versions, the oldest first; at most two requests per version.

        One more tells whether they are of this dataset.

        Raises
        ------
        VersionNotFoundError
            One of the versions does not exist.
        CommitConflictError
            Another dataset was made in the place of this one.
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

        Ids of both versions are held in memory.

        Raises
        ------
        UnsupportedFeatureError
            The dataset has no stable row ids.
        OptionError, VersionNotFoundError
            The range is empty, or a version does not exist.
        CommitConflictError
            Another dataset was made in the place of this one.
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
            for start in range(0, len(deleted), _BATCH):
                ids: Any = pa.array(deleted[start : start + _BATCH])
                yield pa.RecordBatch.from_arrays([ids], schema=_IDS)

        return pa.RecordBatchReader.from_batches(_IDS, batches())

    def _rows(self, predicate: str) -> pa.RecordBatchReader:
        names = self.dataset.manifest.schema.names
        system = (ROW_ID, CREATED_AT, UPDATED_AT)
        refuse_taken(self.dataset.manifest.schema, *system)
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
        refuse_taken(manifest.schema, ROW_ID)
        scanner = Scanner.of(Views(Snapshot(store, manifest, Session())), columns=[ROW_ID])
        ids: NDArray[np.uint64] = scanner.to_table().column(ROW_ID).to_numpy()
        return ids


def compare_versions(
    dataset: OpenedVersion,
    compared_against: int | None,
    begin_version: int | None,
    end_version: int | None,
) -> DatasetDelta:
    """The change from one version to another.

    Raises
    ------
    OptionError
        Not exactly one of ``compared_against`` and the pair of versions is given.
    VersionNotFoundError
        ``compared_against`` is newer than the opened version.
    """
    ends = (begin_version, end_version)
    if compared_against is not None and ends == (None, None):
        begin_version, end_version = compared_against, dataset.manifest.version
    elif compared_against is not None or begin_version is None or end_version is None:
        half = compared_against is None and ends != (None, None)
        said = "Must specify both with_begin_version and with_end_version: " if half else ""
        raise OptionError(
            f"delta: {said}Must specify either compared_against or both begin_version and "
            "end_version; "
            f"found compared_against={compared_against}, begin_version={begin_version}, "
            f"end_version={end_version}"
        )
    versions: dict[str, object] = {"begin_version": begin_version, "end_version": end_version}
    for name, value in versions.items():
        if not isinstance(value, int) or value < 0:
            raise OptionError(f"{name}: expected a version number, found {value!r}")
    if compared_against is not None and compared_against > dataset.manifest.version:
        raise VersionNotFoundError(
            f"delta: Version not found error: {dataset.uri} has no version {compared_against} "
            f"before version {dataset.manifest.version}, which is open. Compare with an earlier one"
        )
    return DatasetDelta(dataset, begin_version, end_version)
