"""``dataset.restore``: an old version once more, as the newest one."""

from __future__ import annotations

from glaive.format.manifest import Manifest
from glaive.format.transaction import Transaction
from glaive.io.store import ObjectStore
from glaive.table.commit import commit_transaction
from glaive.table.load import open_latest
from glaive.table.operations.restore import Restore

__all__ = ["restored"]


def restored(store: ObjectStore, manifest: Manifest) -> Manifest:
    """Commit a version once more, as the newest one."""
    newest = open_latest(store)
    transaction = Transaction(read_version=newest.version, operation=Restore(manifest.version))
    return commit_transaction(store, transaction, base=newest)
