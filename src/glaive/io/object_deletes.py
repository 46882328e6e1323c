"""Delete many objects of a bucket: those that are missing are no error."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import obstore

__all__ = ["delete_objects"]


def delete_objects(client: Any, keys: Sequence[str]) -> None:
    """Delete up to a thousand objects, in one request if the store can.

    Where it cannot, as Google Cloud Storage and memory, a missing object ends a batch with others
    of it still there; so does one whose deletion was repeated since its answer was lost.
    """
    try:
        obstore.delete(client, keys)
    except FileNotFoundError:
        for key in keys:
            with suppress(FileNotFoundError):
                obstore.delete(client, [key])
