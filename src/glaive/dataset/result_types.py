"""Dictionaries that methods of datasets take and return, for annotations.

At run time they are plain dictionaries with these keys.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa

if TYPE_CHECKING:
    from glaive.dataset.commits.transactions import Transaction
    from glaive.dataset.dataset import LanceDataset


class AlterColumn(TypedDict, total=False):
    """A change of ``alter_columns``."""

    path: str
    name: str | None
    nullable: bool | None
    data_type: pa.DataType | None


class AutoCleanupConfig(TypedDict):
    """``auto_cleanup_options`` of ``write_dataset``: after how many versions, and seconds kept."""

    interval: int
    older_than_seconds: int


class Branch(TypedDict):
    """An entry of ``branches.list()``."""

    parent_branch: str | None
    branch_identifier: list[tuple[int, str]]
    parent_version: int
    create_at: int
    manifest_size: int
    metadata: dict[str, str]


class BulkCommitResult(TypedDict):
    """The result of ``commit_batch``."""

    dataset: LanceDataset
    merged: Transaction


class DatasetStats(TypedDict):
    """The result of ``stats.dataset_stats()``."""

    num_deleted_rows: int
    num_fragments: int
    num_small_files: int


class DeleteResult(TypedDict):
    """The result of ``delete``."""

    num_deleted_rows: int


class ExecuteResult(TypedDict):
    """The result of a merge."""

    num_inserted_rows: int
    num_updated_rows: int
    num_deleted_rows: int


class IndexInformation(TypedDict):
    """An entry of ``list_indices()``."""

    name: str
    type: str
    uuid: str
    fields: list[str]
    version: int
    fragment_ids: set[int]
    base_id: int | None


class Tag(TypedDict):
    """An entry of ``tags.list()``."""

    branch: str | None
    version: int
    created_at: datetime | None
    updated_at: datetime | None
    manifest_size: int
    metadata: dict[str, str]


class UpdateResult(TypedDict):
    """The result of ``update``."""

    num_rows_updated: int


class Version(TypedDict):
    """An entry of ``versions()``."""

    version: int
    timestamp: datetime
    metadata: dict[str, Any]


class VersionRef(TypedDict):
    """An entry of ``version_refs()``."""

    version: int
