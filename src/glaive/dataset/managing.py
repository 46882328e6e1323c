"""Versions of a dataset and what belongs to them. Each method hands on."""

from __future__ import annotations

from typing import Any, Self

from glaive.dataset.history import describe, describe_all, find_version
from glaive.dataset.opened import OpenedVersion
from glaive.format.transaction import Transaction
from glaive.table.load import open_latest, read_transaction

__all__ = ["Managing"]


class Managing(OpenedVersion):
    """The part of ``LanceDataset`` that deals with versions."""

    def versions(self) -> list[dict[str, Any]]:
        """All versions, oldest first: number, local time and totals. One request each."""
        return describe_all(self.store)

    def get_version(self) -> dict[str, Any]:
        """Number, local time and totals of this version."""
        return describe(self.manifest)

    def checkout_version(self, version: int | str) -> Self:
        """The dataset at another version; opened files are shared with this one."""
        return self._at(find_version(self.store, version, self.manifest.scheme))

    def checkout_latest(self) -> None:
        """Move this object to the newest version."""
        self._open(open_latest(self.store))

    def read_transaction(self, version: int) -> Transaction | None:
        """What the commit of a version did; ``None`` if that is no longer known."""
        manifest = self.checkout_version(version).manifest
        return read_transaction(self.store, manifest)
