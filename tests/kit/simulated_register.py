"""A register of manifests as an actor of a simulation sees it: every call is a request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.kit.simulated_bucket import Bucket
from tests.kit.simulation import Actor

from glaive.errors import ObjectExistsError, StoreError
from glaive.io.store import PutMode
from glaive.table.manifest_store import ManifestEntry

__all__ = ["SimulatedRegister", "entry_path"]

_DIGITS = 20


def entry_path(version: int, folder: str = "") -> str:
    """Name of the object that stands for the entry of a version, by the folder of its root."""
    return f"{folder}/{version:0{_DIGITS}d}".lstrip("/")


class SimulatedRegister:
    """Entries by folder of the root and version; they meet the faults that objects meet.

    Parameters
    ----------
    actor
        Whose requests these are.
    entries
        The entries as objects of a bucket of their own, which remembers who wrote them. Their
        content is path and size; a copy serves any copy of the bucket of the simulation.
    """

    __slots__ = ("_actor", "_entries")

    def __init__(self, actor: Actor, entries: Bucket) -> None:
        self._actor, self._entries = actor, entries

    def get(self, root: str, version: int) -> ManifestEntry | None:
        """The entry of a version; ``None`` if there is none."""
        self._ask(f"look up version {version} of {root}", None)
        return self._entry(self._key(root, version))

    def latest(self, root: str) -> ManifestEntry | None:
        """The entry with the highest version; ``None`` if there are no entries."""
        self._ask(f"look up the newest version of {root}", None)
        last = max(self._keys(root), default=None)
        return None if last is None else self._entry(last)

    def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
        """Add an entry atomically; ``False`` if the version has one."""
        key = self._key(root, entry.version)
        try:
            self._ask(f"add version {entry.version} of {root}", self._put(key, entry, "create"))
        except ObjectExistsError:
            return False
        return True

    def put_if_exists(self, root: str, entry: ManifestEntry) -> None:
        """Replace the entry of a version that has one."""
        key = self._key(root, entry.version)

        put = self._put(key, entry, "overwrite")

        def replace() -> None:
            if self._entries.get(key) is None:
                raise StoreError(f"the register has no version {entry.version} of {root}.")
            put()

        self._ask(f"replace version {entry.version} of {root}", replace)

    def drop(self, root: str) -> None:
        """Delete all entries of a dataset, if any."""
        for key in self._keys(root):
            self._ask(f"forget {key} of {root}", partial(self._remove, key))

    def _ask(self, what: str, effect: Callable[[], None] | None) -> None:
        self._actor.simulation.request(self._actor, what, effect)

    def _put(self, key: str, entry: ManifestEntry, mode: PutMode) -> Callable[[], None]:
        """The effect of a request, which may have it when its actor does something else."""
        content, doing = f"{entry.path} {entry.size or 0}".encode(), self._actor.doing
        simulation = self._actor.simulation
        return lambda: self._entries.put(key, content, mode, simulation.time, doing)

    def _remove(self, key: str) -> None:
        self._entries.delete(key, self._actor.simulation.time)

    def _entry(self, key: str) -> ManifestEntry | None:
        data = self._entries.get(key)
        if data is None:
            return None
        path, size = data.to_pybytes().decode().split(" ")
        return ManifestEntry(version=int(key[-_DIGITS:]), path=path, size=int(size) or None)

    def _folder(self, root: str) -> str:
        return root.removeprefix(self._actor.simulation.bucket.uri).strip("/")

    def _key(self, root: str, version: int) -> str:
        return entry_path(version, self._folder(root))

    def _keys(self, root: str) -> list[str]:
        folder = self._folder(root)
        found = (meta.path for meta in self._entries.walk(folder))
        return [key for key in found if key[:-_DIGITS].strip("/") == folder]
