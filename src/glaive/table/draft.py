"""The next version of a dataset, made by an operation on top of the newest one; not yet put."""

from __future__ import annotations

from glaive.entropy import random_bytes
from glaive.errors import UnsupportedFeatureError
from glaive.format.column_names import refuse_reserved
from glaive.format.flags import check_writable
from glaive.format.fragment import LEGACY
from glaive.format.manifest import Manifest
from glaive.format.paths import DETACHED
from glaive.format.transaction import Operation
from glaive.io.store import ObjectStore
from glaive.table.detached import check_ids_not_given
from glaive.table.finish_manifest import finish
from glaive.table.fragment_ids import mark_file_versions
from glaive.table.lineage import load_lineage
from glaive.table.load import open_version
from glaive.table.protocol import BuildContext, CommitOptions, Draft, HiddenLineage
from glaive.table.registry import read_operation

__all__ = ["draft_of"]


def draft_of(
    store: ObjectStore, base: Manifest | None, change: Operation, options: CommitOptions
) -> tuple[Draft, bool]:
    """The version that an operation makes of another, complete but for its transaction.

    Parameters
    ----------
    base
        The version to build on; ``None`` where there is none yet.
    change
        The operation, in wire format.

    Returns
    -------
    tuple
        The draft, and whether the row counts of all its fragments are known.

    Raises
    ------
    UnsupportedFeatureError
        The version to build on, or to restore, has a feature that this writer does not support;
        or the one to restore is detached, and has ids that others got since.
    VersionNotFoundError
        The version to restore was cleaned up.
    SchemaError
        A column has a name that is reserved for row ids.
    """
    if base is not None:
        _check_writable(base)
    version = 1 if base is None else base.version + 1
    if base is not None and version == DETACHED and not options.detached:
        raise UnsupportedFeatureError(
            f"version {base.version} of {store.uri} has the highest number that there is: there "
            "can be none after it. Write its rows to another place"
        )
    operation = read_operation(change)
    restored = operation.restored
    older = None if restored is None else open_version(store, restored)
    if older is not None:
        _check_writable(older)
        if base is not None:
            check_ids_not_given(store, base, older)
    if base is not None:
        hidden = operation.hidden(base)
        if hidden:
            lineage = {number: _hidden_lineage(store, base, number) for number in hidden}
            operation = operation.with_hidden(lineage)
    draft = operation.apply(base, BuildContext(version, options, older))
    refuse_reserved(draft.wire.fields, store.uri)
    if draft.wire.data_format.version == str(LEGACY):
        _correct_format(Manifest(draft.wire, where=store.uri))
    if options.detached:
        version = int.from_bytes(random_bytes(8), "little") | DETACHED
    known = None if base is None or not draft.kept else base.wire
    carried = 0 if known is None else known.reader_feature_flags | known.writer_feature_flags
    return draft, finish(draft, version, carried=carried)


def _check_writable(version: Manifest) -> None:
    flags = version.wire
    check_writable(flags.reader_feature_flags, flags.writer_feature_flags, where=version.where)


def _correct_format(made: Manifest) -> None:
    """Let a manifest say the format of its files, where Lance 0.16 said 0.1 of newer ones."""
    versions = {file.version for fragment in made.fragments() for file in fragment.files}
    if versions and versions != {LEGACY}:
        if LEGACY in versions:
            raise UnsupportedFeatureError(
                f"{made.where} has files of the formats {', '.join(sorted(map(str, versions)))}, "
                "as Lance 0.16 could mix them: no version with both is made. Restore an earlier "
                "version, or overwrite the dataset with its own rows."
            )
        made.wire.data_format.version = str(made.data_format)
        mark_file_versions(made.wire, versions, made.data_format)


def _hidden_lineage(store: ObjectStore, base: Manifest, fragment_id: int) -> HiddenLineage:
    fragment = base.fragment(base.position_of(fragment_id))
    ids = load_lineage(store, base, fragment, "row_ids")
    created = load_lineage(store, base, fragment, "created_at")
    return ids.all(base.where), created.all(base.where)
