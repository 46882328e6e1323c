"""Commit an operation that was made for an opened version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from glaive.format.manifest import Manifest
from glaive.format.transaction import Transaction
from glaive.table.commit import commit_transaction
from glaive.table.protocol import CommitOptions, TableOperation

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["commit_operation"]


def commit_operation(
    dataset: OpenedVersion,
    operation: TableOperation,
    *,
    properties: Mapping[str, str] | None = None,
    once: str | None = None,
    options: CommitOptions | None = None,
) -> Manifest:
    """Commit an operation that was built for this version.

    Parameters
    ----------
    properties, once
        Entries of the transaction, and the one that identifies the commit, as for
        :func:`glaive.table.commit.commit_transaction`.

    Raises
    ------
    CommitConflictError
        Another writer changed the same thing since.
    """
    manifest = dataset.manifest
    transaction = Transaction(
        read_version=manifest.version, operation=operation, properties=dict(properties or {})
    )
    return commit_transaction(dataset.store, transaction, base=manifest, once=once, options=options)
