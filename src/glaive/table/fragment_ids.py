"""Assign fragment ids, row ids and row versions at the commit.

Specification: "Building the manifest" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import compress
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.blocks import ascending
from glaive.errors import CorruptFileError, NotFoundError, OptionError, UnsupportedFeatureError
from glaive.format.fragment import TOMBSTONE, Fragment, FragmentList, messages_of
from glaive.format.manifest import Feature, Manifest
from glaive.format.pb import table_pb2
from glaive.format.rowids import (
    concatenate_row_ids,
    count_row_ids,
    decode_row_ids,
    decode_versions,
    encode_row_ids,
    encode_version_array,
    encode_versions,
)
from glaive.format.wire import MAX_FRAGMENT_ID
from glaive.types import FormatVersion

# --- Checks of a commit for the fragments that it gets ----------------------------------
# Specification: "Building the manifest" in ``docs/format``.


def check_fragment_id(number: int) -> None:
    """Check the id of a new fragment.

    Raises
    ------
    CorruptFileError
        The id is too large: a sign of damage, as ids are assigned consecutively.
    """
    if number > MAX_FRAGMENT_ID:
        raise CorruptFileError(
            "id of a new fragment",
            expected="below 2^32",
            found=f"{number}, as the previous version has id {number - 1}",
            where="the new version",
        )


def give_id(fragment: table_pb2.DataFragment, number: int) -> None:
    """Give a new fragment its id.

    Raises
    ------
    OptionError
        It had another id and has a deletion file. The name of that file has the old id, so readers
        would miss it.
    """
    if fragment.id != number and fragment.HasField("deletion_file"):
        raise OptionError(
            f"the transaction adds a fragment with the id {fragment.id} and deleted rows. As a new "
            f"fragment it would get the id {number}, so its deletion file would not be found. Add "
            "fragments as they were written. To change fragments of the dataset, use a delete, an "
            "update or a merge of all fragments, or write their rows again."
        )
    fragment.id = number


def check_deletions_stay(base: Manifest, fragments: Sequence[Fragment]) -> None:
    """Check that fragments have as many deleted rows as the fragments of ``base`` that they change.

    Skips fragments whose number of deleted rows is unknown, as old writers left them, and ids that
    two fragments share.

    Raises
    ------
    OptionError
        A fragment has fewer deleted rows: the other rows would come back.
    """
    if not fragments or not base.columns.any_deleted:
        return
    given, ids = FragmentList.of(fragments), base.fragment_ids
    numbers, stated = given.ids, given.deleted_rows
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids, numbers, sorter=order)
    is_one = np.searchsorted(ids, numbers, "right", sorter=order) - at == 1
    before = np.zeros(len(numbers), np.int64)
    before[is_one] = base.deleted_rows[order[at[is_one]]]
    fewer = np.flatnonzero((stated >= 0) & (stated < before))
    if len(fewer):
        first = fewer[0]
        raise OptionError(
            f"the transaction has fragment {numbers[first]} with {stated[first]} deleted rows, but "
            f"{before[first]} are deleted in the newest version: they would come back. Give the "
            "version that the fragment was read from as the read version, or change it as it is."
        )


_LEGACY: Final = FormatVersion(0, 1)
_MAX_ROW_ID: Final = 2**64 - 1
_NONE: Final = FragmentList()

Wire = table_pb2.DataFragment
Created = Callable[[NDArray[np.uint64]], NDArray[np.uint64]]


def new_fragments(
    wire: table_pb2.ManifestOutline,
    fragments: Iterable[Fragment],
    version: int,
    *,
    keep_ids: bool = True,
    created: Created | None = None,
) -> FragmentList:
    """Give new fragments ids, and row ids and versions if the dataset has stable row ids.

    Parameters
    ----------
    wire
        The new manifest; its counters are advanced.
    fragments
        An id of 0 means "unassigned". With stable row ids a fragment may have the ids of its first
        rows; the other rows get new ids.
    version
        The new version, which creates and last updates the rows.
    keep_ids
        Keep ids other than 0; otherwise assign all ids.
    created
        Returns the versions that created rows with given ids; default: the new version.
    """
    next_id = wire.max_fragment_id + 1 if wire.HasField("max_fragment_id") else 0
    highest = next_id - 1
    stable = bool((wire.reader_feature_flags | wire.writer_feature_flags) & Feature.STABLE_ROW_IDS)

    def completed() -> Iterator[bytes]:
        nonlocal next_id, highest
        for message in messages_of(fragments):
            if not (keep_ids and message.id):
                give_id(message, next_id)
                next_id += 1
            highest = max(highest, message.id)
            if stable:
                _assign_row_ids(wire, message, version, created)
            yield message.SerializeToString()

    made = FragmentList(completed())
    _raise_to(wire, highest)
    return made


def put_fragments(wire: table_pb2.ManifestOutline, fragments: FragmentList) -> None:
    """Set the fragments of a manifest, sorted by id; raise the highest id."""
    ids, packed = fragments.ids, fragments.packed
    del wire.fragments[:]
    if (ids[1:] >= ids[:-1]).all():
        wire.fragments.extend(packed)
    else:
        wire.fragments.extend(packed[at] for at in np.argsort(ids, kind="stable").tolist())
    if len(ids):
        _raise_to(wire, int(ids.max()))


def edit_fragments(
    base: Manifest,
    wire: table_pb2.ManifestOutline,
    *,
    replaced: FragmentList = _NONE,
    removed: Collection[int] = (),
    added: FragmentList = _NONE,
) -> int:
    """Change some fragments in ``wire``, which is a copy of ``base``.

    Returns
    -------
    int
        Number of unchanged fragments at the start of the list.

    Raises
    ------
    NotFoundError
        A fragment to replace or remove is missing.
    OptionError
        A fragment is replaced twice, or has the id of another fragment.
    UnsupportedFeatureError
        Two fragments share the id of a fragment to replace or remove.
    """
    kept = base.num_fragments
    if replaced or removed:
        if len(ascending(replaced.ids)) != len(replaced):
            numbers, counts = np.unique(replaced.ids, return_counts=True)
            raise OptionError(
                f"the transaction changes fragment {numbers[counts > 1][0]} twice, and one of the "
                "changes would be lost. Give each changed fragment once."
            )
        ids = base.fragment_ids
        dropped = np.fromiter(removed, np.int64, len(removed))
        positions = _positions(base, ids, np.concatenate([replaced.ids, dropped]))
        kept = int(positions.min())
        for packed, position in zip(replaced.packed, positions.tolist(), strict=False):
            wire.fragments[position] = packed
        if removed:
            is_kept = np.isin(ids, dropped, invert=True)
            remaining = list(compress(wire.fragments, is_kept.tolist()))
            del wire.fragments[:]
            wire.fragments.extend(remaining)
    if added:
        wire.fragments.extend(added.packed)
        new_ids = added.ids
        highest = base.max_fragment_id if base.num_fragments else -1
        if new_ids[0] <= highest or (new_ids[1:] <= new_ids[:-1]).any():
            # Reserved or given ids may be lower than existing ids.
            all_ids = Manifest(wire, where=base.where).fragment_ids
            numbers, counts = np.unique(all_ids, return_counts=True)
            taken = np.intersect1d(new_ids, numbers[counts > 1])
            if len(taken):
                raise OptionError(
                    f"the transaction adds a fragment with the id {taken[0]}, which another "
                    "fragment has. Give new fragments the id 0, and they get ids of their own."
                )
            ordered = [wire.fragments[at] for at in np.argsort(all_ids, kind="stable").tolist()]
            del wire.fragments[:]
            wire.fragments.extend(ordered)
            kept = 0
    return kept


def _positions(base: Manifest, ids: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray:
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids, wanted, sorter=order)
    positions = order[np.minimum(at, max(0, len(ids) - 1))] if len(ids) else at
    missing = (ids[positions] != wanted) if len(ids) else np.ones(len(wanted), np.bool_)
    if missing.any():
        raise NotFoundError(
            f"the transaction changes fragment {wanted[missing][0]}, which {base.title} does not "
            "have. Repeat it for this version."
        )
    shared = wanted[np.searchsorted(ids, wanted, "right", sorter=order) - at > 1]
    if len(shared):
        raise _shared(base, int(shared[0]))
    return positions


def refuse_shared_ids(base: Manifest, among: Sequence[int] | None = None) -> None:
    """Check that fragment ids, or some of them, are unique.

    Raises
    ------
    UnsupportedFeatureError
        Two fragments share an id.
    """
    ids = base.fragment_ids
    if len(ascending(ids)) == len(ids):
        return
    numbers, counts = np.unique(ids, return_counts=True)
    shared = numbers[counts > 1]
    found = shared if among is None else shared[np.isin(shared, among)]
    if len(found):
        raise _shared(base, int(found[0]))


def _shared(base: Manifest, number: int) -> UnsupportedFeatureError:
    """Return the error for rows that are named by an id of two fragments."""
    return UnsupportedFeatureError(
        f"{base.title} has two fragments with the id {number}, as releases of Lance up to 0.16 "
        "wrote them: rows of one would be taken for those of the other. Overwrite the dataset "
        "with its own rows, which gives all fragments ids of their own."
    )


def _raise_to(wire: table_pb2.ManifestOutline, highest: int) -> None:
    if highest < 0 or (wire.HasField("max_fragment_id") and highest <= wire.max_fragment_id):
        return
    check_fragment_id(highest)
    wire.max_fragment_id = highest


# ------------------------------------------------------ row ids and versions


def _assign_row_ids(
    wire: table_pb2.ManifestOutline, fragment: Wire, version: int, created: Created | None
) -> None:
    rows = fragment.physical_rows
    where = f"row ids of new fragment {fragment.id}"
    given = fragment.inline_row_ids
    in_column = fragment.HasField("column_row_ids")
    known = rows if in_column else count_row_ids(given, where=where)
    if known > rows:
        raise CorruptFileError(
            "row ids", expected=f"at most {rows}, one per row", found=f"{known}", where=where
        )
    new_versions = encode_versions([(rows, version)])
    if known < rows:
        start = wire.next_row_id
        if start + rows - known > _MAX_ROW_ID:
            raise CorruptFileError(
                "next row id",
                expected=f"at most {_MAX_ROW_ID - rows + known}, as {rows - known} rows are added",
                found=f"{start}",
                where="the previous version",
            )
        wire.next_row_id = start + rows - known
        new_ids = encode_row_ids(range(start, start + rows - known))
        known_ids = [given] if known else []
        fragment.inline_row_ids = concatenate_row_ids([*known_ids, new_ids], where=where)
    if known and created is not None and not fragment.HasField("column_row_ids"):
        known_row_ids = decode_row_ids(given, known, where=where)
        if not fragment.HasField("created_at_version_sequence"):
            versions = encode_version_array(created(known_row_ids))
            rest = encode_versions([(rows - known, version)]) if known < rows else b""
            fragment.inline_created_at_versions = versions + rest
    elif fragment.WhichOneof("created_at_version_sequence") is None:
        fragment.inline_created_at_versions = new_versions
    if fragment.WhichOneof("last_updated_at_version_sequence") is None:
        fragment.inline_last_updated_at_versions = new_versions


def mark_changed(fragment: Wire, version: int, offsets: NDArray[np.uint32] | None = None) -> None:
    """Record that all rows of a fragment, or those at ``offsets``, were updated in a version.

    Only datasets with row versions record it.
    """
    rows = fragment.physical_rows
    if fragment.WhichOneof("row_id_sequence") is None:
        return
    if offsets is None or not fragment.inline_last_updated_at_versions:
        fragment.inline_last_updated_at_versions = encode_versions([(rows, version)])
        return
    where = f"row versions of fragment {fragment.id}"
    versions = decode_versions(fragment.inline_last_updated_at_versions, rows, where=where)
    if len(offsets) and int(offsets[-1]) >= rows:
        raise CorruptFileError(
            "changed rows", expected=f"offsets below {rows}", found=f"{offsets[-1]}", where=where
        )
    versions[offsets] = version
    fragment.inline_last_updated_at_versions = encode_version_array(versions)


# ---------------------------------------------------------------------- files


def drop_dead_files(fragment: Wire, live: Collection[int] | None = None) -> None:
    """Drop files whose fields are all replaced, or all missing in ``live``."""
    files = [
        file
        for file in fragment.files
        if any(field in live if live is not None else field != TOMBSTONE for field in file.fields)
        or any(field < TOMBSTONE for field in file.fields)
    ]
    if len(files) < len(fragment.files):
        kept = [table_pb2.DataFile.FromString(file.SerializeToString()) for file in files]
        del fragment.files[:]
        fragment.files.extend(kept)


def mark_file_versions(
    wire: table_pb2.ManifestOutline, found: Collection[FormatVersion], version: FormatVersion
) -> None:
    """Set the flag of mixed file versions if new files differ from the dataset's version.

    :func:`check_mixing` lists the errors.
    """
    others = {*found} - {version}
    if not others:
        return
    check_mixing(version, others)
    wire.reader_feature_flags |= int(Feature.MIXED_FILE_VERSIONS)
    wire.writer_feature_flags |= int(Feature.MIXED_FILE_VERSIONS)


def check_mixing(version: FormatVersion, others: Iterable[FormatVersion]) -> None:
    """Check that data files of other versions can be added to a dataset.

    Raises
    ------
    UnsupportedFeatureError
        Files of format 0.1 and of 2.x would be mixed.
    """
    for other in others:
        if (other == _LEGACY) != (version == _LEGACY):
            raise UnsupportedFeatureError(
                f"the dataset has format {version}, the new data files {other}: files of formats "
                "0.1 and 2.x cannot be mixed. Write files in the dataset's format, or overwrite "
                "the dataset."
            )


def moved_fields(before: Wire, after: Wire) -> set[int]:
    """Return fields that a fragment has in another file than before, or elsewhere in it."""
    known = len(before.files)
    if after.files[:known] == before.files[:]:
        return {number for file in after.files[known:] for number in file.fields if number >= 0}
    return {number for number, *_ in _places(before) ^ _places(after)}


def _places(fragment: Wire) -> set[tuple[int, str, int, int]]:
    """Return the fields of a fragment with their locations: file, base path and position."""
    return {
        (number, file.path, file.base_id if file.HasField("base_id") else -1, at)
        for file in fragment.files
        for at, number in enumerate(file.fields)
        if number >= 0
    }


def final_fragments(
    base: Manifest, fragments: Sequence[Fragment], change: Callable[[Wire], None] | None = None
) -> FragmentList:
    """Return changed fragments; omit files whose columns are all removed.

    ``change`` gets the message of each fragment.

    Raises
    ------
    OptionError
        A fragment has fewer deleted rows than in ``base``: they would come back.
    """
    check_deletions_stay(base, fragments)
    live = frozenset(base.schema.field_ids())

    def final() -> Iterator[bytes]:
        for message in messages_of(fragments):
            drop_dead_files(message, live)
            if change is not None:
                change(message)
            yield message.SerializeToString()

    return FragmentList(final())


def copy_of(base: Manifest) -> table_pb2.ManifestOutline:
    """Copy a manifest's message, with the highest fragment id set."""
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(base.complete_wire)
    if (highest := base.max_fragment_id) >= 0:
        wire.max_fragment_id = highest
    return wire
