"""Create the register of manifests that a URI or an option specifies."""

from __future__ import annotations

from glaive.errors import OptionError
from glaive.io.store import ObjectStore
from glaive.table.manifest_store.protocol import ManifestStore

OPTION = "manifest_store"
"""The storage option for a register."""

SQLITE_NAME = "_manifests.sqlite"
"""File in the root of a local dataset for ``manifest_store="sqlite"``."""

_DDB = "s3+ddb://"
_TABLE = "ddbTableName"


def split_uri(uri: str) -> tuple[str, str | None]:
    """The location of a dataset, and the register that its URI specifies.

    ``s3+ddb://bucket/path?ddbTableName=T`` is ``s3://bucket/path`` with the manifests
    registered in the DynamoDB table ``T``.
    """
    if not uri.lower().startswith(_DDB):
        return uri, None
    from urllib.parse import parse_qs, urlsplit

    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise OptionError(f"{uri}: {error}") from None
    tables = parse_qs(parts.query).get(_TABLE, [])
    if len(tables) != 1 or not tables[0]:
        raise OptionError(
            f"{uri}: expected the name of a DynamoDB table, as in s3+ddb://bucket/path?{_TABLE}=T"
        )
    return f"s3://{parts.netloc}{parts.path}", f"dynamodb://{tables[0]}"


def choose(given: ManifestStore | str, store: ObjectStore) -> ManifestStore:
    """The register of an option.

    ``"sqlite"`` is a file in the root of a local dataset, ``"sqlite:///path/file"`` any file,
    ``"dynamodb://T"`` a table; objects with the methods of a register are used as they are.

    Raises
    ------
    OptionError
        It is none of these, or ``"sqlite"`` for a dataset that is not local or where the file is
        a link.
    """
    from urllib.parse import unquote

    if not isinstance(given, str):
        if isinstance(given, ManifestStore):
            return given
        raise OptionError(f"manifest_store: expected a string or a ManifestStore, found {given!r}")
    kind, _, rest = given.partition("://")
    if kind.lower() == "sqlite":
        from glaive.table.manifest_store.registers import SqliteManifestStore

        if rest:
            return SqliteManifestStore(unquote(rest))
        if store.is_local:
            if store.is_link(SQLITE_NAME):
                raise OptionError(
                    f"manifest_store: {store.full(SQLITE_NAME)} is a link, whose target is not "
                    "written to. Specify the target, as in sqlite:///path/manifests.sqlite"
                )
            return SqliteManifestStore(store.full(SQLITE_NAME))
        raise OptionError(
            f"manifest_store: {store.uri} is not a local directory; specify a file, as in "
            "sqlite:///path/manifests.sqlite"
        )
    if kind.lower() == "dynamodb" and rest:
        from glaive.table.manifest_store.registers import DynamoManifestStore

        return DynamoManifestStore(rest, store.options)
    raise OptionError(
        f"manifest_store: expected 'sqlite', 'sqlite:///path/file' or 'dynamodb://table', found "
        f"{given!r}"
    )
