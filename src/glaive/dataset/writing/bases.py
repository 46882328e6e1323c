"""``add_bases``, and dataset roots with access to base paths."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.dataset.writing.base_paths import DatasetBasePath
from glaive.errors import OptionError
from glaive.io.access import AccessPolicy
from glaive.io.store import ObjectStore
from glaive.table.operations.update_bases import UpdateBases
from glaive.table.root import access_of, guarded, open_root

__all__ = ["add_bases", "allowing", "open_to_write"]


def add_bases(
    dataset: OpenedVersion,
    bases: Sequence[DatasetBasePath],
    properties: Mapping[str, str] | None,
) -> OpenedVersion:
    """Commit new base paths, assigning missing ids; returns a version with access to them."""
    for base in bases:
        if not isinstance(base, DatasetBasePath):
            raise OptionError(f"new_bases: expected glaive.DatasetBasePath objects, found {base!r}")
    new = tuple(base.to_wire(base.id) for base in bases)
    store = allowing(dataset.store, bases)
    return dataset.at(commit_operation(dataset, UpdateBases(new), properties=properties), store)


def open_to_write(
    place: str | os.PathLike[str] | OpenDataset,
    storage_options: Mapping[str, str] | None,
    new_bases: Sequence[DatasetBasePath],
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    allow_external_blobs: bool | Sequence[str] | None = None,
    **guards: Any,
) -> ObjectStore:
    """The root of a dataset to write to; an opened dataset keeps its permissions.

    ``guards`` replace its commit lock and manifest store.

    Raises
    ------
    OptionError
        The URI or an option is invalid.
    """
    if not isinstance(place, str) and isinstance(place, OpenDataset):  # protocols are slow to ask
        store = place.opened.store
    else:
        store = open_root(place, storage_options, **guards)
    policy = AccessPolicy.of(base_store_params, allow_external_blobs, before=access_of(store))
    return allowing(guarded(store, access=policy, **guards), new_bases)


def allowing(
    store: ObjectStore,
    bases: Sequence[DatasetBasePath],
    options: Mapping[str, str] | None = None,
) -> ObjectStore:
    """The root of a dataset with permission to access these base paths.

    ``options`` are their storage options; those in the bucket of the root use its options.
    """
    access = access_of(store).naming(store, [base.path for base in bases], options)
    return guarded(store, access=access)
