"""What one version of the file format is, and what it allows a writer, as plain data.

Readers use profiles only to identify a version; they accept every encoding they know.
"""

from __future__ import annotations

from typing import Literal

from glaive.dataclass import dataclass
from glaive.encodings.page_options import PageOptions
from glaive.types import FormatVersion

__all__ = ["FormatProfile", "VersionProfile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionProfile:
    """What is known of every format version.

    Parameters
    ----------
    version
        The version by name, as in ``data_storage_version`` and manifests.
    footer
        ``(major, minor)`` written to the footer of a file.
    on_disk
        All ``(major, minor)`` pairs in footers that identify this version.
    leaf_columns
        Each leaf of a struct is a column, so that the members may be in different files.
    grows_structs
        Structs may get new members: readers add nulls for files that lack them.
    blob_type
        New blob columns are of type ``lance.blob.v2``, else binary with metadata.
    """

    version: FormatVersion
    footer: tuple[int, int]
    on_disk: tuple[tuple[int, int], ...]
    leaf_columns: bool = True
    grows_structs: bool = False
    blob_type: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatProfile(VersionProfile, PageOptions):
    """The permissions of one version of the 2.x format, for writers.

    Parameters
    ----------
    types
        Names of the types that this version supports and others do not; see
        ``glaive.file.types.FEATURES``.
    pages
        The page grammar: ``layouts`` with levels, ``arrays`` as in 2.0, or ``planes`` of
        structure and of values as in 2.3.
    stable
        Whether all later releases will read files of this version.
    """

    types: frozenset[str] = frozenset()
    pages: Literal["layouts", "arrays", "planes"] = "layouts"
    stable: bool = True

    def __hash__(self) -> int:
        return hash(self.version)  # unique, and quick: every write looks things up by profile
