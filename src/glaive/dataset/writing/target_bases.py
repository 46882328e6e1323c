"""Where new data files go: the root of the dataset, or base paths of it in turn.

Specification: "Base paths" in ``docs/format/manifest.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glaive.errors import OptionError
from glaive.format.paths import data_file_path
from glaive.format.pb import table_pb2
from glaive.io.store import ObjectStore
from glaive.table.bases import open_base

__all__ = ["DataPlace", "find_places"]


@dataclass(frozen=True, slots=True)
class DataPlace:
    """A place of data files, and its number as a base path; ``None`` for the dataset's own.

    ``is_root`` says whether they lie below ``data`` there.
    """

    store: ObjectStore
    base_id: int | None = None
    is_root: bool = True

    def path_of(self, name: str) -> str:
        """Path of a data file."""
        return data_file_path(name) if self.is_root else name


def find_places(
    store: ObjectStore,
    bases: Sequence[table_pb2.BasePath],
    targets: Sequence[str],
    *,
    everywhere: bool,
) -> tuple[DataPlace, ...]:
    """Places for new files, to be used in turn; the dataset's own when none is asked for.

    Parameters
    ----------
    bases
        Those of the dataset.
    targets
        Names or paths of some of them; the URI of the dataset is its own place.
    everywhere
        The dataset's own place, and all of them.

    Raises
    ------
    OptionError
        There is no such base path.
    AccessError
        The caller has to allow it.
    """
    chosen: list[table_pb2.BasePath | None] = list(bases) if everywhere else []
    for target in targets:
        if target == store.uri:
            chosen.append(None)
            continue
        found = [base for base in bases if target in (base.name, base.path)]
        if not found:
            known = ", ".join(base.name or base.path for base in bases) or "none"
            raise OptionError(
                f"target_bases: {store.uri} has no base path {target!r}; it has: {known}. Register "
                "it by initial_bases or add_bases."
            )
        chosen.append(found[0])
    own = [DataPlace(store)] if everywhere or not chosen else []
    others = (
        DataPlace(store)
        if base is None
        else DataPlace(open_base(store, base, store.uri), base.id, base.is_dataset_root)
        for base in chosen
    )
    return (*own, *others)
