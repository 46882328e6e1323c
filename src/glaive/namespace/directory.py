"""``DirectoryNamespace``: a folder or a bucket as a catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, NoReturn

import lance_namespace as interface

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset
from glaive.dataset.write import write_dataset
from glaive.errors import GlaiveError
from glaive.io.access import open_store
from glaive.io.storage_options import PERMISSIONS
from glaive.namespace import folders
from glaive.namespace.errors import (
    InvalidInputError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedOperationError,
    as_namespace_errors,
)
from glaive.namespace.folders import check_name, id_of, mode_of, page_of, text_of, value
from glaive.namespace.manifest_table import (
    CatalogueRow,
    DirectoryNamespaces,
    DirectorySettings,
    ManifestTable,
    Place,
    Rows,
    refuse_shared,
)
from glaive.namespace.operations import OPERATIONS, CallCounts, count_calls
from glaive.namespace.tables import TableOperations, read_rows
from glaive.process import now_ns


class DirectoryNamespace(
    CallCounts, DirectoryNamespaces, TableOperations, interface.LanceNamespace
):
    """Tables below one root, in folders that a listing finds, or in the table ``__manifest``.

    Parameters
    ----------
    session, context_provider
        Accepted as in pylance, and ignored.
    **properties
        Strings: ``root`` (a folder or URI; required), ``manifest_enabled`` and
        ``dir_listing_enabled`` (both ``"true"`` by default), ``table_version_tracking_enabled``,
        ``vend_input_storage_options``, and ``storage.*`` for the store. If both ways are enabled, a
        table below the root is the folder ``NAME.lance``, and all other tables are in the manifest
        table.

    Raises
    ------
    InvalidInputError
        A property is missing, unknown or has an invalid value.

    Notes
    -----
    The first call is the first access to the store. Picklable. The class has all methods of the
    interface. Operations that directories lack raise :class:`UnsupportedOperationError`.
    """

    def __init__(
        self, session: object = None, context_provider: object = None, **properties: object
    ) -> None:
        del session, context_provider
        self.settings = DirectorySettings.of(properties)
        self.properties = dict(properties)
        self._start_counting(properties)
        self.store = open_store(self.settings.root, self.settings.storage_options)
        self.manifest = ManifestTable(self.store.uri, self.settings.storage_options)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_made, (self.properties,))

    def __repr__(self) -> str:
        return f"DirectoryNamespace({self.namespace_id()})"

    def namespace_id(self) -> str:
        """Return the identity of this namespace: its root."""
        return f'DirectoryNamespace {{ root: "{self.store.public_uri}" }}'

    # ------------------------------------------------------------ looking tables up

    def list_tables(self, request: Any) -> interface.ListTablesResponse:
        """Return the names of a namespace's tables, in order; a page if ``limit`` is given."""
        path = id_of(request)
        names = self._tables_of(path)
        if value(request, "include_declared", True) is False:
            places = {name: self._find((*path, name)).folder for name in names}
            names = [name for name in names if folders.is_written(self.store, places[name])]
        page, token = page_of(names, request)
        return interface.ListTablesResponse(tables=page, page_token=token)

    def list_all_tables(self, request: Any) -> interface.ListTablesResponse:
        """Return the ids of all tables, with ``$`` between their names, in order."""
        names = set(self._listed())
        if self.settings.manifest:
            rows = self.manifest.read().values()
            names |= {row.id for row in rows if row.kind == "table"}
        page, token = page_of(sorted(names), request)
        return interface.ListTablesResponse(tables=page, page_token=token)

    def describe_table(self, request: Any) -> interface.DescribeTableResponse:
        """Return a table's location; ``load_detailed_metadata`` adds version, schema, counts."""
        path = id_of(request, of_table=True)
        found = self._find(path)
        row = found.row
        if row is None and self.settings.manifest:
            row = self.manifest.read().get(text_of(path))
        answer: dict[str, Any] = {
            "table": path[-1],
            "namespace": list(path[:-1]),
            "location": self._uri(found.folder),
            "table_uri": self._uri(found.folder),
            "storage_options": self._options(),
            "properties": None if row is None or row.properties is None else dict(row.properties),
            "managed_versioning": True if self.settings.tracks_versions else None,
        }
        detailed = value(request, "load_detailed_metadata", False)
        written = folders.is_written(self.store, found.folder)
        if detailed or value(request, "check_declared", False):
            answer["is_only_declared"] = not written
        if written and (detailed or value(request, "version") is not None):
            with as_namespace_errors(f"table {text_of(path)}"):
                answer |= self._facts(self._open(request))
        return interface.DescribeTableResponse(**answer)

    def table_exists(self, request: Any) -> interface.TableExistsResponse:
        """Return if the table exists; raise an error otherwise."""
        self._find(id_of(request, of_table=True))
        return interface.TableExistsResponse()

    # ------------------------------------------------------------ making and removing tables

    def declare_table(self, request: Any) -> interface.DeclareTableResponse:
        """Reserve a name for a table that is written later; return where to write it."""
        path = id_of(request, of_table=True)
        properties = value(request, "properties")
        folder = self._take(path, properties, value(request, "location"))
        return interface.DeclareTableResponse(
            location=self._uri(folder),
            storage_options=self._options(),
            properties=properties,
            managed_versioning=True if self.settings.tracks_versions else None,
        )

    def create_table(self, request: Any, request_data: bytes) -> interface.CreateTableResponse:
        """Write a table from an Arrow IPC stream; modes create, exist_ok and overwrite."""
        path = id_of(request, of_table=True)
        mode = mode_of(request, "create", "existok", "overwrite")
        reader = read_rows(request_data)
        properties = value(request, "properties")
        try:
            folder = self._find(path).folder
        except TableNotFoundError:
            folder = self._take(path, properties)
        else:
            if mode == "existok":
                return interface.CreateTableResponse(location=self._uri(folder))
            if mode == "create" and folders.is_written(self.store, folder):
                raise TableAlreadyExistsError(
                    f"table already exists: {text_of(path)}. Insert into it, or use the mode "
                    "overwrite"
                )
        with as_namespace_errors(f"table {text_of(path)}"):
            written = self._write(folder, reader, mode)
        return interface.CreateTableResponse(
            location=self._uri(folder),
            version=written.version,
            storage_options=self._options(),
            properties=properties,
        )

    def register_table(self, request: Any) -> interface.RegisterTableResponse:
        """Register a folder below the root as a table; it may be written later."""
        path = id_of(request, of_table=True)
        self._check_new(path)
        if not self.settings.manifest:
            raise UnsupportedOperationError(
                "register_table needs the manifest table: set manifest_enabled=true"
            )
        location = str(value(request, "location", ""))
        if folders.leaves_root(self.store, location):
            raise InvalidInputError(
                f"location {location!r:.200}: expected the path of a folder below the root of the "
                f"namespace, such as 'orders{folders.SUFFIX}'"
            )
        mode = mode_of(request, "create", "overwrite")
        properties: dict[str, str] | None = value(request, "properties")
        row = CatalogueRow(text_of(path), "table", location, properties)
        self._add(path, row, replace=mode == "overwrite")
        return interface.RegisterTableResponse(location=location, properties=properties)

    def deregister_table(self, request: Any) -> interface.DeregisterTableResponse:
        """Remove a table from the namespace; its data stay."""
        path = id_of(request, of_table=True)
        found = self._find(path)
        if self.settings.listing and found.folder == folders.listed_folder(self.store, path):
            folders.mark_deregistered(self.store, found.folder)
        self._forget(path)
        return interface.DeregisterTableResponse(id=list(path), location=self._uri(found.folder))

    def drop_table(self, request: Any) -> interface.DropTableResponse:
        """Remove a table from the namespace, and delete its data.

        Raises
        ------
        InvalidTableStateError
            Another table is in its folder, or its folder is in another table.
        """
        path = id_of(request, of_table=True)
        found = self._find(path)
        location = self._uri(found.folder)
        folders.refuse_links(self.store, found.folder)
        listing = self.store if self.settings.listing else None
        mine = True
        try:
            mine = self._forget(path, lambda rows: refuse_shared(rows, path, found.folder, listing))
            with as_namespace_errors(f"table {text_of(path)}"):
                folders.drop(self.store, found.folder, self._own_options())
        except BaseException:  # also Ctrl-C: without its name, nobody finds the files that are left
            if mine:  # another process that drops it may have removed its name
                self._restore(path, found)
            raise
        return interface.DropTableResponse(id=list(path), location=location)

    # ------------------------------------------------------------ inside

    def _tables_of(self, path: tuple[str, ...]) -> list[str]:
        names = set() if path else set(self._listed())
        if self.settings.manifest:
            rows = self._rows_of(path)
            names |= self._children(rows, path, "table")
        elif path:
            raise self._no_children()
        return sorted(names)

    def _listed(self) -> list[str]:
        return folders.listed_tables(self.store) if self.settings.listing else []

    def _find(self, path: tuple[str, ...]) -> Place:
        """Find the table of an id; raise ``TableNotFoundError`` if it is missing."""
        if len(path) > 1 and not self.settings.manifest:
            raise self._no_children()
        deregistered = False
        folder = folders.listed_folder(self.store, path) if self.settings.listing else None
        if folder is not None:
            deregistered = folders.is_deregistered(self.store, folder)
            if not deregistered and folders.is_there(self.store, folder):
                return Place(folder)
        if self.settings.manifest:
            row = self.manifest.read().get(text_of(path))
            if row is not None and row.is_table(path):
                where = f"table {text_of(path)} of {self.store.uri}"
                return Place(folders.checked_location(self.store, row.location, where), row)
        if deregistered:
            raise TableNotFoundError(f"Table not found: {text_of(path)} was deregistered")
        raise TableNotFoundError(
            f"Table not found: the table {text_of(path)!r:.200} was not found in {self.store.uri}. "
            "list_tables returns the existing tables"
        )

    def _open(self, request: object) -> LanceDataset:
        """Open the dataset of a request's table, at the request's version and branch."""
        path = id_of(request, of_table=True)
        folder = self._find(path).folder
        version: Any = value(request, "version")
        branch, tag = value(request, "branch"), value(request, "tag")
        if branch is not None and branch != "main":
            version = (branch, version)
        elif tag is not None:
            version = tag
        uri = self._uri(folder)
        return dataset(uri, version=version, storage_options=self._own_options())

    def _insert(self, request: object, reader: Any, mode: Any) -> LanceDataset:
        """Insert rows into a table, which is created if it was only declared."""
        folder = self._find(id_of(request, of_table=True)).folder
        branch = value(request, "branch")
        if branch is None and not folders.is_written(self.store, folder):
            return self._write(folder, reader, "create")
        opened = self._open(request)
        opened.insert(reader, mode=mode)
        return opened

    def _take(
        self, path: tuple[str, ...], properties: Mapping[str, str] | None, location: object = None
    ) -> str:
        """Reserve a name; return the folder."""
        self._check_new(path)
        listed = self.settings.listing and len(path) == 1
        if properties and not self.settings.manifest:
            raise UnsupportedOperationError(
                "properties of tables need the manifest table: set manifest_enabled=true"
            )
        folder = folders.new_folder(path, listed=listed)
        if location is not None and str(location).rstrip("/") != self._uri(folder):
            raise InvalidInputError(
                f"location {location!r:.200}: a new table lies at {self._uri(folder)}. Leave the "
                "location out, or use register_table"
            )
        if listed and folders.is_deregistered(self.store, folder):
            raise TableAlreadyExistsError(
                f"the table {path[-1]} was deregistered, its data are still in {folder}. Delete "
                "the folder, or choose another name"
            )
        if listed and folders.is_written(self.store, folder):
            raise TableAlreadyExistsError(f"table already exists: {text_of(path)}")
        if self.settings.manifest:
            self._add(path, CatalogueRow(text_of(path), "table", folder, properties), replace=False)
        folders.mark_declared(self.store, folder)
        return folder

    def _check_new(self, path: tuple[str, ...]) -> None:
        for name in path:
            check_name(name)
        if len(path) > 1 and not self.settings.manifest:
            raise self._no_children()

    def _add(self, path: tuple[str, ...], row: CatalogueRow, *, replace: bool) -> None:
        def edit(rows: Rows) -> Rows:
            self._require(rows, path[:-1])
            if row.id in rows and (not replace or rows[row.id].kind != row.kind):
                raise TableAlreadyExistsError(
                    f"table already exists: {row.id} is a {rows[row.id].kind}. Choose another name"
                )
            return rows | {row.id: row}

        self.manifest.change(edit)

    def _forget(self, path: tuple[str, ...], check: Callable[[Rows], object] = bool) -> bool:
        return self.settings.manifest and self.manifest.forget(path, check)

    def _restore(self, path: tuple[str, ...], found: Place) -> None:
        """Restore the name of a table whose deletion failed, so that it can be dropped again."""
        with suppress(GlaiveError):  # the store may still fail; another table may have the name
            if found.row is not None and folders.is_there(self.store, found.folder):
                self._add(path, found.row, replace=False)

    def _write(self, folder: str, reader: Any, mode: str) -> LanceDataset:
        options: Any = "overwrite" if mode == "overwrite" else "create"
        uri = self._uri(folder)
        return write_dataset(reader, uri, mode=options, storage_options=self._own_options())

    def _uri(self, folder: str) -> str:
        return self.store.full(folder)

    def _own_options(self) -> dict[str, str] | None:
        return dict(self.settings.storage_options) or None

    def _options(self) -> dict[str, str] | None:
        """Return the storage options for a client."""
        if not self.settings.vends_options:
            return None
        own = self.settings.storage_options
        options = {key: text for key, text in own.items() if key.lower() not in PERMISSIONS}
        if self.settings.refresh_millis is not None:
            expires = now_ns() // 1_000_000 + self.settings.refresh_millis
            options["expires_at_millis"] = str(expires)
        return options


