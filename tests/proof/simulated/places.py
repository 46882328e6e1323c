"""Where the table of a simulation is: its objects, and its register of manifests if it has one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.kit.simulated_bucket import Bucket
from tests.kit.simulated_register import SimulatedRegister, entry_path
from tests.kit.simulated_store import SimulatedStore
from tests.kit.simulation import Actor, Faults, Simulation

from glaive.io.store import ObjectStore
from glaive.table.root import guarded
from glaive.table.versions import ManifestLocation

__all__ = ["Place"]


@dataclass(frozen=True)
class Place:
    """Where a table is.

    Parameters
    ----------
    bucket
        Its objects.
    entries
        The entries of its versions; ``None`` without a register.
    oldest
        Its first version.
    needed
        Paths of the files of other tables that it refers to.
    fixed
        Whether it names its own place, or that of others beside it, and so stays there.
    """

    bucket: Bucket
    entries: Bucket | None = None
    oldest: int = 1
    needed: frozenset[str] = frozenset()
    fixed: bool = False

    def store(self, actor: Actor, folder: str = "") -> ObjectStore:
        """The root of the table, or of another one in a folder, as an actor sees it."""
        store = SimulatedStore(actor, folder)
        if self.entries is None:
            return store
        return guarded(store, manifest_store=SimulatedRegister(actor, self.entries))

    def observed(self, folder: str = "") -> ObjectStore:
        """A store without faults, of an observer."""
        return self.store(Simulation(0, self.bucket, Faults()).observer(), folder)

    def copied(self, uri: str | None = None, *, careless: bool = False) -> Place:
        """The same table in another place, or in the same, to try something."""
        bucket = self.bucket.copied(self._at(uri), careless=careless)
        return replace(self, bucket=bucket, entries=self._copied_entries())

    def resurrected(self, uri: str) -> Place:
        """The table with all that was ever written."""
        bucket = self.bucket.resurrected(self._at(uri))
        return replace(self, bucket=bucket, entries=self._copied_entries())

    def _at(self, uri: str | None) -> str:
        return self.bucket.uri if uri is None or self.fixed else uri

    def _copied_entries(self) -> Bucket | None:
        return None if self.entries is None else self.entries.copied(self.entries.uri)

    def written_for(self, location: ManifestLocation) -> object:
        """What a version was made for: others may have put its manifest where it should be."""
        if self.entries is not None:
            entry = entry_path(location.version)
            if self.entries.get(entry) is not None:
                return self.entries.written_for(entry)
        return self.bucket.written_for(location.path)
