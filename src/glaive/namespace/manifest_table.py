"""The table ``__manifest`` of a directory namespace: its namespaces, tables, and locations.

A dataset with a row per object. Each change writes all rows as a new version. It fails if another
version was committed meanwhile, so only one of two writers gets a name.

Specification: "Directory namespaces" in ``docs/format``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from difflib import get_close_matches
from functools import cached_property, lru_cache
from sys import intern
from typing import Any

import lance_namespace as interface
import pyarrow as pa

from glaive.arrow.validation import damaged_text
from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset
from glaive.dataset.transactions import write_fragments
from glaive.dataset.write import write_dataset
from glaive.errors import (
    CommitConflictError,
    CommitContentionError,
    DatasetExistsError,
    DatasetNotFoundError,
    GlaiveError,
)
from glaive.io.access import open_store
from glaive.io.location import Location, split_secret
from glaive.io.store import ObjectStore
from glaive.namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    InvalidTableStateError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    UnsupportedOperationError,
    as_namespace_errors,
)
from glaive.namespace.folders import (
    DELIMITER,
    MANIFEST,
    check_name,
    id_of,
    listed_folder,
    mode_of,
    page_of,
    refuse_foreign_catalogue,
    table_listed_in,
    text_of,
    value,
)
from glaive.options import SWITCH, Kind, integer
from glaive.table.load import open_newest

# --- Properties of a directory namespace, given as strings and checked once --------------

_STORAGE = "storage."
_INTERVAL = "vend_input_storage_options_refresh_interval_millis"
_PROPERTIES: Mapping[str, tuple[str, Kind, Any]] = {
    "manifest_enabled": ("manifest", SWITCH, True),
    "dir_listing_enabled": ("listing", SWITCH, True),
    "table_version_tracking_enabled": ("tracks_versions", SWITCH, False),
    "vend_input_storage_options": ("vends_options", SWITCH, False),
    _INTERVAL: ("refresh_millis", integer(), None),
}
"""Properties, with the name, kind and default of their settings."""

_KNOWN = frozenset(
    {
        "root",
        "commit_retries",
        "dir_listing_to_manifest_migration_enabled",
        "inline_optimization_enabled",
        "ops_metrics_enabled",
        *_PROPERTIES,
    }
)
"""All properties, also properties that glaive ignores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySettings:
    """Settings of a directory namespace.

    Parameters
    ----------
    root
        Folder or URI.
    storage_options
        Options of its store.
    manifest
        Whether to use the table ``__manifest``, for namespaces below the root and for properties.
    listing
        Whether folders ``NAME.lance`` below the root are tables.
    tracks_versions
        Whether to tell clients to commit versions through the namespace.
    vends_options
        Whether to give clients the storage options.
    refresh_millis
        Milliseconds until clients should request the options again.
    """

    root: str
    storage_options: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    manifest: bool = True
    listing: bool = True
    tracks_versions: bool = False
    vends_options: bool = False
    refresh_millis: int | None = None

    def __repr__(self) -> str:
        # The root may be a URL with a password.
        root = GlaiveError.without_secrets(self.root)
        return f"DirectorySettings(root={root!r}, manifest={self.manifest}, listing={self.listing})"

    @classmethod
    def of(cls, properties: Mapping[str, object]) -> DirectorySettings:
        """Make the settings of properties.

        Raises
        ------
        InvalidInputError
            A property is missing, unknown, or has an invalid value.
        UnsupportedOperationError
            The properties ask for credentials for clients.
        """
        texts = {str(key): str(text) for key, text in properties.items()}
        storage = {
            key.removeprefix(_STORAGE): text
            for key, text in texts.items()
            if key.startswith(_STORAGE)
        }
        for name in texts:
            _check(name)
        with as_namespace_errors("directory namespace"):
            given = {
                setting: kind.parse(name, texts[name]) if name in texts else default
                for name, (setting, kind, default) in _PROPERTIES.items()
            }
        root = texts.get("root", "")
        if not root:
            raise InvalidInputError("root: a directory namespace needs a folder or a URI")
        if root.rstrip("/") == "memory:":
            raise InvalidInputError(
                "root: memory:// without a name is another place for each who opens it. Give a "
                "name, as in memory://catalogue"
            )
        _refuse_password(root)
        if not (given["manifest"] or given["listing"]):
            raise InvalidInputError(
                "manifest_enabled and dir_listing_enabled: at least one must be true"
            )
        return cls(root=root, storage_options=storage, **given)


