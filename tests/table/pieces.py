"""A clean-up divided as much as it can be."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TypeVar

from glaive.io.store import ObjectStore
from glaive.table.cleanup import Division, Part

R = TypeVar("R")


class InPieces:
    """Runs parts as a cluster does: they and their results are pickled, and the last come first."""

    division = Division(versions=2, fragments=4, files=2, deletions=2, groups=16)

    def run(self, store: ObjectStore, parts: Sequence[Part[R]]) -> list[R]:
        sent: list[Part[R]] = pickle.loads(pickle.dumps(list(parts)))
        results = [part.run(store) for part in reversed(sent)]
        returned: list[R] = pickle.loads(pickle.dumps(results))
        return returned[::-1]
