"""What plans say of the indices that answer a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glaive.scan.metrics import Meter
from glaive.scan.options import ScanOptions
from glaive.scan.snapshot import Snapshot

if TYPE_CHECKING:
    from glaive.expr.filters import Filter

__all__ = ["index_steps"]


def index_steps(snapshot: Snapshot, options: ScanOptions, condition: Filter) -> list[str]:
    """Which indices are searched for a filter, and for how many fragments there is none."""
    if condition.never or snapshot.manifest.index_section is None:
        return []
    from glaive.scan.indexed.choice import choose

    rest = "left out" if options.fast_search else "scanned"
    lines = []
    for chosen in choose(snapshot, options, condition.terms, Meter()):
        names, covered = ", ".join(chosen.names), len(chosen.fragments)
        scanned = snapshot.manifest.num_fragments - covered
        lines.append(
            f"by index {names}: about {chosen.estimate} rows of {covered} fragments; "
            f"{scanned} fragments {rest} [ScalarIndexQuery]"
        )
    return lines
