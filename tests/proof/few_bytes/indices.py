"""Index files of few bytes: rows that equal each other, as many as a trial says."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.proof.few_bytes.draws import Draws, Impossible
from tests.proof.few_bytes.index_files import GrownFile
from tests.proof.index_kinds import KINDS, indexed_dataset, searches_of

import glaive
from glaive.dataset.layout import VersionCheck
from glaive.errors import GlaiveError

__all__ = ["index_ways"]

_READ: list[tuple[str, Callable[[Any], object]]] = [
    ("statistics", lambda d: [d.stats.index_stats(one.name) for one in d.describe_indices()]),
    ("prewarm", lambda d: [d.prewarm_index(one.name) for one in d.describe_indices()]),
    ("validation", lambda d: d.validate()),
    ("verification", lambda d: VersionCheck(deep=True).problems(d, d.version)),
]

_MAINTAINED: list[tuple[str, Callable[[Any], object]]] = [
    ("optimize", lambda d: d.optimize.optimize_indices(num_indices_to_merge=9)),
    ("extend", lambda d: d.optimize.optimize_indices(num_indices_to_merge=0)),
    ("remap", lambda d: d.optimize.compact_files(target_rows_per_fragment=10_000)),
    (
        "remap later",
        lambda d: (
            d.optimize.compact_files(target_rows_per_fragment=10_000, defer_index_remap=True),
            d.optimize.optimize_indices(num_indices_to_merge=9),
        ),
    ),
]


def index_ways(folder: Path, draw: Draws) -> tuple[str, int, Iterator[Any]]:
    """What the index is, the bytes of its file, and what is done with it, by name."""
    kind = draw.of(sorted(KINDS))
    place = folder / "few.lance"
    shutil.copytree(indexed_dataset(kind), place)
    file = draw.of(sorted(path for path in (place / "_indices").rglob("*") if path.is_file()))
    try:
        how = GrownFile(draw, place, file).write()
    except GlaiveError:  # not a file that can be written anew
        raise Impossible from None
    sizes = [path.stat().st_size for path in file.parent.iterdir()]
    story = f"{kind}, {file.name}, {how} in {file.stat().st_size} bytes"

    def opened(at: Path = place) -> Any:
        return glaive.dataset(at, session=glaive.Session())

    def copied(work: Callable[[Any], object]) -> None:
        """A table is changed once."""
        copy = folder / "copy.lance"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place, copy)
        work(opened(copy))

    def all_ways() -> Iterator[Any]:
        for at, search in enumerate(searches_of(kind)):
            yield f"search {at}", lambda search=search: search(opened())
        for name, work in _READ:
            yield name, lambda work=work: work(opened()) and None
        for name, work in _MAINTAINED:
            yield name, lambda work=work: copied(work)

    return story, sum(sizes), all_ways()
