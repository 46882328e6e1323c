"""What a process holds: memory, descriptors, maps, threads and temporary files."""

from __future__ import annotations

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

SHARE = {"memory": 0.05, "maps": 0.05}
"""And by which share of them."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What this process holds at one moment.

    ``deleted`` counts maps of files that are no longer there, ``temporary`` files.
    """

    memory: int
    descriptors: int
    maps: int
    deleted: int
    threads: int
    temporary: int

    @classmethod
    def now(cls, temporary: Path) -> Resources:
        """Measure.

        Parameters
        ----------
        temporary
            Where temporary files are.
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
        )


def growth(samples: Sequence[Resources]) -> list[str]:
    """What grew between the second and the last third of a run, in words.

    Medians are compared, of samples in the order of time: single ones depend on what was under way.
    """
    third = len(samples) // _WARM
    if third < 2:
        return [f"only {len(samples)} samples: let it run longer"]
    found = []
    earlier, later = samples[third:-third], samples[-third:]
    for name, slack in SLACK.items():
        before = statistics.median(asdict(one)[name] for one in earlier)
        after = statistics.median(asdict(one)[name] for one in later)
        if after > before * (1 + SHARE.get(name, 0.0)) + slack:
            found.append(f"{name} grew from {before:,.0f} to {after:,.0f}")
    return found
