"""Give fragments what only the commit knows: ids, row ids and row versions.

Specification: "Building the manifest" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import compress, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError, NotFoundError, UnsupportedFeatureError
from glaive.format.flags import Feature
from glaive.format.fragment import TOMBSTONE, Fragment
from glaive.format.limits import MAX_FRAGMENT_ID
from glaive.format.manifest import Manifest
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
from glaive.types import FormatVersion

__all__ = [
    "check_fragment_id",
    "check_mixing",
    "copy_of",
    "drop_dead_files",
    "edit_fragments",
    "final_fragments",
    "mark_changed",
    "mark_file_versions",
    "new_fragments",
    "put_fragments",
]

_LEGACY: Final = FormatVersion(0, 1)
_MAX_ROW_ID: Final = 2**64 - 1

Wire = table_pb2.DataFragment
Created = Callable[[NDArray[np.uint64]], NDArray[np.uint64]]


def new_fragments(
    wire: table_pb2.ManifestOutline,
    fragments: Sequence[Fragment],
    version: int,
    *,
    keep_ids: bool = True,
    created: Created | None = None,
) -> list[Wire]:
    """Messages of new fragments, complete.

    Parameters
    ----------
    wire
        The manifest being made; its counters move on.
    fragments
        Ids of 0 stand for "not given yet". With stable row ids a fragment may carry those of
        its first rows; the other rows are given new ones.
    version
        The version being made: the rows are created and last changed in it.
    keep_ids
        Whether ids other than 0 stay as they are, else all are assigned again.
    created
        Version in which the rows with these ids were created; when omitted, this one.
    """
    following = wire.max_fragment_id + 1 if wire.HasField("max_fragment_id") else 0
    highest = following - 1
    stable = bool(wire.reader_feature_flags & Feature.STABLE_ROW_IDS)
    made = []
    for fragment in fragments:
        one = fragment.to_wire()
        if not (keep_ids and fragment.id):
            one.id = following
            following += 1
        highest = max(highest, one.id)
        if stable:
            _give_row_ids(wire, one, version, created)
        made.append(one)
    _raise_to(wire, highest)
    return made


def put_fragments(
    wire: table_pb2.ManifestOutline, fragments: Iterable[Wire], *, raise_ids: bool = True
) -> None:
    """Make these the fragments of a manifest, ascending by id; raises the highest id."""
    ordered = sorted(fragments, key=lambda one: one.id)
    del wire.fragments[:]
    wire.fragments.extend(one.SerializeToString() for one in ordered)
    if ordered and raise_ids:
        _raise_to(wire, ordered[-1].id)


def edit_fragments(
    base: Manifest,
    wire: table_pb2.ManifestOutline,
    *,
    replaced: Mapping[int, Wire] | None = None,
    removed: Collection[int] = (),
    added: Sequence[Wire] = (),
) -> int:
    """Change some of the fragments of ``base`` in ``wire``, which is a copy of it.

    Returns
    -------
    int
        Fragments at the start of the list that stayed as they are.

    Raises
    ------
    NotFoundError
        A fragment to be replaced or removed is not there.
    """
    kept = base.num_fragments
    if replaced or removed:
        ids = base.fragment_ids
        wanted = np.array([*(replaced or ()), *removed], np.int64)
        positions = _positions(base, ids, wanted)
        kept = int(positions.min())
        for one, position in zip((replaced or {}).values(), positions.tolist(), strict=False):
            wire.fragments[position] = one.SerializeToString()
        if removed:
            # Old releases gave an id twice at times: all that have it go.
            stay = np.isin(ids, wanted[len(replaced or ()) :], invert=True)
            left = list(compress(wire.fragments, stay.tolist()))
            del wire.fragments[:]
            wire.fragments.extend(left)
    if added:
        wire.fragments.extend(one.SerializeToString() for one in added)
        before = base.max_fragment_id if base.num_fragments else -1
        if any(two <= one for one, two in pairwise([before, *(one.id for one in added)])):
            # Ids that were reserved or given may belong before those of others.
            found = Manifest(wire, where=base.where).fragment_ids
            if np.any(found[1:] == found[:-1]) or len(np.unique(found)) != len(found):
                raise CorruptFileError(
                    "fragment ids",
                    expected="each once",
                    found=f"{sorted(one.id for one in added)[:10]} added to those there are",
                    where="the transaction",
                )
            ordered = [wire.fragments[at] for at in np.argsort(found, kind="stable").tolist()]
            del wire.fragments[:]
            wire.fragments.extend(ordered)
            kept = 0
    return kept


def _positions(base: Manifest, ids: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray:
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids, wanted, sorter=order)
    found = order[np.minimum(at, max(0, len(ids) - 1))] if len(ids) else at
    missing = (ids[found] != wanted) if len(ids) else np.ones(len(wanted), np.bool_)
    if missing.any():
        raise NotFoundError(
            f"the transaction changes fragment {wanted[missing][0]}, which version "
            f"{base.version} of {base.where} does not have. Repeat it for this version."
        )
    return found


def _raise_to(wire: table_pb2.ManifestOutline, highest: int) -> None:
    if highest < 0 or (wire.HasField("max_fragment_id") and highest <= wire.max_fragment_id):
        return
    check_fragment_id(highest)
    wire.max_fragment_id = highest


def check_fragment_id(number: int) -> None:
    """Make sure that a fragment may be given this id.

    Raises
    ------
    CorruptFileError
        It is above all there can be: damage, as ids are given one after the other.
    """
    if number > MAX_FRAGMENT_ID:
        raise CorruptFileError(
            "id of a new fragment",
            expected="below 2^32",
            found=f"{number}, as the version before says that {number - 1} was given",
            where="the version being made",
        )


# ------------------------------------------------------ row ids and versions


def _give_row_ids(
    wire: table_pb2.ManifestOutline, fragment: Wire, version: int, created: Created | None
) -> None:
    rows = fragment.physical_rows
    where = f"row ids of new fragment {fragment.id}"
    given = fragment.inline_row_ids
    known = 0 if fragment.HasField("column_row_ids") else count_row_ids(given, where=where)
    if fragment.HasField("column_row_ids"):
        known = rows
    if known > rows:
        raise CorruptFileError(
            "row ids", expected=f"at most {rows}, one per row", found=f"{known}", where=where
        )
    born = encode_versions([(rows, version)])
    if known < rows:
        start = wire.next_row_id
        if start + rows - known > _MAX_ROW_ID:
            raise CorruptFileError(
                "next row id",
                expected=f"at most {_MAX_ROW_ID - rows + known}, as {rows - known} rows are added",
                found=f"{start}",
                where="the version before",
            )
        wire.next_row_id = start + rows - known
        fresh = encode_row_ids(range(start, start + rows - known))
        # Behind the others, and never listed: how many they are, the fragment says.
        known_ids = [given] if known else []
        fragment.inline_row_ids = concatenate_row_ids([*known_ids, fresh], where=where)
    if known and created is not None and not fragment.HasField("column_row_ids"):
        moved = decode_row_ids(given, known, where=where)
        if not fragment.HasField("created_at_version_sequence"):
            versions = encode_version_array(created(moved))
            rest = encode_versions([(rows - known, version)]) if known < rows else b""
            fragment.inline_created_at_versions = versions + rest
    elif fragment.WhichOneof("created_at_version_sequence") is None:
        fragment.inline_created_at_versions = born
    if fragment.WhichOneof("last_updated_at_version_sequence") is None:
        fragment.inline_last_updated_at_versions = born


def mark_changed(fragment: Wire, version: int, offsets: NDArray[np.uint32] | None = None) -> None:
    """Say that rows of a fragment were last changed in this version: some, or all of them.

    Nothing happens where the dataset has no row versions.
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
    """Drop the files without a field that is not replaced, or is among ``live``."""
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
    wire: table_pb2.ManifestOutline, fragments: Iterable[Fragment], version: FormatVersion
) -> None:
    """Set the flag of mixed file versions if new files differ from the dataset's version.

    Raises
    ------
    UnsupportedFeatureError
        Files of 0.1 and of 2.x would come together.
    """
    found = {file.version for fragment in fragments for file in fragment.files} - {version}
    if not found:
        return
    check_mixing(version, found)
    wire.reader_feature_flags |= int(Feature.MIXED_FILE_VERSIONS)
    wire.writer_feature_flags |= int(Feature.MIXED_FILE_VERSIONS)


def check_mixing(version: FormatVersion, found: Iterable[FormatVersion]) -> None:
    """Refuse data files of these versions for a dataset of another one.

    Raises
    ------
    UnsupportedFeatureError
        Files of 0.1 and of 2.x would come together.
    """
    for one in found:
        if (one == _LEGACY) != (version == _LEGACY):
            raise UnsupportedFeatureError(
                f"the dataset has format {version}, the new data files {one}: files of 0.1 "
                "and 2.x do not mix. Write files of the dataset's version, or overwrite the "
                "dataset."
            )


def final_fragments(base: Manifest, fragments: Iterable[Fragment]) -> dict[int, Wire]:
    """Messages of changed fragments by id, without files that the schema has no field of."""
    live = frozenset(base.schema.field_ids())
    found = {}
    for fragment in fragments:
        wire = fragment.to_wire()
        drop_dead_files(wire, live)
        found[fragment.id] = wire
    return found


def copy_of(base: Manifest) -> table_pb2.ManifestOutline:
    """A copy of a manifest's message, to be changed; it tells the highest fragment id."""
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(base.complete_wire)
    if (highest := base.max_fragment_id) >= 0:
        wire.max_fragment_id = highest
    return wire
