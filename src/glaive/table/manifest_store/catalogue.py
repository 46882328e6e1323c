"""A register of manifests behind a catalogue: a client of ``lance_namespace``.

The catalogue gives each number once, and moves the manifest that a writer has staged to its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, GlaiveError, StoreError, UnsupportedFeatureError
from glaive.format.paths import VERSIONS
from glaive.io.catalogue import answer_field, said_by
from glaive.table.manifest_store.protocol import ManifestEntry

__all__ = ["CatalogueManifestStore", "manifest_key"]

_MISSING = frozenset({"TableVersionNotFoundError", "TableNotFoundError"})
_TAKEN = "ConcurrentModificationError"
_REFUSAL = "LanceNamespaceError"
"""What all errors of the interface are: the catalogue has answered, but for two of them."""
_NO_ANSWER = frozenset({"ServiceUnavailableError", "InternalError"})
_V2_DIGITS = 20
_TREE = "tree"
"""Folder of the branches of a table."""
_ALL = 1 << 62
"""Above all versions, as the end of a range."""


class _Request(dict[str, Any]):
    """A request as clients of either kind take it: a mapping, and an object with attributes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get(name)

    def model_dump(self) -> dict[str, Any]:
        """As a plain mapping."""
        return dict(self)


@dataclass(frozen=True, slots=True)
class CatalogueManifestStore:
    """Versions of one table, given out by its catalogue. Picklable if the client is.

    Parameters
    ----------
    client
        Has ``create_table_version``, ``describe_table_version`` and ``list_table_versions``.
    table_id
        Path of names of the table.
    root
        Root of the table, as its store calls it.
    """

    client: Any
    table_id: tuple[str, ...]
    root: str = field(repr=False)  # a URL may have a key

    owns_manifests = True
    """The catalogue moves staged manifests to their place; nobody else does."""

    def get(self, root: str, version: int) -> ManifestEntry | None:
        """The entry of a version; ``None`` if there is none. One request."""
        answer = self._ask("describe_table_version", root, missing=True, version=version)
        reported = None if answer is None else answer_field(answer, "version")
        return None if reported is None else self._entry(reported, version)

    def latest(self, root: str) -> ManifestEntry | None:
        """The entry with the highest version; ``None`` if there are no entries. One request."""
        answer = self._ask("list_table_versions", root, missing=True, limit=1, descending=True)
        reported = None if answer is None else answer_field(answer, "versions")
        if not reported:
            return None
        if isinstance(reported, str) or not isinstance(reported, Sequence):
            raise self._wrong("a list of versions", reported)
        return max(map(self._entry, reported), key=lambda entry: entry.version)

    def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
        """Ask for a number; ``False`` if another writer has it. One request.

        Raises
        ------
        StoreError
            There is no answer, so that the number may be this writer's.
        """
        name = entry.path.rpartition("/")[2]
        try:
            self._ask(
                "create_table_version",
                root,
                version=entry.version,
                manifest_path=manifest_key(root, entry.path),
                manifest_size=entry.size,
                naming_scheme="V2" if len(name.partition(".")[0]) == _V2_DIGITS else "V1",
            )
        except Exception as error:
            if _is(error, frozenset({_TAKEN})):
                return False
            met = error.__cause__ if type(error) is StoreError else error
            if _is(met, frozenset({_REFUSAL})) and not _is(met, _NO_ANSWER):
                raise
            unanswered = StoreError(str(error))
            unanswered.is_unanswered = True
            raise unanswered from error
        return True

    def put_if_exists(self, root: str, entry: ManifestEntry) -> None:
        """Nothing: the catalogue knows where it has put a manifest."""

    def drop(self, root: str) -> None:
        """Have the catalogue forget all versions."""
        ranges = [{"start_version": 0, "end_version": _ALL}]
        self._ask("batch_delete_table_versions", root, missing=True, ranges=ranges)

    def _ask(self, method: str, root: str, *, missing: bool = False, **fields: Any) -> Any:
        branch = None
        if root != self.root:
            start = f"{self.root}/{_TREE}/"
            if not root.startswith(start):
                raise UnsupportedFeatureError(
                    f"table {list(self.table_id)}: its catalogue manages the versions of the table "
                    f"and of its branches, not those of {root}"
                )
            branch = root.removeprefix(start)
        asked = {"branch": branch, **fields}
        given = {key: field for key, field in asked.items() if field is not None}
        request = _Request(id=list(self.table_id), **given)
        try:
            return getattr(self.client, method)(request)
        except Exception as error:
            if missing and _is(error, _MISSING):
                return None
            if isinstance(error, GlaiveError) or _is(error, frozenset({_TAKEN})):
                raise
            raise StoreError(
                f"table {list(self.table_id)}: the catalogue failed in {method}: {said_by(error)}. "
                "Try again when it is available"
            ) from error

    def _entry(self, reported: object, wanted: int | None = None) -> ManifestEntry:
        version, path = answer_field(reported, "version"), answer_field(reported, "manifest_path")
        if not isinstance(version, int) or isinstance(version, bool) or not 0 < version < 1 << 63:
            raise self._wrong("a version", reported)
        if wanted is not None and version != wanted:
            raise self._wrong(f"version {wanted}", reported)
        folder, _, name = str(path or "").rpartition("/")
        if not name or folder.rpartition("/")[2] != VERSIONS:
            raise self._wrong(f"a manifest below {VERSIONS}/", reported)
        size = answer_field(reported, "manifest_size")
        e_tag = answer_field(reported, "e_tag")
        return ManifestEntry(
            version=version,
            path=f"{VERSIONS}/{name}",
            size=size if isinstance(size, int) and size > 0 else None,
            e_tag=None if e_tag is None else str(e_tag),
        )

    def _wrong(self, expected: str, found: object) -> CorruptFileError:
        where = f"the catalogue's answer for the table {list(self.table_id)}"
        return CorruptFileError(
            "version of a table", expected=expected, found=f"{found!r:.200}", where=where
        )


def manifest_key(root: str, path: str) -> str:
    """What catalogues call an object of a table: its path in the store, without a leading slash."""
    scheme, mark, rest = root.partition("://")
    if mark and scheme not in ("file", "memory"):
        rest = rest.partition("/")[2]
    return f"{rest if mark else root}/{path}".lstrip("/")


def _is(error: BaseException | None, names: frozenset[str]) -> bool:
    """Whether it is one of these errors of the interface, whose package may not be installed."""
    return any(kind.__name__ in names for kind in type(error).__mro__)
