"""The locations of a dataset and of its base paths: which of them contains an object.

A manifest can have as many base paths as it has bytes, and rows as many values below them: each
location is parsed once, and found by its path instead of among all.
"""

from __future__ import annotations

from collections.abc import Iterator

from glaive.format.manifest import Manifest
from glaive.io.location import Location

__all__ = ["BaseLocations"]


class BaseLocations:
    """The location of each base path by its id, and that of the root by ``None``.

    Parameters
    ----------
    root
        URI of the root.
    manifest
        The version that has the base paths.

    Raises
    ------
    OptionError
        One is no location.
    """

    def __init__(self, root: str, manifest: Manifest) -> None:
        self._by_id: dict[int | None, Location] = {None: Location.parse(root)}
        for base in manifest.wire.base_paths:
            subject = f"base path {base.id} of {manifest.where}: "
            self._by_id.setdefault(base.id, Location.parse(base.path, subject))
        self._by_place: dict[tuple[str, str], tuple[int, int | None]] = {}
        for rank, (base_id, location) in enumerate(self._by_id.items()):
            self._by_place.setdefault(
                (location.store_key, location.path.rstrip("/")), (rank, base_id)
            )
        self._longest = max(len(path) for _, path in self._by_place)

    def __getitem__(self, base_id: int | None) -> Location:
        return self._by_id[base_id]

    def above(self, location: Location) -> tuple[int | None, Location] | None:
        """The first of them that contains a location, and its id; ``None`` if none does."""
        store = location.store_key
        found = [
            self._by_place[store, path]
            for path in _paths_above(location.path, self._longest)
            if (store, path) in self._by_place
        ]
        for _, base_id in sorted(found, key=lambda entry: entry[0]):
            if self._by_id[base_id].contains(location):
                return base_id, self._by_id[base_id]
        return None


def _paths_above(path: str, longest: int) -> Iterator[str]:
    """The path, and each folder above it, of at most so many characters."""
    yield ""
    at = path.find("/", 1)
    while 0 <= at <= longest:
        yield path[:at]
        at = path.find("/", at + 1)
    if path and len(path) <= longest:
        yield path
