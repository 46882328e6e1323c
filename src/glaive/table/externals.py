"""Values of blob columns that lie outside of the dataset: where the URI of one leads.

Within the dataset and below its base paths a URI is followed; elsewhere only as far as the
caller allows it.
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
    """The values of one version that lie elsewhere."""

    def __init__(self, store: ObjectStore, manifest: Manifest) -> None:
        self._store = store
        self._manifest = manifest
        self._own: list[tuple[Location, int | None]] = [(Location.parse(store.uri), None)]
        for base in manifest.wire.base_paths:
            what = f"base path {base.id} of {manifest.where}: "
            self._own.append((Location.parse(base.path, what), base.id))

    def locate(self, uri: str, what: str) -> tuple[ObjectStore, str]:
        """Store and path of the object at a URI; no request.

        Parameters
        ----------
        what
            What names it, for messages.

        Raises
        ------
        AccessError
            It lies neither in the dataset nor below a base path, and the caller did not allow
            it; or that base path is not allowed.
        CorruptFileError
            It leads out of where it says it lies.
        OptionError
            It names no place.
        """
        place = Location.parse(uri, f"{what}: ")
        if not place.user:
            for around, base_id in self._own:
                if around.contains(place):
                    return self._within(base_id, around.below(place), what)
        return open_external(self._store, uri, access_of(self._store), what=what)

    def below_base(self, base_id: int, path: str, what: str) -> tuple[ObjectStore, str]:
        """The same for a value that is named by its path below a base path."""
        return self._within(base_id, path, what)

    def _within(self, base_id: int | None, path: str, what: str) -> tuple[ObjectStore, str]:
        store = self._store
        if base_id is not None:
            store, _ = base_of(store, self._manifest, base_id)
        return store, check_file_name(path, what, self._manifest.where)
