"""Versions of the tables of a directory namespace, which clients may commit through it.

A client writes a manifest under a name of its own and asks for a number; whoever asks first for a
number gets it. The manifests are objects of the table, as without a catalogue.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, get_args

import lance_namespace as interface

from glaive.errors import FormatError, ObjectExistsError, ObjectNotFoundError
from glaive.format.names import is_staged_manifest_name
from glaive.format.paths import DETACHED, VERSIONS, NamingScheme, manifest_path
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.namespace import folders
from glaive.namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    TableVersionNotFoundError,
    as_namespace_errors,
)
from glaive.namespace.identifiers import id_of, text_of, value
from glaive.table.manifest_store.catalogue import manifest_key
from glaive.table.manifest_store.steps import refuse_others
from glaive.table.refs import MAIN, TREE, is_branch_name
from glaive.table.versions import ManifestLocation, list_manifests
from glaive.types import integer_of

if TYPE_CHECKING:
    from glaive.namespace.manifest_table import Place

__all__ = ["TableVersions"]

_SCHEMES: tuple[NamingScheme, ...] = ("V2", "V1")
_LONGEST = 1 << 31
"""Bytes of a manifest that is committed through the namespace."""


class TableVersions(ABC):
    """Operations on versions; a part of :class:`DirectoryNamespace`."""

    store: ObjectStore

    @abstractmethod
    def _find(self, path: tuple[str, ...]) -> Place:
        """Implemented by the namespace of which this is a part."""

    def list_table_versions(self, request: Any) -> interface.ListTableVersionsResponse:
        """The versions of a table, oldest first, or newest with ``descending``. One listing."""
        table = self._version_root(request)
        found = _manifests(table)
        if value(request, "descending", False):
            found.reverse()
        after, limit = value(request, "page_token"), value(request, "limit")
        if after is not None:
            places = {str(at.version): number for number, (at, _) in enumerate(found)}
            if str(after) not in places:
                raise InvalidInputError(f"page_token: no version {after!r:.40}")
            found = found[places[str(after)] + 1 :]
        token = None
        if limit is not None:
            if limit < 1:
                raise InvalidInputError(f"limit: expected a number above 0, found {limit}")
            token = str(found[limit - 1][0].version) if len(found) > limit else None
            found = found[:limit]
        versions: list[Any] = [_described(table, *one) for one in found]
        return interface.ListTableVersionsResponse(versions=versions, page_token=token)

    def describe_table_version(self, request: Any) -> Any:
        """One version; the newest if the request names none.

        One listing, or one request for a version by its number, two with old names of manifests:
        a listing may be stale, and clients ask so whether what they committed is there.
        """
        table = self._version_root(request)
        wanted = value(request, "version")
        found = _manifests(table)[-1:] if wanted is None else _named(table, wanted)
        for at, meta in found:
            return _answer("DescribeTableVersionResponse", request, _described(table, at, meta))
        raise TableVersionNotFoundError(
            f"Table version not found: version {wanted} of {text_of(id_of(request))}"
        )

    def create_table_version(self, request: Any) -> Any:
        """Give a number to a manifest that a client has staged.

        Raises
        ------
        ConcurrentModificationError
            The number is taken.
        InvalidInputError
            The staged manifest is missing, empty, or not one of this table.
        """
        table = self._version_root(request)
        version, scheme = value(request, "version"), value(request, "naming_scheme", "V2")
        if not isinstance(version, int) or not 0 < version < 1 << 63:
            raise InvalidInputError(f"version: expected a number above 0, found {version!r:.60}")
        if scheme not in get_args(NamingScheme):
            raise InvalidInputError(f"naming_scheme: expected V1 or V2, found {scheme!r:.60}")
        staged = str(value(request, "manifest_path", ""))
        folder, _, name = staged.rpartition("/")
        path = f"{VERSIONS}/{name}"
        if not is_staged_manifest_name(name) or not manifest_key(table.uri, VERSIONS).endswith(
            folder.lstrip("/")
        ):
            raise InvalidInputError(
                f"manifest_path {staged!r:.200}: expected a staged manifest below "
                f"{table.full(VERSIONS)}"
            )
        final = manifest_path(version, scheme)
        with as_namespace_errors(f"version {version} of {text_of(id_of(request))}"):
            self._promote(table, path, final, version)
            meta = table.head(final)
        at = ManifestLocation(version, final, scheme, meta.size)
        return _answer("CreateTableVersionResponse", request, _described(table, at, meta))

    @staticmethod
    def _promote(table: ObjectStore, staged: str, final: str, version: int) -> None:
        try:
            data = table.get(staged)
        except ObjectNotFoundError:
            raise InvalidInputError(
                f"Staging manifest not found at {table.full(staged)}. Write it first"
            ) from None
        if not 0 < data.size <= _LONGEST:
            raise InvalidInputError(f"{table.full(staged)}: a manifest of {data.size} bytes")
        try:
            refuse_others(data, version, table.full(staged))
        except FormatError as error:
            raise InvalidInputError(f"no manifest of version {version}: {error}") from None
        try:
            table.put(final, [data], mode="create")
        except ObjectExistsError:
            table.discard([staged], own=False)
            raise ConcurrentModificationError(
                f"Concurrent modification: version {version} of {table.uri} exists already. Read "
                "it, and commit the next one"
            ) from None
        table.discard([staged], own=False)  # the folder may be a link to that of another table

    def batch_delete_table_versions(self, request: Any) -> Any:
        """Delete the manifests of ranges of versions, which end before their last number.

        The newest version of a table that is used is never in a range of a clean-up.
        """
        table = self._version_root(request)
        ranges = value(request, "ranges")
        if ranges is None:
            raise InvalidInputError("ranges: batch_delete_table_versions needs them")
        bounds = [(value(one, "start_version"), value(one, "end_version")) for one in ranges]
        removed = [
            at.path
            for at, _ in _manifests(table)
            if any(start <= at.version and (at.version < end or end < 0) for start, end in bounds)
        ]
        with as_namespace_errors(f"table {text_of(id_of(request))}"):
            table.delete(removed)
        return _answer("BatchDeleteTableVersionsResponse", request, len(removed), "deleted_count")

    def _version_root(self, request: object) -> ObjectStore:
        branch = value(request, "branch")
        found = self._find(id_of(request, of_table=True))
        if branch in (None, MAIN):
            return folders.open_folder(self.store, found.folder)
        if not is_branch_name(branch):
            raise InvalidInputError(f"branch: {branch!r:.100} is not a valid branch name")
        return folders.open_folder(self.store, f"{found.folder}/{TREE}/{branch}")


def _manifests(table: ObjectStore) -> list[tuple[ManifestLocation, ObjectMeta]]:
    """All complete versions, oldest first."""
    found = [(at, meta) for at, meta in list_manifests(table) if meta.size and not at.is_detached]
    return sorted(found, key=lambda one: one[0].version)


def _named(table: ObjectStore, version: object) -> list[tuple[ManifestLocation, ObjectMeta]]:
    """A complete version by its number, if there is one."""
    number = integer_of(version) or 0
    for scheme in _SCHEMES if 0 < number < DETACHED else ():
        path = manifest_path(number, scheme)
        with suppress(ObjectNotFoundError):
            meta = table.head(path)
            if meta.size:
                return [(ManifestLocation(number, path, scheme, meta.size), meta)]
    return []


def _described(table: ObjectStore, at: ManifestLocation, meta: ObjectMeta) -> dict[str, Any]:
    changed = meta.modified
    return {
        "version": at.version,
        "manifest_path": manifest_key(table.uri, at.path),
        "manifest_size": meta.size,
        "timestamp_millis": None if changed is None else int(changed.timestamp() * 1000),
    }


def _answer(kind: str, request: object, reported: object, name: str = "version") -> Any:
    """A model; a mapping for clients that send mappings and expect one, as pylance does."""
    model = getattr(interface, kind)(**{name: reported})
    return model.to_dict() if isinstance(request, dict) else model
