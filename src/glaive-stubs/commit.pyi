"""Commits."""

from glaive.errors import CommitConflictError as CommitConflictError
from glaive.table.root import CommitLock as CommitLock
