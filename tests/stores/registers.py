"""A register of manifests that stops working where a test asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from glaive.table.manifest_store import ManifestEntry, ManifestStore

__all__ = ["Crash", "Faulty"]


class Crash(Exception):  # noqa: N818  # not an error of the store: the writer is gone
    """The writer ended at this point."""


class Faulty:
    """Passes on to another register and counts; ``before`` and ``after`` name calls that fail."""

    def __init__(self, inner: ManifestStore) -> None:
        self.inner = inner
        self.before: Mapping[str, Exception] = {}
        self.after: Mapping[str, Exception] = {}
        self.calls = Counter[str]()

    def _call(self, name: str, *given: object) -> object:
        self.calls[name] += 1
        if name in self.before:
            raise self.before[name]
        result = getattr(self.inner, name)(*given)
        if name in self.after:
            raise self.after[name]
        return result

    def get(self, root: str, version: int) -> ManifestEntry | None:
        """Pass on."""
        return self._call("get", root, version)

    def latest(self, root: str) -> ManifestEntry | None:
        """Pass on."""
        return self._call("latest", root)

    def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
        """Pass on."""
        return self._call("put_if_absent", root, entry)

    def put_if_exists(self, root: str, entry: ManifestEntry) -> None:
        """Pass on."""
        self._call("put_if_exists", root, entry)

    def drop(self, root: str) -> None:
        """Pass on."""
        self._call("drop", root)
