"""Where the table of a simulation is: its objects, and its register of manifests if it has one."""

from __future__ import annotations

from dataclasses import dataclass

from glaive.io.store import ObjectStore
from glaive.table.root import guarded
from glaive.table.versions import ManifestLocation, list_versions
from glaive.testing.simulated_bucket import Bucket
from glaive.testing.simulated_register import SimulatedRegister, entry_path
from glaive.testing.simulated_store import SimulatedStore
from glaive.testing.simulation import Actor, Faults, Simulation

__all__ = ["Place", "registered"]

_STAGED = "-00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Place:
    """The objects of a table, and the entries of its versions, or ``None`` without a register."""

    bucket: Bucket
    entries: Bucket | None = None

    def store(self, actor: Actor) -> ObjectStore:
        """The root of the table, as an actor sees it."""
        store = SimulatedStore(actor)
        if self.entries is None:
            return store
        return guarded(store, manifest_store=SimulatedRegister(actor, self.entries))

    def observed(self) -> ObjectStore:
        """A store without faults, of an observer."""
        return self.store(Simulation(0, self.bucket, Faults()).observer())

    def copied(self, uri: str | None = None, *, careless: bool = False) -> Place:
        """The same table in another place, or in the same, to try something."""
        bucket = self.bucket.copied(uri or self.bucket.uri, careless=careless)
        return Place(bucket, _copied(self.entries))

    def resurrected(self, uri: str) -> Place:
        """The table with all that was ever written."""
        return Place(self.bucket.resurrected(uri), _copied(self.entries))

    def written_for(self, location: ManifestLocation) -> object:
        """What a version was made for: others may have put its manifest where it should be."""
        if self.entries is not None:
            entry = entry_path(location.version)
            if self.entries.get(entry) is not None:
                return self.entries.written_for(entry)
        return self.bucket.written_for(location.path)


def _copied(entries: Bucket | None) -> Bucket | None:
    return None if entries is None else entries.copied(entries.uri)


def registered(place: Place, versions: range, unfinished: int | None) -> Place:
    """A table some versions of which have entries; that of one was left before it was finished."""
    bucket, entries = Bucket(place.bucket.uri), Bucket("register")
    there = {one.version: one.path for one in list_versions(place.observed())}
    final = there.get(unfinished or 0)
    for meta in place.bucket.walk(""):
        content = place.bucket.get(meta.path)
        assert content is not None
        path = f"{meta.path}{_STAGED}" if meta.path == final else meta.path
        bucket.put(path, content.to_pybytes(), "create", 0.0)
    for version in versions:
        path = there[version]
        path = f"{path}{_STAGED}" if path == final else path
        entries.put(entry_path(version), f"{path} 0".encode(), "create", 0.0)
    return Place(bucket, entries)
