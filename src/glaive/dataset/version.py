"""One opened version of a dataset: the value that this layer's functions take.

``LanceDataset`` holds one and replaces it when it moves. Objects that follow a dataset, such as
its tags, hold an :class:`OpenDataset` instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from glaive.dataclass import dataclass
from glaive.dataset.versions.history import find_version
from glaive.format.manifest import Manifest
from glaive.format.paths import DETACHED
from glaive.io.store import ObjectStore
from glaive.scan.session import Session
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import Views
from glaive.table.load import open_latest_since

if TYPE_CHECKING:
    from glaive.dataset.versions.references import Referenced

__all__ = ["OpenDataset", "OpenedVersion"]


@dataclass(frozen=True, slots=True, eq=False)
class OpenedVersion:
    """A version of a dataset, ready to be read. It never changes; safe to share between threads.

    Parameters
    ----------
    views
        Its manifest, store and session, and cached file metadata.
    uri
        URI with which the dataset was opened.
    storage_options
        Options of the object store, as they were given.
    scan_defaults
        Default options of scans.
    """

    views: Views
    uri: str = field(repr=False)  # a URL may have a password
    storage_options: Mapping[str, str] | None = field(repr=False)
    scan_defaults: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        store: ObjectStore,
        manifest: Manifest,
        *,
        uri: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        session: Session | None = None,
        scan_defaults: Mapping[str, Any] | None = None,
    ) -> OpenedVersion:
        """The version that a manifest describes; nothing is read."""
        views = Views(Snapshot(store, manifest, Session() if session is None else session))
        # ``memory://`` is another place for each who opens it: keep this one's name.
        location = store.uri if uri is None or uri.rstrip("/") == "memory:" else uri
        return cls(views, location, storage_options, dict(scan_defaults or {}))

    @property
    def snapshot(self) -> Snapshot:
        """The version without cached file metadata."""
        return self.views.snapshot

    @property
    def store(self) -> ObjectStore:
        """The root of the dataset."""
        return self.views.snapshot.store

    @property
    def manifest(self) -> Manifest:
        """The manifest of the version."""
        return self.views.snapshot.manifest

    @property
    def session(self) -> Session:
        """The cache of opened files."""
        return self.views.snapshot.session

    def with_scan_defaults(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options of a scan, with defaults for options that are not given.

        Named columns are all that a scan returns: engines ask by name, and refuse one more.
        """
        if not self.scan_defaults:
            return given
        defaults = self.scan_defaults.items()
        added = ("with_row_id", "with_row_address") if given.get("columns") is not None else ()
        return given | {
            name: value for name, value in defaults if name not in added and given.get(name) is None
        }

    def at(self, version: int | Manifest, store: ObjectStore | None = None) -> OpenedVersion:
        """Another version of this branch, with the same opened files.

        Parameters
        ----------
        version
            Its number or its manifest.
        store
            Root to use instead of this one, for example with more base paths.
        """
        if isinstance(version, int):
            version = find_version(self.store, version, self.manifest.scheme)
        root = self.store if store is None else store
        return replace(self, views=Views(Snapshot(root, version, self.session)))

    def is_after(self, manifest: Manifest) -> bool:
        """Whether this version was made after another one; one outside of the history is none."""
        here, other = self.manifest.version, manifest.version
        return here > other and not (here | other) & DETACHED

    def at_latest(self, known: int = 0) -> OpenedVersion:
        """The newest version of this branch; none before this one, or before ``known``."""
        here = self.manifest.version
        here = 0 if here & DETACHED else here
        return self.at(open_latest_since(self.store, max(known, here)))

    def at_reference(self, target: Referenced) -> OpenedVersion:
        """The version that a reference resolved to, possibly on another branch."""
        if target.store is self.store:
            return self.at(target.manifest)
        return replace(self.at(target.manifest, target.store), uri=target.store.uri)


@runtime_checkable
class OpenDataset(Protocol):
    """A dataset that is opened at a version and can move to another one."""

    @property
    def opened(self) -> OpenedVersion:
        """The version it is at."""

    def move_to(self, manifest: Manifest) -> None:
        """Move it to another version of the same branch."""
