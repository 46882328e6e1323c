"""Tables of a namespace: a catalogue with the location and storage options of tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.io.credentials import ask_for_table, check_kind
from glaive.io.uri import open_store
from glaive.table.manifest_store.protocol import ManifestStore
from glaive.table.manifest_store.registers import CatalogueManifestStore


@dataclass(frozen=True, slots=True)
class FoundTable:
    """Where a table lies.

    Parameters
    ----------
    uri
        Its location.
    storage_options
        Options of its store; an :class:`ExpiringOptions` if they expire.
    manifest_store
        Gives out its versions, if the catalogue manages them.
    """

    uri: str = field(repr=False)  # a URL may have a password
    storage_options: Mapping[str, str] | None = field(repr=False)
    manifest_store: ManifestStore | None


def find_table(
    client: Any,
    table_id: Sequence[str] | None,
    uri: object,
    storage_options: Mapping[str, str] | None,
    manifest_store: object = None,
    *,
    create: bool = False,
) -> FoundTable:
    """Location, storage options and versions of a table, as its namespace reports them.

    Parameters
    ----------
    client, table_id, storage_options, create
        As for :func:`glaive.io.credentials.ask_for_table`.
    uri, manifest_store
        Must be ``None``: the namespace has them.

    Raises
    ------
    OptionError
        ``client`` or ``table_id`` is missing, or ``uri`` is given.
    DatasetNotFoundError, StoreError
        As for :func:`glaive.io.credentials.ask_for_table`.
    """
    if uri is not None:
        raise OptionError("uri: give either uri, or namespace_client and table_id")
    answer = ask_for_table(client, table_id, storage_options, create=create)
    register = None
    if answer.managed:
        if manifest_store is not None:
            raise OptionError(
                f"manifest_store: the namespace manages the versions of {list(answer.path)}; leave "
                "it out"
            )
        root = open_store(answer.location, answer.storage_options).uri
        register = CatalogueManifestStore(client, answer.path, root)
    return FoundTable(answer.location, answer.storage_options, register)


def reach_table(
    client: Any,
    table_id: Sequence[str] | None,
    place: Any,
    storage_options: Mapping[str, str] | None,
    *,
    create: bool = False,
) -> FoundTable:
    """How to write to a place that is a table of a namespace, where one is given.

    The place remains as it is, so that a worker writes where its plan says; credentials, and
    who gives out versions, are those of the namespace. An opened dataset has both already.

    Raises
    ------
    OptionError, DatasetNotFoundError, StoreError
        As for :func:`find_table`, and :func:`glaive.io.credentials.check_kind`.
    """
    if (client is None and table_id is None) or not isinstance(place, str | os.PathLike):
        return FoundTable(place, storage_options, None)
    found = find_table(client, table_id, None, storage_options, create=create)
    if found.storage_options is not storage_options:
        check_kind(found.uri, place)
    return FoundTable(os.fspath(place), found.storage_options, found.manifest_store)
