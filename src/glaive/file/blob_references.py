"""References to external blobs, on their way from one data file into another.

Rewritten rows keep their references: nothing is fetched, and nothing is checked again. In
memory such a value is a ``uri`` that contains the whole descriptor and a token of this process,
so that users cannot forge one.
"""

from __future__ import annotations

import secrets
from typing import Final

from glaive.named_tuple import NamedTuple

__all__ = ["BlobReference"]

_TOKEN: Final = f"\0{secrets.token_hex(16)}"
_PARTS: Final = 5


class BlobReference(NamedTuple):
    """The location of an external value, from its descriptor."""

    position: int
    size: int
    base_id: int
    uri: str

    def to_text(self) -> str:
        """The ``uri`` of the value in memory."""
        return f"{_TOKEN}:{self.position}:{self.size}:{self.base_id}:{self.uri}"

    @classmethod
    def of_text(cls, text: str) -> BlobReference | None:
        """Parse the result of :meth:`to_text`; ``None`` for any other text."""
        parts = text.split(":", _PARTS - 1)
        if parts[0] != _TOKEN or len(parts) < _PARTS:
            return None
        position, size, base_id = map(int, parts[1:4])
        return cls(position, size, base_id, parts[4])