def _refused(method: str) -> Callable[..., NoReturn]:
    @wraps(getattr(interface.LanceNamespace, method))
    def refuse(_self: DirectoryNamespace, *_request: object) -> NoReturn:
        raise UnsupportedOperationError(
            f"{method}: directory namespaces do not have it. Open the table instead, or use a "
            "catalogue with a server"
        )

    return refuse


for _name in OPERATIONS:
    if getattr(DirectoryNamespace, _name) is getattr(interface.LanceNamespace, _name):
        setattr(DirectoryNamespace, _name, _refused(_name))


count_calls(DirectoryNamespace)


def _made(properties: Mapping[str, object]) -> DirectoryNamespace:
    return DirectoryNamespace(**properties)


def connect(impl: str, properties: Mapping[str, str]) -> interface.LanceNamespace:
    """Connect to a catalogue.

    Parameters
    ----------
    impl
        ``"dir"`` for :class:`DirectoryNamespace`, ``"rest"`` for :class:`RestNamespace`, a name
        registered with ``lance_namespace.register_namespace_impl``, or a class as
        ``"module.Class"``.
    properties
        Properties of the class.

    Raises
    ------
    InvalidInputError
        The kind is unknown, or a property is invalid.
    """
    given: dict[str, Any] = dict(properties)
    if impl == "dir":
        return DirectoryNamespace(**given)
    if impl == "rest":
        from glaive.namespace.rest import RestNamespace

        return RestNamespace(**given)
    try:
        return interface.connect(impl, given)
    except ValueError as error:
        raise InvalidInputError(
            f"connect: no catalogue of the kind {impl!r:.100}. Known: 'dir', 'rest', registered "
            f"names, and classes as 'module.Class'. {error}"
        ) from error
