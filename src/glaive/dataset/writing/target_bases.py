"""Locations of new data files: the root of the dataset, or its base paths in turn.

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

__all__ = ["DataLocation", "find_locations"]


@dataclass(frozen=True, slots=True)
class DataLocation:
    """A location of data files, and its base path id; ``None`` for the dataset's root.

    ``is_root`` specifies whether data files are below ``data`` there.
    """

    store: ObjectStore
    base_id: int | None = None
    is_root: bool = True

    def path_of(self, name: str) -> str:
        """Path of a data file."""
        return data_file_path(name) if self.is_root else name


def find_locations(
    store: ObjectStore,
    bases: Sequence[table_pb2.BasePath],
    targets: Sequence[str],
    *,
    everywhere: bool,
) -> tuple[DataLocation, ...]:
    """Locations for new files, to be used in turn; default: the dataset's root.

    Parameters
    ----------
    bases
        Base paths of the dataset.
    targets
        Names or paths of some of them; the URI of the dataset means its root.
    everywhere
        Use the dataset's root and all base paths.

    Raises
    ------
    OptionError
        There is no such base path.
    AccessError
        The caller has not allowed it.
    """
    chosen: list[table_pb2.BasePath | None] = list(bases) if everywhere else []
    for target in targets:
        if target == store.uri:
            chosen.append(None)
            continue
        matching = [base for base in bases if target in (base.name, base.path)]
        if not matching:
            known = ", ".join(base.name or base.path for base in bases) or "none"
            raise OptionError(
                f"target_bases: {store.uri} has no base path {target!r}; it has: {known}. Add it "
                "with initial_bases or add_bases."
            )
        chosen.append(matching[0])
    if everywhere or not chosen:
        chosen.insert(0, None)
    return tuple(
        DataLocation(store)
        if base is None
        else DataLocation(open_base(store, base, store.uri), base.id, base.is_dataset_root)
        for base in chosen
    )
