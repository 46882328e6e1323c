"""Files that no version has: until when a clean-up keeps them, and others may go on with them.

They may belong to a writer that has not committed yet. A job that is run again takes those that an
earlier run has finished.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from glaive.clock import now
from glaive.io.store import ObjectMeta

__all__ = ["UNVERIFIED_AGE", "can_be_committed"]

UNVERIFIED_AGE: Final = timedelta(days=7)
"""Younger ones may belong to an active writer."""


def can_be_committed(meta: ObjectMeta) -> bool:
    """Whether there is time to commit a file before a clean-up may delete it: half of that age."""
    return meta.modified is None or now() - meta.modified < UNVERIFIED_AGE / 2
