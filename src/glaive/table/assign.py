"""Give new fragments what only the commit knows: ids, row ids and row versions.

Specification: "Building the manifest" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Sequence

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.format.pb import table_pb2
from glaive.format.rowids import encode_row_ids, encode_versions
from glaive.types import FormatVersion

__all__ = ["add_fragments", "mark_file_versions"]

_LEGACY = FormatVersion(0, 1)


def add_fragments(
    wire: table_pb2.Manifest, fragments: Sequence[Fragment], version: int, *, keep_ids: bool
) -> None:
    """Append new fragments to a manifest message.

    Parameters
    ----------
    wire
        Changed in place: fragments, highest fragment id, next row id.
    fragments
        Ids of 0 stand for "not given yet".
    version
        The version being made: the rows are created and last changed in it.
    keep_ids
        Whether ids other than 0 stay as they are, else all are given anew.
    """
    following = wire.max_fragment_id + 1 if wire.HasField("max_fragment_id") else 0
    highest = following - 1
    stable = bool(wire.reader_feature_flags & Feature.STABLE_ROW_IDS)
    for fragment in fragments:
        added = wire.fragments.add()
        added.CopyFrom(fragment.to_wire())
        if not (keep_ids and fragment.id):
            added.id = following
            following += 1
        highest = max(highest, added.id)
        if stable:
            _give_row_ids(wire, added, version)
    if highest >= 0:
        if highest > 2**32 - 1:
            raise CorruptFileError(
                "fragment id", expected="below 2^32", found=f"{highest}", where="the transaction"
            )
        wire.max_fragment_id = highest


def _give_row_ids(wire: table_pb2.Manifest, fragment: table_pb2.DataFragment, version: int) -> None:
    rows = fragment.physical_rows
    if not fragment.HasField("inline_row_ids"):
        start = wire.next_row_id
        fragment.inline_row_ids = encode_row_ids(range(start, start + rows))
        wire.next_row_id = start + rows
    versions = encode_versions([(rows, version)])
    fragment.inline_created_at_versions = versions
    fragment.inline_last_updated_at_versions = versions


def mark_file_versions(
    wire: table_pb2.Manifest, fragments: Sequence[Fragment], version: FormatVersion
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
    if version == _LEGACY or _LEGACY in found:
        raise UnsupportedFeatureError(
            f"the dataset has format {version}, the new data files {min(found)}: files of 0.1 "
            "and 2.x do not mix. Write files of the dataset's version, or overwrite the dataset."
        )
    wire.reader_feature_flags |= int(Feature.MIXED_FILE_VERSIONS)
    wire.writer_feature_flags |= int(Feature.MIXED_FILE_VERSIONS)
