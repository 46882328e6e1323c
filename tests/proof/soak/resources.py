"""What a process holds: memory, descriptors, maps, threads and temporary files."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

MIB = 1 << 20
_WARM = 3
"""A third of the run fills caches; what comes after is compared."""

SLACK = {
    "memory": 16 * MIB,
    "descriptors": 8,
    "maps": 24,
    "deleted": 24,
    "threads": 2,
    "temporary": 2,
}
"""By how much the last samples may exceed the earlier ones: what is under way differs."""

SHARE = {"memory": 0.05, "maps": 0.05, "deleted": 0.25}
"""And by which share of them: a clean-up lets go of hundreds of deleted files at a time."""

MAPPED = ("maps", "deleted")
"""What may grow as the number of files of the table does, on top of that."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What this process holds at one moment.

    ``deleted`` counts maps of files that are no longer there, ``temporary`` files; ``files`` are
    those of the table, which the process does not hold.
    """

    memory: int
    descriptors: int
    maps: int
    deleted: int
    threads: int
    temporary: int
    files: int

    @classmethod
    def now(cls, temporary: Path, table: Path) -> Resources:
        """Measure.

        Parameters
        ----------
        temporary
            Where temporary files are.
        table
            The folder of the dataset.
        """
        process = psutil.Process()
        maps = Path("/proc/self/maps").read_bytes().splitlines()
        return cls(
            process.memory_info().rss,
            process.num_fds(),
            len(maps),
            sum(line.endswith(b" (deleted)") for line in maps),
            process.num_threads(),
            sum(1 for path in temporary.rglob("*") if path.is_file()),
            # Unlike rglob, it goes on where a folder is deleted meanwhile.
            sum(name.endswith(".lance") for *_, names in os.walk(table) for name in names),
        )


def growth(samples: Sequence[Resources]) -> list[str]:
    """What grew between the second and the last third of a run, in words.

    Medians are compared, of samples in the order of time: single ones depend on what was under way.
    """
    third = len(samples) // _WARM
    if third < 2:
        return [f"only {len(samples)} samples: let it run longer"]
    found = []
    before, after = _medians(samples[third:-third]), _medians(samples[-third:])
    more_files = max(0.0, after["files"] / max(1.0, before["files"]) - 1)
    for name, slack in SLACK.items():
        share = SHARE.get(name, 0.0) + (more_files if name in MAPPED else 0.0)
        if after[name] > before[name] * (1 + share) + slack:
            found.append(f"{name} grew from {before[name]:,.0f} to {after[name]:,.0f}")
    return found


def _medians(samples: Sequence[Resources]) -> dict[str, float]:
    counted = [asdict(one) for one in samples]
    return {name: statistics.median(one[name] for one in counted) for name in counted[0]}
