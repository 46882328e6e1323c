"""The option ``table``: the table of a catalogue instead of a path."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from glaive.errors import DatasetNotFoundError, OptionError, UnsupportedFeatureError
from glaive.io.renewed import ExpiringOptions
from glaive.spark.option_text import STORAGE

__all__ = ["LocatedOptions", "with_location"]

_TABLE = "table"
_PREFIX = "namespace."


class LocatedOptions(dict[str, str]):
    """Options with the place of a table, and who has newer credentials if its own expire."""

    renew: Callable[[], Mapping[str, str]] | None = None


def with_location(options: Mapping[str, str], *, create: bool = False) -> Mapping[str, str]:
    """Options with the path and store options of the table that ``table`` names, if it is there.

    Parameters
    ----------
    options
        ``table``, names with dots between them or a JSON list of names; ``namespace.impl``
        (``dir`` or ``rest``; by default ``dir``) and the properties of the catalogue as
        ``namespace.root``, ``namespace.uri`` and so on.
    create
        The table is written: declare it if it is not there.

    Raises
    ------
    OptionError
        Both a table and a path are given, or the catalogue has none of these properties.
    DatasetNotFoundError
        There is no such table.
    UnsupportedFeatureError
        It is written, and the catalogue manages its versions.
    """
    lowered = {key.lower(): text for key, text in options.items()}
    if _TABLE not in lowered:
        return options
    if "path" in lowered or "paths" in lowered:
        raise OptionError("options path and table: give only one")
    from glaive.dataset.namespaces import find_table
    from glaive.namespace import connect

    properties = {
        key.removeprefix(_PREFIX): text for key, text in lowered.items() if key.startswith(_PREFIX)
    }
    client = connect(properties.pop("impl", "dir"), properties)
    path = _path_of(lowered[_TABLE])
    storage = {
        key.removeprefix(STORAGE): text for key, text in lowered.items() if key.startswith(STORAGE)
    }
    try:
        found = find_table(client, path, None, storage or None)
    except DatasetNotFoundError:
        if not create:
            raise
        found = find_table(client, path, None, storage or None, create=True)
    if create and found.manifest_store is not None:
        raise UnsupportedFeatureError(
            f"table {lowered[_TABLE]}: its catalogue manages the versions, which Spark does not "
            "write. Write with glaive.write_dataset(namespace_client=…, table_id=…)"
        )
    others = {
        key: text
        for key, text in options.items()
        if key.lower() != _TABLE and not key.lower().startswith((_PREFIX, STORAGE))
    }
    vended = {f"{STORAGE}{key}": text for key, text in (found.storage_options or {}).items()}
    located = LocatedOptions({**others, "path": found.uri, **vended})
    if isinstance(found.storage_options, ExpiringOptions):
        located.renew = found.storage_options.renew
    return located


def _path_of(text: str) -> list[str]:
    if not text.startswith("["):
        return text.split(".")
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"option table: not JSON ({error})") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise OptionError(f"option table: expected names, found {text!r:.100}")
    return names
