"""Locate blob values outside of the dataset by their URIs.

URIs within the dataset and its base paths are allowed; others only if the caller allows them.
"""

from __future__ import annotations

from glaive.format.limits import check_file_name
from glaive.format.manifest import Manifest
from glaive.io.access import open_external
from glaive.io.location import Location
from glaive.io.store import ObjectStore
from glaive.table.bases import base_of
from glaive.table.root import access_of

__all__ = ["ExternalValues"]


class ExternalValues:
    """The external blob values of one version."""

    def __init__(self, store: ObjectStore, manifest: Manifest) -> None:
        self._store = store
        self._manifest = manifest
        self._own: list[tuple[Location, int | None]] = [(Location.parse(store.uri), None)]
        for base in manifest.wire.base_paths:
            location = Location.parse(base.path, f"base path {base.id} of {manifest.where}: ")
            self._own.append((location, base.id))

    def locate(self, uri: str, source: str) -> tuple[ObjectStore, str]:
        """Store and path of the object at a URI; no request.

        Parameters
        ----------
        source
            Where the URI is from, for messages.

        Raises
        ------
        AccessError
            The URI is neither in the dataset nor below a base path, and the caller did not
            allow it; or that base path is not allowed.
        CorruptFileError
            The path leads out of its base.
        OptionError
            The URI is invalid.
        """
        location = Location.parse(uri, f"{source}: ")
        if not location.user:
            for base, base_id in self._own:
                if base.contains(location):
                    return self.below_base(base_id, base.below(location), source)
        return open_external(self._store, uri, access_of(self._store), subject=source)

    def below_base(self, base_id: int | None, path: str, source: str) -> tuple[ObjectStore, str]:
        """The same for a path below a base path, or below the root (``None``)."""
        store = self._store
        if base_id is not None:
            store, _ = base_of(store, self._manifest, base_id)
        return store, check_file_name(path, source, self._manifest.where)
