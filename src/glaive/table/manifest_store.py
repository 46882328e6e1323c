"""The interface of a register of manifests: add an entry only if absent.

Specification: "External manifest store" in ``docs/format``.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from glaive.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One registered version.

    Parameters
    ----------
    version
        Number of the version.
    path
        Path of its manifest below the root of the dataset: the final or the staged name.
    size
        Bytes of the manifest, if known.
    e_tag
        Identity of the final object, if known.
    """

    version: int
    path: str
    size: int | None = None
    e_tag: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether the path is the final name."""
        return self.path.endswith(".manifest")


@runtime_checkable
class ManifestStore(Protocol):
    """Entries by root of the dataset (a URI) and version. Picklable; threads can share it.

    Reads are strongly consistent. Failures raise ``StoreError``.
    """

    def get(self, root: str, version: int) -> ManifestEntry | None:
        """Return the entry of a version; ``None`` if it is missing."""

    def latest(self, root: str) -> ManifestEntry | None:
        """Return the entry with the highest version, if any."""

    def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
        """Add an entry atomically; return ``False`` if the version has one."""

    def put_if_exists(self, root: str, entry: ManifestEntry) -> None:
        """Replace the entry of a version that has one."""

    def drop(self, root: str) -> None:
        """Delete all entries of a dataset, if any."""
