"""Which files are small, and which of their columns are read from many of them at once.

Takes ask this; what reads them, :mod:`glaive.file.v2.small_files`, is loaded where there are any.
"""

from __future__ import annotations

from collections.abc import Sequence

from glaive.file.versions import PROFILES
from glaive.format.field import BLOB, Field

__all__ = ["BULK_VERSIONS", "FOOTER_VERSIONS", "MAX_BYTES", "BulkReadError", "suits_bulk_reads"]

MAX_BYTES = 64 * 1024
"""Bytes of a file that counts as small."""

_PROFILES = [
    profile for profile in PROFILES.values() if getattr(profile, "pages", None) == "layouts"
]
BULK_VERSIONS = frozenset(profile.version for profile in _PROFILES)
"""Format versions of files that are read in bulk: those whose pages have layouts."""

FOOTER_VERSIONS = frozenset(numbers for profile in _PROFILES for numbers in profile.on_disk)
"""The same as footers have them."""


class BulkReadError(Exception):
    """Files have to be read one by one; the message says why, in one of few ways."""


def suits_bulk_reads(fields: Sequence[Field]) -> bool:
    """Whether columns of these fields are read from many files at once."""
    return not any(
        field.is_packed or BLOB in field.metadata or _is_list_of_fixed(field)
        for top in fields
        for field in top.walk()
    )


def _is_list_of_fixed(field: Field) -> bool:
    """Whether a field is a fixed-size list whose items are no plain values."""
    return bool(field.children) and field.logical_type.startswith("fixed_size_list")
