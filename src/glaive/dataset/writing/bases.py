"""``add_bases``: further places where files of a dataset may lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.writing.base_paths import DatasetBasePath
from glaive.errors import OptionError
from glaive.format.pb import table_pb2
from glaive.io.store import ObjectStore
from glaive.table.operations.update_bases import UpdateBases
from glaive.table.root import access_of, guarded

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["add_bases", "naming"]


def add_bases(
    dataset: OpenedVersion,
    bases: Sequence[DatasetBasePath],
    properties: Mapping[str, str] | None,
) -> OpenedVersion:
    """Commit further base paths; those without an id are given one.

    Returns the new version, whose root may lead to them.

    Raises
    ------
    OptionError
        A base of this id, name or path is there already, or is none.
    """
    for base in bases:
        if not isinstance(base, DatasetBasePath):
            raise OptionError(f"new_bases: expected glaive.DatasetBasePath objects, found {base!r}")
    new = tuple(
        table_pb2.BasePath(
            id=base.id, name=base.name, is_dataset_root=base.is_dataset_root, path=base.path
        )
        for base in bases
    )
    store = naming(dataset.store, bases)
    return dataset.at(commit_operation(dataset, UpdateBases(new), properties=properties), store)


def naming(
    store: ObjectStore,
    bases: Sequence[DatasetBasePath],
    options: Mapping[str, str] | None = None,
) -> ObjectStore:
    """The root of a dataset whose caller names these base paths, and so allows them.

    ``options`` are storage options for them; those of the root where they lie in its bucket.
    """
    access = access_of(store).naming(store, [base.path for base in bases], options)
    return guarded(store, access=access)
