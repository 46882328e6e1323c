"""What became of the mutants of a sample, as figures that later runs add to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tests.proof.mutants.sites import Mutant

TESTS = Path(__file__).parents[2]
EQUIVALENT: dict[str, str] = json.loads((Path(__file__).parent / "equivalent.json").read_text())
"""Changes that no test can notice, with the reason."""

Fate = Literal["killed", "survived", "endless", "too slow", "not reached"]
NOTICED: tuple[Fate, ...] = ("killed", "endless")


class Record:
    """The fates of the mutants of a sample, kept as figures.

    A fate stays as long as its mutant is in the sample.

    Parameters
    ----------
    mutants
        The sample.
    before
        The report of a run before; or nothing.
    """

    def __init__(self, mutants: Sequence[Mutant], before: Mapping[str, Any]) -> None:
        names = {_name(one): one for one in mutants}
        self.size = len(mutants)
        self.fates: dict[str, Fate] = {
            names[name].key: fate for name, fate in before.get("fates", {}).items() if name in names
        }
        self.mutants = mutants
        self.folders = set(before.get("folders", []))

    def is_open(self, mutant: Mutant, *, again: bool) -> bool:
        """Whether a mutant is to be tried: those that no test reached, too, and others again."""
        if mutant.key in EQUIVALENT:
            return False
        fate = self.fates.get(mutant.key)
        return fate in (None, "not reached") or (again and fate not in NOTICED)

    def report(self) -> dict[str, Any]:
        """What is known of the sample."""
        counted = {key: fate for key, fate in self.fates.items() if key not in EQUIVALENT}
        equivalent = sum(one.key in EQUIVALENT for one in self.mutants)
        counts = Counter(counted.values())
        killed = sum(counts[fate] for fate in NOTICED)
        return {
            "sample": self.size,
            "tried": len(counted) + equivalent,
            "mutants": len(counted),
            "killed": killed,
            "endless": counts["endless"],
            "unreached": counts["not reached"],
            "share": round(killed / max(1, len(counted)), 3),
            "equivalent": equivalent,
            "folders": sorted(self.folders),
            "notes": self._notes(),
            "left": {key: fate for key, fate in counted.items() if fate not in NOTICED},
            "fates": {
                _name(one): self.fates[one.key] for one in self.mutants if one.key in self.fates
            },
        }

    def _notes(self) -> list[str]:
        """What the page has to say beside the figures."""
        there = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
        if there <= self.folders:
            return []
        return [f"tried with tests of {', '.join(sorted(self.folders))} only"]


def _name(mutant: Mutant) -> str:
    """What stands for a mutant in the figures: its key may be long."""
    return mutant.rank[:12]
