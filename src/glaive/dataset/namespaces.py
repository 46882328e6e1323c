"""Tables of a namespace: a catalog with the location and storage options of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from glaive.errors import DatasetNotFoundError, OptionError, UnsupportedFeatureError

__all__ = ["find_table"]


def find_table(
    client: Any,
    table_id: Sequence[str] | None,
    uri: object,
    storage_options: Mapping[str, str] | None,
    *,
    create: bool = False,
) -> tuple[str, Mapping[str, str] | None]:
    """Location and storage options of a table, as its namespace reports them.

    Parameters
    ----------
    client
        Has methods ``describe_table`` and ``declare_table``, like those of ``lance_namespace``.
    table_id
        Path of names of the table.
    uri
        Must be ``None``.
    storage_options
        Overridden by those of the namespace.
    create
        Declare a table that does not exist yet.

    Raises
    ------
    OptionError
        ``client`` or ``table_id`` is missing, or ``uri`` is given.
    DatasetNotFoundError
        The namespace reports no location.
    UnsupportedFeatureError
        The namespace manages the versions itself.

    Notes
    -----
    The namespace is queried once: expired credentials are not renewed.
    """
    if uri is not None:
        raise OptionError("uri: give either uri, or namespace_client and table_id")
    if client is None or table_id is None:
        raise OptionError("namespace_client and table_id: give both")
    kind = "DeclareTableRequest" if create else "DescribeTableRequest"
    method = client.declare_table if create else client.describe_table
    response = method(_request(kind, list(table_id)))
    location = getattr(response, "location", None)
    if not location:
        raise DatasetNotFoundError(
            f"the namespace reports no location for the table {list(table_id)}"
        )
    if getattr(response, "managed_versioning", None) is True:
        raise UnsupportedFeatureError(
            f"table {list(table_id)}: its namespace manages the versions itself, which this "
            "version of glaive does not support. Open the table by its URI, for reading"
        )
    reported = getattr(response, "storage_options", None)
    if reported is not None:
        storage_options = {**(storage_options or {}), **reported}
    return location, storage_options


def _request(kind: str, table_id: list[str]) -> Any:
    try:
        import lance_namespace
    except ImportError:
        # Other client libraries only read the id.
        return SimpleNamespace(id=table_id, version=None, location=None)
    return getattr(lance_namespace, kind)(id=table_id)
