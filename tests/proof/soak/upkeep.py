"""The other threads of the soak: upkeep of the table, and readers of old versions."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from datetime import timedelta

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import CommitConflictError, CommitContentionError, GlaiveError, RefExistsError

_READ_FOR = timedelta(minutes=1)
"""Versions of this age are read by nobody but those who expect that they are not there."""

INDICES = {"key": "BTREE", "group": "BITMAP", "text": "INVERTED", "vector": "IVF_FLAT"}


class Upkeep:
    """Compacts, extends indices and cleans up."""

    def __init__(self, uri: str, seed: int) -> None:
        self.uri, self.rng = uri, random.Random(f"{seed} upkeep")
        self.counts: Counter[str] = Counter()

    def act(self) -> None:
        """One piece of work; a conflict with a writer leaves all as it was."""
        work = self.rng.choice([self.compact, self.extend, self.clean_up, self.build, self.tag])
        try:
            work(glaive.dataset(self.uri))
        except (CommitConflictError, CommitContentionError):
            self.counts["refused"] += 1
        else:
            self.counts["changes"] += 1

    def compact(self, at: LanceDataset) -> None:
        """Put small fragments together, without their deleted rows."""
        at.optimize.compact_files(
            target_rows_per_fragment=self.rng.choice([200, 2000]),
            materialize_deletions_threshold=0.05,
        )

    def extend(self, at: LanceDataset) -> None:
        """Index the rows that no index has."""
        at.optimize.optimize_indices()

    def build(self, at: LanceDataset) -> None:
        """Replace an index."""
        column = self.rng.choice(sorted(INDICES))
        if column == "vector":
            at.create_index(column, INDICES[column], num_partitions=2, replace=True)
        else:
            at.create_scalar_index(column, INDICES[column], replace=True)

    def clean_up(self, at: LanceDataset) -> None:
        """Delete versions that nobody reads any more; the tagged one stays."""
        at.cleanup_old_versions(_READ_FOR, error_if_tagged_old_versions=False)

    def tag(self, at: LanceDataset) -> None:
        """Move the one tag to this version."""
        if "kept" in at.tags.list():
            at.tags.delete("kept")
        try:
            at.tags.create("kept", at.version)
        except RefExistsError:
            self.counts["refused"] += 1


class OldVersions:
    """Reads versions again later: they say what they said, or are cleaned up."""

    def __init__(self, uri: str, seed: int) -> None:
        self.uri, self.rng = uri, random.Random(f"{seed} old versions")
        self.known: dict[int, str] = {}
        self.counts: Counter[str] = Counter()

    def act(self) -> None:
        """Read one version that was read before, or the newest one.

        Raises
        ------
        AssertionError
            The version has other rows than before.
        GlaiveError
            It cannot be read, and is there.
        """
        newest = glaive.dataset(self.uri)
        version = newest.version
        if self.known and self.rng.random() < 0.7:
            version = self.rng.choice(sorted(self.known))
        try:
            found = _digest(newest.checkout_version(version))
        except GlaiveError:
            remaining = {one["version"] for one in glaive.dataset(self.uri).versions()}
            if version in remaining:
                raise
            self.known.pop(version, None)
            self.counts["cleaned up"] += 1
            return
        before = self.known.setdefault(version, found)
        assert found == before, f"version {version} was changed"
        self.counts["reads"] += 1


def _digest(at: LanceDataset) -> str:
    """The rows of a version in few characters, whatever their order."""
    rows = at.to_table(["key", "value", "text"]).sort_by("key")
    return hashlib.sha256(str(rows.to_pydict()).encode()).hexdigest()
