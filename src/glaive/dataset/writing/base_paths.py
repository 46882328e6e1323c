"""Base paths: other locations with files of a dataset.

Specification: "Base paths" in ``docs/format/manifest.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from glaive.errors import OptionError
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2

__all__ = ["DatasetBasePath", "base_paths_of", "blob_bases", "numbered"]


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
        if not isinstance(number, int) or not 0 <= number < 2**32:
            raise OptionError(f"id of base {path!r}: expected 0 or more, found {number!r}")


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
    return tuple(
        table_pb2.BasePath(
            id=base.id or next(free),
            name=base.name,
            is_dataset_root=base.is_dataset_root,
            path=base.path,
        )
        for base in bases
    )


def base_paths_of(manifest: Manifest) -> dict[int, DatasetBasePath]:
    """The base paths of a version, by id."""
    return {
        base.id: DatasetBasePath(
            base.path, base.name if base.HasField("name") else None, base.is_dataset_root, base.id
        )
        for base in manifest.wire.base_paths
    }


def blob_bases(bases: Iterable[table_pb2.BasePath]) -> dict[int, str]:
    """Bases for URIs of blobs, by id: those that are no dataset roots."""
    return {base.id: base.path for base in bases if not base.is_dataset_root}
