"""Format 0.1, also called legacy: how it is identified, and the size of its pages."""

from __future__ import annotations

from glaive.dataclass import dataclass
from glaive.file.profile import VersionProfile
from glaive.types import FormatVersion

__all__ = ["V0_1", "LegacyProfile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyProfile(VersionProfile):
    """The 0.1 format.

    Parameters
    ----------
    rows_per_batch
        Rows of a page at most, and of one entry of the statistics.
    """

    rows_per_batch: int


V0_1 = LegacyProfile(
    version=FormatVersion(0, 1),
    footer=(0, 2),
    on_disk=((0, 2), (0, 1), (0, 0)),
    rows_per_batch=1024,
    leaf_columns=False,
)
