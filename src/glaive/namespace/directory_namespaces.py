"""Namespaces below the root of a directory namespace: rows of its manifest table."""

from __future__ import annotations

from typing import Any

import lance_namespace as interface

from glaive.namespace.errors import (
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    UnsupportedOperationError,
)
from glaive.namespace.identifiers import DELIMITER, check_name, id_of, mode_of, text_of, value
from glaive.namespace.manifest_table import CatalogueRow, ManifestTable, Rows
from glaive.namespace.pages import page_of
from glaive.namespace.settings import DirectorySettings

__all__ = ["DirectoryNamespaces"]


class DirectoryNamespaces:
    """The operations of namespaces; a part of :class:`DirectoryNamespace`."""

    settings: DirectorySettings
    manifest: ManifestTable

    def list_namespaces(self, request: Any) -> interface.ListNamespacesResponse:
        """Names of the namespaces below one, in order; one page if ``limit`` says so."""
        path = id_of(request)
        names: set[str] = set()
        if self.settings.manifest:
            names = self._children(self._rows_of(path), path, "namespace")
        elif path:
            raise self._no_children()
        page, token = page_of(sorted(names), request)
        return interface.ListNamespacesResponse(namespaces=page, page_token=token)

    def namespace_exists(self, request: Any) -> interface.NamespaceExistsResponse:
        """Returns if there is a namespace, and raises otherwise."""
        self.describe_namespace(request)
        return interface.NamespaceExistsResponse()

    def describe_namespace(self, request: Any) -> interface.DescribeNamespaceResponse:
        """The properties of a namespace."""
        path = id_of(request)
        if not path:
            return interface.DescribeNamespaceResponse(properties={})
        properties = self._rows_of(path)[text_of(path)].properties
        return interface.DescribeNamespaceResponse(
            properties=None if properties is None else dict(properties)
        )

    def create_namespace(self, request: Any) -> interface.CreateNamespaceResponse:
        """Make a namespace; modes create, exist_ok and overwrite (of an empty one)."""
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
        """Remove an empty namespace; with the mode skip, a missing one is no error."""
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
        """All rows, if there is such a namespace."""
        if not self.settings.manifest:
            raise self._no_children()
        rows = self.manifest.read()
        self._require(rows, path)
        return rows

    @staticmethod
    def _require(rows: Rows, path: tuple[str, ...]) -> None:
        """Refuse a namespace that is not there."""
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
        f"Namespace not found: {name!r:.200}. list_namespaces names those that are there"
    )


def _check_empty(rows: Rows, name: str) -> None:
    inside = sum(key.startswith(f"{name}{DELIMITER}") for key in rows)
    if inside:
        raise NamespaceNotEmptyError(
            f"Namespace not empty: {name} has {inside} tables or namespaces. Drop them first"
        )
