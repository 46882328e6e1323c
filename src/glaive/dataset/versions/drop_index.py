"""``dataset.drop_index``: a version without an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.versions.indices import absent_index
from glaive.format.manifest import Manifest
from glaive.table.operations.create_index import CreateIndex

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["drop_index"]


def drop_index(dataset: OpenedVersion, name: str) -> Manifest:
    """Make a version without an index; its files stay until they are cleaned up.

    Raises
    ------
    IndexNotFoundError
        There is no index of this name.
    """
    gone = tuple(entry for entry in dataset.manifest.indices if entry.name == name)
    if not gone:
        raise absent_index(dataset.manifest, name)
    return commit_operation(dataset, CreateIndex(removed=gone))
