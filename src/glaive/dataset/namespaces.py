"""Tables of a namespace: a catalogue that says where a table lies and how to reach it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from glaive.errors import DatasetNotFoundError, OptionError, UnsupportedFeatureError

__all__ = ["located"]


def located(
    client: Any,
    table_id: Sequence[str] | None,
    uri: object,
    storage_options: Mapping[str, str] | None,
    *,
    create: bool = False,
) -> tuple[str, Mapping[str, str] | None]:
    """Place and storage options of a table, as its namespace tells them.

    Parameters
    ----------
    client
        Offers ``describe_table`` and ``declare_table``, as those of ``lance_namespace`` do.
    table_id
        Names that lead to the table.
    uri
        Must not be given beside them.
    storage_options
        Those of the namespace win over them.
    create
        Declare a table that is not there yet.

    Raises
    ------
    OptionError
        One of the two is missing, or there is a place as well.
    DatasetNotFoundError
        The namespace does not say where the table lies.
    UnsupportedFeatureError
        The namespace wants to register the versions itself.

    Notes
    -----
    Asked once: credentials that run out are not renewed.
    """
    if uri is not None:
        raise OptionError("uri: give either a place, or namespace_client and table_id")
    if client is None or table_id is None:
        raise OptionError("namespace_client and table_id: give both")
    kind = "DeclareTableRequest" if create else "DescribeTableRequest"
    ask = client.declare_table if create else client.describe_table
    answer = ask(_request(kind, list(table_id)))
    place = getattr(answer, "location", None)
    if not place:
        raise DatasetNotFoundError(f"the namespace gives no place for the table {list(table_id)}")
    if getattr(answer, "managed_versioning", None) is True:
        raise UnsupportedFeatureError(
            f"table {list(table_id)}: its namespace registers the versions itself, which this "
            "version of glaive does not support. Open the place that it names by its URI, for "
            "reading"
        )
    told = getattr(answer, "storage_options", None)
    return place, {**(storage_options or {}), **told} if told is not None else storage_options


def _request(kind: str, table_id: list[str]) -> Any:
    try:
        import lance_namespace
    except ImportError:
        # A client of another make reads the names of the table, and nothing else.
        return SimpleNamespace(id=table_id, version=None, location=None)
    return getattr(lance_namespace, kind)(id=table_id)
