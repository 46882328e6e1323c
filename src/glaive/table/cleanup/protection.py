"""What a clean-up keeps beyond its policy: links, and versions that empty refs may name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime

from glaive.errors import CleanupError, StoreError
from glaive.format.names import is_staged_manifest_name
from glaive.io.listing import LinkTargets
from glaive.io.store import ObjectStore
from glaive.table.references import FOLDERS
from glaive.table.refs import BRANCHES, TREE, ref_files
from glaive.table.tags import TAGS
from glaive.table.versions import ManifestLocation

__all__ = ["Protection", "refuse_staged", "targets_of_others"]


def refuse_staged(store: ObjectStore, locations: Sequence[ManifestLocation]) -> None:
    """Check that no version is staged: its only manifest has the name of one that nobody needs.

    Raises
    ------
    CleanupError
        One is, as its manifest cannot be written under its final name.
    """
    for location in locations:
        if is_staged_manifest_name(location.path.rpartition("/")[2]):
            raise CleanupError(
                f"version {location.version} of {store.uri} is registered, and its manifest "
                f"{location.path} could not be written under its final name. Clean up again when "
                "the store and the manifest store take writes"
            )


def targets_of_others(root: ObjectStore, own: Collection[str]) -> LinkTargets:
    """What links of a dataset lead to, but for those of a branch that is deleted.

    ``own`` are the paths of the latter below the root.
    """
    return _link_targets([(root, folder) for folder in (TREE, *FOLDERS)], own)


class Protection:
    """What a clean-up keeps beyond the policy, with warnings."""

    def __init__(self, store: ObjectStore, root: ObjectStore) -> None:
        self._store, self._root = store, root
        self._branch_reason = None
        if store.uri.startswith(f"{root.uri}/"):  # a branch is below the root
            self._branch_reason = root.link_out(store.uri[len(root.uri) + 1 :])
        self.warnings: list[str] = []

    def reason(self, folder: str) -> str | None:
        """Why files in a folder are kept; ``None`` if they may be deleted."""
        return self._branch_reason or self._store.link_out(folder)

    def is_reachable(self, folder: str) -> bool:
        """Whether files in a folder may be deleted; otherwise adds a warning."""
        reason = self.reason(folder)
        if reason is not None:
            self.warnings.append(f"nothing in {self._store.full(folder)} was deleted: {reason}")
        return reason is None

    def is_link(self, path: str) -> bool:
        """Whether the path is a link, which writers never create; adds a warning."""
        if not self._store.is_link(path):
            return False
        self.warnings.append(f"{self._store.full(path)} is a link, which no Lance writer created")
        return True

    def targets(self) -> LinkTargets:
        """What links of this branch and of the others lead to.

        What a version needs may lie there, under a name that no version has.
        """
        folders = [(self._root, TREE)]
        for store in {one.uri: one for one in (self._root, self._store)}.values():
            folders += [(store, folder) for folder in FOLDERS]
        return _link_targets(folders)

    def keep(self, path: str) -> None:
        """Add why a link stays, or what a link leads to."""
        if not self.is_link(path):
            self.warnings.append(f"{self._store.full(path)} was kept: a link leads to it")

    def unknown_refs(self, root: ObjectStore) -> list[datetime | None]:
        """Times of empty refs; each may have been meant for any version that existed then."""
        times: list[datetime | None] = []
        for folder in (TAGS, BRANCHES):
            for meta in ref_files(root, folder).values():
                if meta.size:
                    continue
                times.append(meta.modified)
                self.warnings.append(
                    f"{root.full(meta.path)} is empty, so its version is unknown: older versions "
                    "were kept. Create or delete the tag or branch"
                )
        return times


def _link_targets(
    folders: Iterable[tuple[ObjectStore, str]], own: Collection[str] = ()
) -> LinkTargets:
    links = []
    for store, folder in folders:
        for path in store.links(folder):
            with suppress(StoreError):  # no version can name a link of such a name
                if path not in own:
                    links.append(store.full(path))
    return LinkTargets(links)