def _refuse_password(root: str) -> None:
    """Refuse a root with a password for fsspec, because URIs of tables below it lack it."""
    if split_secret(root)[1] and Location.parse(root).is_fsspec:
        raise InvalidInputError(
            f"root: {root!r} has a password, and the URIs of tables below it have none. Leave "
            f"it out, and give it as the option of the file system: {_STORAGE}password"
        )


def _check(name: str) -> None:
    if name.startswith("credential_vendor."):
        raise UnsupportedOperationError(
            f"{name}: glaive's directory namespace makes no credentials. Set "
            "vend_input_storage_options=true to hand on those it has, or use a REST catalogue"
        )
    if name in _KNOWN or name.startswith(_STORAGE):
        return
    close = get_close_matches(name, _KNOWN, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise InvalidInputError(
        f"unknown property {name!r} of a directory namespace{hint} Known: "
        f"{', '.join(sorted(_KNOWN))}, and {_STORAGE}* for the store"
    )


ATTEMPTS = 30
"""Most attempts of a change after another writer was first."""

_STORAGE_VERSION = "2.2"
_FLAGS = ("reader_feature_flags", "writer_feature_flags")
_FLAG_PREFIX = "lance.namespace.manifest."
_MAX_ROWS = 1_000_000
"""Most rows of a manifest table to read: a larger table would take too much memory."""
_BATCH = 1024
_BATCH_BYTES = 1 << 22
"""Most rows, and their bytes, that are Python objects at a time while the table is read."""

SCHEMA = pa.schema(
    [
        pa.field(
            "object_id",
            pa.string(),
            nullable=False,
            metadata={"lance-schema:unenforced-primary-key:position": "0"},
        ),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
    ]
)


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """A namespace or a table.

    Parameters
    ----------
    id
        Names from the root, with ``$`` between them.
    kind
        ``table`` or ``namespace``; other kinds are kept as they are.
    location
        Folder of a table, below the root.
    properties
        Properties of the user, or ``None``.
    bases
        Other objects that the object depends on; kept as they are.
    """

    id: str
    kind: str
    location: str | None = None
    properties: Mapping[str, str] | None = None
    bases: Sequence[str] | None = None

    def is_table(self, path: Sequence[str]) -> bool:
        """Return whether the row is the table of an id, whose names may contain a ``$``."""
        return self.kind == "table" and self.id.split(DELIMITER) == list(path)


Rows = dict[str, CatalogueRow]


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a table: its folder below the root, and its row, if that was read."""

    folder: str
    row: CatalogueRow | None = None


@dataclass(frozen=True)
class ManifestTable:
    """The table ``__manifest`` below a root.

    Parameters
    ----------
    root
        Folder or URI of the namespace.
    storage_options
        Options of its store.
    """

    root: str
    storage_options: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    def __repr__(self) -> str:
        return f"ManifestTable({GlaiveError.without_secrets(self.root)!r})"

    @cached_property
    def uri(self) -> str:
        """URI of the table."""
        return f"{self.root.rstrip('/')}/{MANIFEST}"

    def read(self) -> Rows:
        """Return all rows by id, or an empty mapping. One listing, the manifest, one file."""
        opened = self._open()
        return {} if opened is None else _rows_of(opened)

    def change(self, edit: Callable[[Rows], Rows | None]) -> Rows:
        """Change the rows and return them. Cost: two requests more than reading, and a commit.

        Parameters
        ----------
        edit
            Pure function of the current rows. It returns the new rows, or ``None`` to keep them. It
            is called again if another writer was first.

        Raises
        ------
        ConcurrentModificationError
            Other writers were first each time.
        PermissionDeniedError
            A symlink leads to the table of another catalogue.
        """
        for _ in range(ATTEMPTS):
            opened = self._open()
            if opened is not None:
                # A listing may be stale, and only a commit detects that.
                opened.move_to(open_newest(opened.store))
            before = {} if opened is None else _rows_of(opened)
            after = edit(before)
            if after is None:
                return before
            refuse_foreign_catalogue(open_store(self.root, self.storage_options))
            try:
                self._write(opened, after)
            except (CommitConflictError, CommitContentionError, DatasetExistsError):
                continue
            return after
        raise ConcurrentModificationError(
            f"{self.uri}: other writers changed the catalogue {ATTEMPTS} times in a row. Try again"
        )

    def forget(self, path: Sequence[str], check: Callable[[Rows], object]) -> bool:
        """Remove the row of a table if the rows pass ``check``.

        Return whether the row existed.
        """
        name, found = text_of(path), False

        def edit(rows: Rows) -> Rows | None:
            nonlocal found
            check(rows)
            found = name in rows and rows[name].is_table(path)
            return {key: row for key, row in rows.items() if key != name} if found else None

        self.change(edit)
        return found

    def _open(self) -> LanceDataset | None:
        try:
            opened = dataset(self.uri, storage_options=self.storage_options or None)
        except DatasetNotFoundError:
            return None
        _check_flags(opened)
        return opened

    def _write(self, opened: LanceDataset | None, rows: Rows) -> None:
        table = _table_of(rows)
        if opened is None:
            options = dict(self.storage_options) or None
            write_dataset(
                table, self.uri, storage_options=options, data_storage_version=_STORAGE_VERSION
            )
            return
        change = write_fragments(table, opened, mode="overwrite", return_transaction=True)
        # Without retries an overwrite fails if a newer version exists.
        LanceDataset.commit(opened, change, max_retries=0)


def refuse_shared(
    rows: Rows, path: Sequence[str], folder: str, listing: ObjectStore | None
) -> None:
    """Refuse to delete a table's folder that is also, contains, or is in another table's.

    ``listing`` is the store of the root if its folders are tables.

    Raises
    ------
    InvalidTableStateError
    """
    other = _other_table_in(rows, folder, path)
    above = folder.partition("/")[0]
    if other is None and listing is not None and above != listed_folder(listing, path):
        other = table_listed_in(listing, above)
    if other is not None:
        raise InvalidTableStateError(
            f"nothing of the table {text_of(path)!r:.200} is deleted: its folder {folder!r:.200} "
            f"is also the folder of the table {other!r:.200}, or contains it, or is in it. Remove "
            "one of them by deregister_table, which leaves the data"
        )


def _other_table_in(rows: Rows, folder: str, path: Sequence[str]) -> str | None:
    inside = f"{folder}/"
    for row in rows.values():
        if row.kind == "table" and row.location is not None and not row.is_table(path):
            other = f"{row.location}/"
            if inside.startswith(other) or other.startswith(inside):
                return row.id
    return None


def _check_flags(opened: LanceDataset) -> None:
    """Refuse a table whose writer requires features of readers that glaive lacks."""
    for reported in (opened.config(), opened.metadata, opened.schema_metadata):
        for name in _FLAGS:
            flags = reported.get(f"{_FLAG_PREFIX}{name}", "0")
            if flags != "0":
                raise UnsupportedOperationError(
                    f"{opened.uri}: it was written with {name} {flags!r:.40}, which this version "
                    "of glaive does not know. Use the program that wrote it"
                )


def _rows_of(opened: LanceDataset) -> Rows:
    if opened.count_rows() > _MAX_ROWS:
        raise UnsupportedOperationError(
            f"{opened.uri}: {opened.count_rows()} objects, at most {_MAX_ROWS} are read. Split the "
            "namespace"
        )
    names = SCHEMA.names
    found = opened.schema
    if any(name not in found.names for name in names[:3]):
        raise InternalError(
            f"{opened.uri}: expected the columns {', '.join(names)}, found "
            f"{', '.join(found.names)}. It is not the table of a directory namespace"
        )
    for name in names:
        kind: Any = found.field(name).type if name in found.names else pa.string()
        texts = kind.value_type if name == "base_objects" and pa.types.is_list(kind) else kind
        if not pa.types.is_string(texts):
            raise InternalError(f"{opened.uri}: expected strings in {name}, found {kind}")
    wanted = [name for name in names if name in found.names]
    batches = opened.to_batches(columns=wanted, batch_size=_BATCH, batch_size_bytes=_BATCH_BYTES)
    rows: Rows = {}
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            damaged = damaged_text(column)
            if damaged is not None:
                raise InternalError(f"{opened.uri}: a string in {name} is not UTF-8: {damaged}")
        for given in batch.to_pylist():
            row = _row_of(given)
            if row.id in rows:
                raise InternalError(
                    f"{opened.uri}: the object {row.id!r:.200} has two rows, expected one. Delete "
                    "one of them from this table"
                )
            rows[row.id] = row
    return rows


def _row_of(row: Mapping[str, object]) -> CatalogueRow:
    """Make a row. A small file may encode a million equal rows, so strings are interned."""
    location, bases = row.get("location"), row.get("base_objects")
    return CatalogueRow(
        str(row["object_id"]),
        intern(str(row["object_type"])),
        None if location is None else intern(str(location)),
        _properties_of(row.get("metadata")),
        bases if isinstance(bases, list) else None,
    )


@lru_cache(maxsize=1024)
def _properties_of(text: object) -> Mapping[str, str] | None:
    if not text:
        return None
    try:
        found = json.loads(str(text))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InternalError(f"{MANIFEST}: expected properties as a JSON object, found {text!r:.80}")
    return {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in found.items()
    }


def _table_of(rows: Rows) -> pa.Table:
    values = rows.values()
    return pa.table(
        {
            "object_id": [row.id for row in values],
            "object_type": [row.kind for row in values],
            "location": [row.location for row in values],
            "metadata": [_json_of(row.properties) for row in values],
            "base_objects": [None if row.bases is None else list(row.bases) for row in values],
        },
        schema=SCHEMA,
    )


def _json_of(properties: Mapping[str, str] | None) -> str | None:
    return json.dumps(dict(properties), separators=(",", ":")) if properties else None


# --- Namespaces below the root of a directory namespace: rows of its manifest table -----


class DirectoryNamespaces:
    """The operations of namespaces; a part of :class:`DirectoryNamespace`."""

    settings: DirectorySettings
    manifest: ManifestTable

    def list_namespaces(self, request: Any) -> interface.ListNamespacesResponse:
        """Return the names of the namespaces below a namespace, in order, or a page of them."""
        path = id_of(request)
        names: set[str] = set()
        if self.settings.manifest:
            names = self._children(self._rows_of(path), path, "namespace")
        elif path:
            raise self._no_children()
        page, token = page_of(sorted(names), request)
        return interface.ListNamespacesResponse(namespaces=page, page_token=token)

    def namespace_exists(self, request: Any) -> interface.NamespaceExistsResponse:
        """Return if the namespace exists; raise an error otherwise."""
        self.describe_namespace(request)
        return interface.NamespaceExistsResponse()

    def describe_namespace(self, request: Any) -> interface.DescribeNamespaceResponse:
        """Return the properties of a namespace."""
        path = id_of(request)
        if not path:
            return interface.DescribeNamespaceResponse(properties={})
        properties = self._rows_of(path)[text_of(path)].properties
        return interface.DescribeNamespaceResponse(
            properties=None if properties is None else dict(properties)
        )

    def create_namespace(self, request: Any) -> interface.CreateNamespaceResponse:
        """Make a namespace; modes create, exist_ok and overwrite (of an empty namespace)."""
        path = id_of(request)
        if not self.settings.manifest:
            raise self._no_children()
        if not path:
            raise NamespaceAlreadyExistsError("the root namespace [] exists already")
        mode = mode_of(request, "create", "existok", "overwrite")
        for name in path:
            check_name(name)
        row = CatalogueRow(text_of(path), "namespace", None, value(request, "properties"))

        def edit(rows: Rows) -> Rows | None:
            self._require(rows, path[:-1])
            if row.id in rows:
                if mode == "create" or rows[row.id].kind != "namespace":
                    raise NamespaceAlreadyExistsError(
                        f"Namespace already exists: {row.id} is a {rows[row.id].kind}"
                    )
                if mode == "existok":
                    return None
                _check_empty(rows, row.id)
            return rows | {row.id: row}

        made = self.manifest.change(edit)[row.id].properties
        return interface.CreateNamespaceResponse(properties=None if made is None else dict(made))

    def drop_namespace(self, request: Any) -> interface.DropNamespaceResponse:
        """Remove an empty namespace; with the mode skip, a missing namespace is ignored."""
        path = id_of(request)
        if not path:
            raise InvalidInputError("the root namespace [] cannot be dropped")
        if not self.settings.manifest:
            raise self._no_children()
        mode = mode_of(request, "fail", "skip")
        if str(value(request, "behavior", "restrict")).lower() != "restrict":
            raise UnsupportedOperationError(
                "drop_namespace: behavior 'Cascade' is not supported. Drop its tables first"
            )
        removed = text_of(path)

        def edit(rows: Rows) -> Rows | None:
            if removed not in rows or rows[removed].kind != "namespace":
                if mode == "skip":
                    return None
                raise _not_found(removed)
            _check_empty(rows, removed)
            return {key: row for key, row in rows.items() if key != removed}

        self.manifest.change(edit)
        return interface.DropNamespaceResponse()

    # ------------------------------------------------------------ inside

    def _rows_of(self, path: tuple[str, ...]) -> Rows:
        """Return all rows, if the namespace exists."""
        if not self.settings.manifest:
            raise self._no_children()
        rows = self.manifest.read()
        self._require(rows, path)
        return rows

    @staticmethod
    def _require(rows: Rows, path: tuple[str, ...]) -> None:
        """Refuse a missing namespace."""
        name = text_of(path)
        if path and (name not in rows or rows[name].kind != "namespace"):
            raise _not_found(name)

    @staticmethod
    def _children(rows: Rows, path: tuple[str, ...], kind: str) -> set[str]:
        above = f"{text_of(path)}{DELIMITER}" if path else ""
        names = (
            row.id.removeprefix(above)
            for row in rows.values()
            if row.kind == kind and row.id.startswith(above)
        )
        return {name for name in names if DELIMITER not in name}

    @staticmethod
    def _no_children() -> UnsupportedOperationError:
        return UnsupportedOperationError(
            "namespaces below the root need the manifest table: set manifest_enabled=true"
        )


def _not_found(name: str) -> NamespaceNotFoundError:
    return NamespaceNotFoundError(
        f"Namespace not found: {name!r:.200}. list_namespaces returns the existing namespaces"
    )


def _check_empty(rows: Rows, name: str) -> None:
    inside = sum(key.startswith(f"{name}{DELIMITER}") for key in rows)
    if inside:
        raise NamespaceNotEmptyError(
            f"Namespace not empty: {name} has {inside} tables or namespaces. Drop them first"
        )
