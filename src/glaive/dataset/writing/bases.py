"""Further places where files of a dataset may lie: ``add_bases``, and roots that lead to them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.dataset.writing.base_paths import DatasetBasePath
from glaive.errors import OptionError
from glaive.format.pb import table_pb2
from glaive.io.access import AccessPolicy
from glaive.io.store import ObjectStore
from glaive.table.operations.update_bases import UpdateBases
from glaive.table.root import access_of, guarded, open_root

__all__ = ["add_bases", "naming", "open_to_write"]


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


def open_to_write(
    place: str | os.PathLike[str] | OpenDataset,
    storage_options: Mapping[str, str] | None,
    new_bases: Sequence[DatasetBasePath],
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    allow_external_blobs: bool | Sequence[str] | None = None,
    **guards: Any,
) -> ObjectStore:
    """The root of a dataset to write to; that of an opened one, with what it allows.

    ``guards`` are a commit lock and a register of manifests, in place of those it has.

    Raises
    ------
    OptionError
        It is no place, or an option has a value it cannot have.
    """
    if isinstance(place, OpenDataset):
        store = place.opened.store
    else:
        store = open_root(place, storage_options, **guards)
    policy = AccessPolicy.of(base_store_params, allow_external_blobs, before=access_of(store))
    return naming(guarded(store, access=policy, **guards), new_bases)


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
