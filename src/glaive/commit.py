"""Commits under the names of ``lance.commit``."""

from __future__ import annotations

from glaive.errors import CommitConflictError
from glaive.table.root import CommitLock

__all__ = ["CommitConflictError", "CommitLock"]
