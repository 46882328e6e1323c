"""Base paths: other locations with files of a dataset.

Specification: "Base paths" in ``docs/format/manifest.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from glaive.arrow.utf8 import refuse_half_characters
from glaive.dataclass import dataclass
from glaive.errors import GlaiveError, OptionError
from glaive.format.limits import MAX_BASE_PATH
from glaive.format.manifest import Manifest
from glaive.format.paths import data_file_path
from glaive.format.pb import table_pb2
from glaive.io.store import ObjectStore
from glaive.table.bases import open_base

__all__ = [
    "DataLocation",
    "DatasetBasePath",
    "base_paths_of",
    "blob_bases",
    "find_locations",
    "numbered",
]


@dataclass(frozen=True, slots=True)
class DatasetBasePath:
    """Another location with files of a dataset.

    Parameters
    ----------
    path
        A URI, or the absolute path of a directory.
    name
        An optional name, for users.
    is_dataset_root
        Whether it is organised like a dataset, with data files below ``data``; otherwise files
        are directly below it, such as blobs.
    id
        Identity, by which files refer to it; 0 lets the commit choose.
    """

    path: str
    name: str | None = None
    is_dataset_root: bool = False
    id: int = 0

    def __post_init__(self) -> None:
        path: object = self.path
        number: object = self.id
        if not isinstance(path, str) or not path:
            raise OptionError(f"path of a base: expected a URI or directory, found {path!r}")
        if len(path) > MAX_BASE_PATH:
            raise OptionError(
                f"path of a base: expected at most {MAX_BASE_PATH} characters, found {len(path)}"
            )
        if not isinstance(number, int) or not 0 <= number < 2**32:
            raise OptionError(f"id of base {path!r}: expected 0 or more, found {number!r}")
        with refuse_half_characters("path or name of a base"):
            f"{path}{self.name}".encode()

    def __repr__(self) -> str:
        path = GlaiveError.without_secrets(self.path)  # that of a stranger's dataset, too
        rest = f"name={self.name!r}, is_dataset_root={self.is_dataset_root}, id={self.id}"
        return f"DatasetBasePath(path={path!r}, {rest})"

    def to_wire(self, number: int) -> table_pb2.BasePath:
        """Make the wire message, with this id.

        Raises
        ------
        OptionError
            The path has a password or a key, which all who read the dataset would see.
        """
        if GlaiveError.without_secrets(self.path) != self.path:
            raise OptionError(
                f"path of a base: {self.path!r} has a password or a key, which would be written "
                "into the dataset. Give the location itself, and credentials in base_store_params."
            )
        return table_pb2.BasePath(
            id=number, name=self.name, is_dataset_root=self.is_dataset_root, path=self.path
        )


def numbered(bases: Iterable[DatasetBasePath]) -> tuple[table_pb2.BasePath, ...]:
    """The messages of new bases; those without an id get the lowest free ids.

    Raises
    ------
    OptionError
        Two have the same id.
    """
    bases = tuple(bases)
    taken: set[int] = set()
    for base in bases:
        if base.id in taken:
            raise OptionError(f"two base paths have the id {base.id}; leave it out, or change one")
        taken |= {base.id} - {0}
    free = (number for number in count(1) if number not in taken)
    return tuple(base.to_wire(base.id or next(free)) for base in bases)


def base_paths_of(manifest: Manifest) -> dict[int, DatasetBasePath]:
    """The base paths of a version, by id."""
    return {
        base.id: DatasetBasePath(
            base.path, base.name if base.HasField("name") else None, base.is_dataset_root, base.id
        )
        for base in manifest.base_paths.values()
    }


def blob_bases(bases: Iterable[table_pb2.BasePath]) -> dict[int, str]:
    """Bases for URIs of blobs, by id: those that are no dataset roots."""
    return {base.id: base.path for base in bases if not base.is_dataset_root}


@dataclass(frozen=True, slots=True)
class DataLocation:
    """A location of data files, and its base path id; ``None`` for the dataset's root.

    ``is_root`` specifies whether data files are below ``data`` there.
    """

    store: ObjectStore
    base_id: int | None = None
    is_root: bool = True

    def path_of(self, name: str) -> str:
        """Path of a data file."""
        return data_file_path(name) if self.is_root else name


_PLACES_BEGIN: Final = ("~", "./", "../")
"""Beginnings of paths that are not absolute, and of no name."""


def _is_place(target: str) -> bool:
    """Whether a caller who gives this means a place, and not what a dataset calls another one."""
    begins = target.startswith(_PLACES_BEGIN)
    return begins or ":/" in target or Path(target).is_absolute()


def find_locations(
    store: ObjectStore,
    bases: Sequence[table_pb2.BasePath],
    targets: Sequence[str],
    *,
    everywhere: bool,
) -> tuple[DataLocation, ...]:
    """Locations for new files, to be used in turn; default: the dataset's root.

    Parameters
    ----------
    bases
        Base paths of the dataset.
    targets
        Names or paths of some of them; the URI of the dataset means its root. What is written as a
        path, such as ``/x``, ``~/x`` and ``./x``, or as a URI is no name: who made the dataset
        chose the names.
    everywhere
        Use the dataset's root and all base paths.

    Raises
    ------
    OptionError
        There is no such base path.
    AccessError
        The caller has not allowed it.
    """
    chosen: list[table_pb2.BasePath | None] = list(bases) if everywhere else []
    for target in targets:
        if target == store.uri:
            chosen.append(None)
            continue
        matching = [base for base in bases if target == base.path]
        if not matching and not _is_place(target):
            matching = [base for base in bases if target == base.name]
        if not matching:
            known = ", ".join(base.name or base.path for base in bases) or "none"
            raise OptionError(
                f"Base reference {target!r} not found in available bases: target_bases: "
                f"{store.uri} has no base path {target!r}; it has: {known}. Add it with "
                "initial_bases or add_bases."
            )
        chosen.append(matching[0])
    if everywhere or not chosen:
        chosen.insert(0, None)
    return tuple(
        DataLocation(store)
        if base is None
        else DataLocation(open_base(store, base, store.uri), base.id, base.is_dataset_root)
        for base in chosen
    )
