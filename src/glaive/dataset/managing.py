"""Versions of a dataset and what belongs to them. Each method hands on."""

from __future__ import annotations

from typing import Any, Self

from glaive.dataset.history import describe, describe_all
from glaive.dataset.opened import OpenedVersion
from glaive.dataset.references import resolve
from glaive.dataset.refs import Branches, Tags
from glaive.format.transaction import Transaction
from glaive.table.load import open_latest, read_transaction
from glaive.table.versions import list_versions

__all__ = ["Managing"]


class Managing(OpenedVersion):
    """The part of ``LanceDataset`` that deals with versions."""

    def versions(self) -> list[dict[str, Any]]:
        """All versions, oldest first: number, local time and totals. One request each."""
        return describe_all(self.store)

    def get_version(self) -> dict[str, Any]:
        """Number, local time and totals of this version."""
        return describe(self.manifest)

    def checkout_version(self, version: int | str | tuple[str | None, int | None]) -> Self:
        """The dataset at another version; opened files are shared with this one.

        A number is a version of this branch, text is a tag, and a pair a branch and a version
        of it, ``None`` for the main branch and for the newest version.

        Raises
        ------
        VersionNotFoundError, RefNotFoundError
            There is no such version, tag or branch.
        """
        return self._referenced(resolve(self.store, self.manifest, version))

    @property
    def tags(self) -> Tags:
        """Names for versions: ``list``, ``create``, ``update``, ``delete``, …"""
        return Tags(self)

    @property
    def branches(self) -> Branches:
        """Lines of versions beside the main one: ``list``, ``delete``, …"""
        return Branches(self)

    def version_refs(self) -> list[dict[str, int]]:
        """Numbers of all versions of this branch, oldest first. One listing."""
        return [{"version": one.version} for one in list_versions(self.store)]

    def checkout_latest(self) -> None:
        """Move this object to the newest version."""
        self._open(open_latest(self.store))

    def read_transaction(self, version: int) -> Transaction | None:
        """What the commit of a version did; ``None`` if that is no longer known."""
        manifest = self.checkout_version(version).manifest
        return read_transaction(self.store, manifest)
