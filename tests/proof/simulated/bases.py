"""Base paths of a simulated table: its own root, its own folder of data, and another folder."""

from __future__ import annotations

from collections.abc import Iterator

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.writing.plan import DatasetBasePath
from glaive.format.manifest import Manifest
from glaive.table.references import VersionFile, files_of

__all__ = ["based", "bases_of", "path_of", "target"]

_NAMES = ("root", "data", "other")


def bases_of(uri: str) -> tuple[DatasetBasePath, ...]:
    """The base paths of a table at a place; by two of them its own files have another name."""
    return (
        DatasetBasePath(uri, "root", is_dataset_root=True),
        DatasetBasePath(f"{uri}/data", "data"),
        DatasetBasePath(f"{uri}/other", "other", is_dataset_root=True),
    )


def target(at: LanceDataset, drawn: float) -> list[str]:
    """Where to write new files, by a number from 0 to 1: a base path, or none of them."""
    names = [base.name for base in at.manifest.wire.base_paths if base.name in _NAMES]
    number = int(drawn * (len(names) + 1))
    return names[number : number + 1]


def path_of(manifest: Manifest, uri: str, file: VersionFile) -> str:
    """Path of a file in the bucket of a table, which is at ``uri``."""
    if file.base_id is None:
        return file.path
    (base,) = (base for base in manifest.wire.base_paths if base.id == file.base_id)
    plain = file.kind == "data" and not base.is_dataset_root
    name = file.path.removeprefix("data/") if plain else file.path
    return f"{base.path.removeprefix(uri)}/{name}".strip("/")


def based(manifest: Manifest, uri: str) -> Iterator[str]:
    """Paths in the bucket of the files of a version that are below base paths."""
    for file in files_of(manifest):
        if file.base_id is not None and not file.is_folder:
            yield path_of(manifest, uri, file)
