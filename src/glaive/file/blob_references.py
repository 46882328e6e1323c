"""Values of blob columns that lie elsewhere, on their way from one data file into another.

Rows that are written again keep their references: nothing is fetched, and nothing is checked
that was allowed when they were first written. In memory such a value is a ``uri`` that holds
the whole description, and a token that only this process has: no row of a user can pass for one.
"""

from __future__ import annotations

import secrets
from typing import Final, NamedTuple

__all__ = ["BlobReference"]

_TOKEN: Final = f"\0{secrets.token_hex(16)}"
_PARTS: Final = 5


class BlobReference(NamedTuple):
    """Where a value lies that no file of the dataset holds, as its description says."""

    position: int
    size: int
    base_id: int
    uri: str

    def to_text(self) -> str:
        """As the ``uri`` of a value in memory."""
        return f"{_TOKEN}:{self.position}:{self.size}:{self.base_id}:{self.uri}"

    @classmethod
    def of_text(cls, text: str) -> BlobReference | None:
        """What :meth:`to_text` gave; ``None`` for any other text."""
        parts = text.split(":", _PARTS - 1)
        if parts[0] != _TOKEN or len(parts) < _PARTS:
            return None
        position, size, base_id = map(int, parts[1:4])
        return cls(position, size, base_id, parts[4])
