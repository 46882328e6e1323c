"""Create a dataset, or a branch, with the contents of a version of another.

A shallow clone has only a manifest and refers to the source by a base path. For a deep clone the
files are copied first (``glaive.table.copying``).

Specification: "Clones" and "Branches" in ``docs/format/refs.md``.
"""

from __future__ import annotations

from glaive.errors import DatasetExistsError, DatasetNotFoundError, ObjectNotFoundError
from glaive.format.manifest import Manifest, encode_manifest
from glaive.format.paths import manifest_path, transaction_path
from glaive.format.transaction import Transaction
from glaive.io.store import ObjectStore
from glaive.table.checksums import checksum_of_metadata
from glaive.table.dictionaries import embed_dictionaries
from glaive.table.finish_manifest import finish
from glaive.table.load import load_numbered, read_transaction
from glaive.table.operations.clone import Clone
from glaive.table.protocol import BuildContext
from glaive.table.put_manifest import made_by, put_manifest, unknown_until_read
from glaive.table.root import register_of
from glaive.table.version_hint import write_hint
from glaive.table.versions import latest, list_versions

__all__ = ["begin_clone", "refuse_dataset"]


def begin_clone(
    source: ObjectStore, manifest: Manifest, target: ObjectStore, clone: Clone
) -> Manifest:
    """Commit the first version of a clone or branch, with the number of the source.

    Raises
    ------
    DatasetExistsError
        There is a dataset at the target.
    CommitError
        It is not known whether there is this one.

    Notes
    -----
    Three requests and two listings, plus those for dictionaries of a source in format 0.1.
    """
    refuse_dataset(target)
    transaction = Transaction(read_version=manifest.version, operation=clone)
    encoded = transaction.encode()
    draft = clone.apply(None, BuildContext(manifest.version, older=manifest))
    finish(draft, manifest.version)
    draft.wire.transaction_file = transaction.file_name
    target.put(transaction_path(transaction.file_name), [encoded])
    buffers = encode_manifest(
        draft.wire,
        transaction=encoded,
        index_section=draft.index_section,
        dictionaries=embed_dictionaries(source, draft.wire, 0, manifest),
        checksum=checksum_of_metadata(target, draft.wire),
    )
    version = manifest.version
    made = put_manifest(target, version, "V2", buffers, transaction.uuid)
    with unknown_until_read(target, version):
        if not made:
            there = load_numbered(target, version, "V2")
            if not made_by(target, there, transaction.uuid):
                raise _exists(target)
        if register_of(target) is None and not _is_first(target, version):
            target.delete([manifest_path(version, "V2")])
            raise DatasetExistsError(
                f"cannot clone into {target.uri}: another dataset was begun there at the same "
                "time, and maybe given up for this one. Look whether there is one, else try again."
            )
    write_hint(target, version)
    return Manifest(
        draft.wire,
        where=target.full(manifest_path(version, "V2")),
        scheme="V2",
        transaction=encoded,
        index_section=draft.index_section,
    )


def _is_first(target: ObjectStore, version: int) -> bool:
    """Whether all versions follow this one, so that nobody else has begun here at the same time.

    Others may have begun with another number, which no put refuses. One listing, and one request
    if there are later versions.
    """
    numbers = [location.version for location in list_versions(target)]
    if min(numbers, default=version) < version:
        return False
    if max(numbers, default=version) == version:
        return True
    try:
        following = read_transaction(target, load_numbered(target, version + 1, "V2"))
    except ObjectNotFoundError:
        return False
    return following is not None and following.operation.wire_name != Clone.wire_name


def refuse_dataset(target: ObjectStore) -> None:
    """Check that there is no dataset at the target of a clone.

    Raises
    ------
    DatasetExistsError
        There is one.
    """
    try:
        latest(target)
    except DatasetNotFoundError:
        return
    raise _exists(target)


def _exists(target: ObjectStore) -> DatasetExistsError:
    return DatasetExistsError(
        f"Dataset already exists: cannot clone into {target.uri}: it is a dataset already. Choose "
        "another location."
    )
