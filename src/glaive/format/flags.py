"""Feature flags: features of a dataset that not every reader or writer supports.

A manifest has one word of flags for readers and one for writers. Both are recomputed from the
contents of each version, except for a few permanent flags.

Specification: "Feature flags" in ``docs/format``.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.pb import table_pb2

__all__ = ["Feature", "check_readable", "check_writable", "recompute"]


class Feature(IntFlag):
    """Flags by name."""

    DELETION_FILES = 1 << 0
    STABLE_ROW_IDS = 1 << 1
    V2_FILES = 1 << 2
    TABLE_CONFIG = 1 << 3
    BASE_PATHS = 1 << 4
    NO_TRANSACTION_FILES = 1 << 5
    DATA_OVERLAYS = 1 << 6
    COVERING_INDICES = 1 << 7
    MIXED_FILE_VERSIONS = 1 << 8
    FRAGMENT_REUSE_WITH_STABLE_ROW_IDS = 1 << 9
    TAGGED_FRAGMENT_REUSE = 1 << 10
    SPILLED_ROW_LINEAGE = 1 << 11
    CLUSTERING = 1 << 12
    FRAGMENT_TREE = 1 << 13
    MANAGED_BLOBS = 1 << 14
    UNIQUE_FIELD_IDS = 1 << 15


READABLE: Final = (
    Feature.DELETION_FILES
    | Feature.STABLE_ROW_IDS
    | Feature.V2_FILES
    | Feature.TABLE_CONFIG
    | Feature.BASE_PATHS
    | Feature.NO_TRANSACTION_FILES
    | Feature.COVERING_INDICES
    | Feature.MIXED_FILE_VERSIONS
    | Feature.SPILLED_ROW_LINEAGE
    | Feature.UNIQUE_FIELD_IDS
)
WRITABLE: Final = READABLE

_STICKY: Final = int(Feature.STABLE_ROW_IDS | Feature.MIXED_FILE_VERSIONS)
_STICKY_FOR_WRITERS: Final = int(Feature.NO_TRANSACTION_FILES | Feature.UNIQUE_FIELD_IDS)

_BOTH_OR_NEITHER: Final = (
    Feature.MIXED_FILE_VERSIONS | Feature.TAGGED_FRAGMENT_REUSE | Feature.MANAGED_BLOBS
)


def check_readable(reader: int, writer: int, *, where: object) -> None:
    """Check that this reader supports all features.

    Raises
    ------
    UnsupportedFeatureError
        A reader flag is unknown.
    CorruptFileError
        A flag that must be in both words is in only one of them.
    """
    unknown = reader & ~int(READABLE)
    if unknown:
        raise _unsupported("reading", unknown, where)
    lone = (reader ^ writer) & int(_BOTH_OR_NEITHER)
    if lone:
        raise CorruptFileError(
            "feature flags",
            expected=f"{_names(lone)} for readers and writers, or for neither",
            found=f"reader {reader:#x}, writer {writer:#x}",
            where=where,
        )


def check_writable(reader: int, writer: int, *, where: object) -> None:
    """Check that this writer supports all features.

    Raises
    ------
    UnsupportedFeatureError
        A flag is unknown.
    """
    check_readable(reader, writer, where=where)
    unknown = writer & ~int(WRITABLE)
    if unknown:
        raise _unsupported("writing", unknown, where)


def _unsupported(doing: str, unknown: int, where: object) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{doing} this dataset needs {_names(unknown)} (in {where}), which this version of "
        "glaive does not support. The dataset was probably written by a newer Lance: upgrade "
        "glaive, or use the library that wrote it."
    )


def _names(flags: int) -> str:
    known = [str(flag.name).lower() for flag in Feature if flags & flag]
    rest = flags & ~int(~Feature(0))
    if rest:
        known += [f"flag {bit}" for bit in range(rest.bit_length()) if rest >> bit & 1]
    return ", ".join(known)


def recompute(
    manifest: table_pb2.ManifestOutline,
    *,
    deletion_files: bool,
    spilled_row_lineage: bool,
    covering_indices: bool,
) -> None:
    """Set both words from the contents of a new manifest.

    Parameters
    ----------
    manifest
        Changed in place. Stable row ids and permanent flags are kept.
    deletion_files
        Whether a fragment has a deletion file.
    spilled_row_lineage
        Whether row ids or row versions of a fragment are in its files.
    covering_indices
        Whether an index of this version has covering fields.
    """
    reader, writer = manifest.reader_feature_flags, manifest.writer_feature_flags
    both = (reader | writer) & _STICKY
    only = writer & _STICKY_FOR_WRITERS
    if deletion_files:
        both |= Feature.DELETION_FILES
    if spilled_row_lineage:
        both |= Feature.SPILLED_ROW_LINEAGE
    if manifest.config:
        only |= Feature.TABLE_CONFIG
    if manifest.base_paths:
        both |= Feature.BASE_PATHS
    if covering_indices:
        both |= Feature.COVERING_INDICES
    manifest.reader_feature_flags = int(both)
    manifest.writer_feature_flags = int(both | only)
