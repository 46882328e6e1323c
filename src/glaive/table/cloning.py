"""Begin a dataset, or a branch of one, with the content of a version of another.

A shallow clone holds a manifest only: its files stay where they are, below a base path. A deep
clone copies them first.

Specification: "Clones" and "Branches" in ``docs/format/refs.md``.
"""

from __future__ import annotations

from collections.abc import Iterator

from glaive.errors import DatasetExistsError, DatasetNotFoundError
from glaive.format.manifest import Manifest, encode_manifest
from glaive.format.paths import DATA, manifest_path, transaction_path
from glaive.format.transaction import Transaction
from glaive.io.pool import ordered_map
from glaive.io.store import ObjectStore
from glaive.table.bases import base_of
from glaive.table.dictionaries import embed_dictionaries
from glaive.table.handlers import put_manifest
from glaive.table.operations.clone import Clone
from glaive.table.protocol import CommitOptions
from glaive.table.references import files_of
from glaive.table.stamp import stamp
from glaive.table.versions import latest, write_hint

__all__ = ["begin_clone", "copy_files"]

_COPIES = 8
"""Files being copied at a time."""


def begin_clone(
    source: ObjectStore, manifest: Manifest, target: ObjectStore, clone: Clone
) -> Manifest:
    """Make the first version of a clone or branch; its number is that of the source.

    Raises
    ------
    DatasetExistsError
        There is a dataset at the target.

    Notes
    -----
    Three requests and a listing, beside those of an old source whose dictionaries are read.
    """
    _refuse_dataset(target)
    transaction = Transaction(read_version=manifest.version, operation=clone)
    encoded = transaction.encode()
    draft = clone.apply(None, manifest.version, CommitOptions(), manifest)
    stamp(draft, manifest.version)
    draft.wire.transaction_file = transaction.file_name
    target.put(transaction_path(transaction.file_name), [encoded])
    pieces = encode_manifest(
        draft.wire,
        transaction=encoded,
        index_section=draft.index_section,
        dictionaries=embed_dictionaries(source, draft.wire, 0, manifest),
    )
    version = manifest.version
    if not put_manifest(target, version, "V2", pieces, transaction.uuid):
        raise _exists(target)
    write_hint(target, version)
    return Manifest(
        draft.wire,
        where=target.full(manifest_path(version, "V2")),
        scheme="V2",
        transaction=encoded,
        index_section=draft.index_section,
    )


def copy_files(source: ObjectStore, manifest: Manifest, target: ObjectStore) -> int:
    """Copy all files that a version consists of below the root ``target``; returns how many.

    Two requests per file, and a listing per folder of blobs or of an index. Memory: the files
    being copied.
    """
    _refuse_dataset(target)

    def copy(one: tuple[ObjectStore, str, str]) -> None:
        store, path, to = one
        target.put(to, [store.get(path)])

    files = _files(source, manifest)
    return sum(1 for _ in ordered_map(copy, files, workers=_COPIES, in_order=False))


def _files(source: ObjectStore, manifest: Manifest) -> Iterator[tuple[ObjectStore, str, str]]:
    """Where each file is, and its path in the copy."""
    for one in files_of(manifest):
        if one.kind == "transaction":
            continue
        store, path = source, one.path
        if one.base_id is not None:
            store, is_root = base_of(source, manifest, one.base_id)
            if one.kind == "data" and not is_root:
                path = path.removeprefix(f"{DATA}/")
        if not one.is_folder:
            yield store, path, one.path
            continue
        for meta in store.walk(path):
            yield store, meta.path, one.path + meta.path.removeprefix(path)


def _refuse_dataset(target: ObjectStore) -> None:
    try:
        latest(target)
    except DatasetNotFoundError:
        return
    raise _exists(target)


def _exists(target: ObjectStore) -> DatasetExistsError:
    return DatasetExistsError(
        f"a clone begins a dataset, but there is one at {target.uri} already. Choose another place."
    )
