"""Format 0.1, also called legacy: how it is identified, and the size of its pages."""

from __future__ import annotations

from dataclasses import dataclass

from glaive.types import FormatVersion

__all__ = ["V0_1", "LegacyProfile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyProfile:
    """The 0.1 format.

    Parameters
    ----------
    version
        The version by name, as in ``data_storage_version`` and manifests.
    footer
        ``(major, minor)`` written to the footer of a file.
    on_disk
        All ``(major, minor)`` pairs in footers that identify this version.
    rows_per_batch
        Rows of a page at most, and of one entry of the statistics.
    leaf_columns, grows_structs, blob_type
        As those of :class:`glaive.file.profile.FormatProfile`.
    """

    version: FormatVersion
    footer: tuple[int, int]
    on_disk: tuple[tuple[int, int], ...]
    rows_per_batch: int
    leaf_columns: bool = False
    grows_structs: bool = False
    blob_type: bool = False


V0_1 = LegacyProfile(
    version=FormatVersion(0, 1),
    footer=(0, 2),
    on_disk=((0, 2), (0, 1), (0, 0)),
    rows_per_batch=1024,
)
