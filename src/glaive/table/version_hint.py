"""The version hint of a dataset: a number, at or before the newest version.

It is not needed to open a dataset. A commit reads it to find versions newer than its read version,
and updates it at the end; so does a clean-up before it deletes versions.

Specification: "Finding the latest version" in ``docs/format``.
"""

from __future__ import annotations

import re
from typing import Final

from glaive.errors import ObjectNotFoundError, StoreError
from glaive.format.paths import DETACHED, HINT
from glaive.io.store import ObjectStore

__all__ = ["advance_hint", "read_hint", "write_hint"]

_PLAIN_HINT: Final = rb'\{"version":([1-9][0-9]{0,17})\}'
"""Hints as written by glaive and pylance."""


def read_hint(store: ObjectStore) -> int | None:
    """The version in the hint; ``None`` if it is missing or says nothing. One request.

    Raises
    ------
    StoreError
        The store failed. It may be the hint alone that knows the newest version: a listing may be
        stale, and versions before the newest one may have been cleaned up.
    """
    import json

    try:
        content = store.get(HINT).to_pybytes()
        plain = re.fullmatch(_PLAIN_HINT, content)
        if plain is not None:
            return int(plain[1])
        hint = json.loads(content)
    except ObjectNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        import logging

        logging.getLogger(__name__).debug(
            "version hint of %s says nothing: %s", store.public_uri, error
        )
        return None
    version = hint.get("version") if isinstance(hint, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        return None
    return version if 0 < version < DETACHED else None  # a detached version is never the newest


def write_hint(store: ObjectStore, version: int) -> None:
    """Update the hint after a commit. One request; failures are logged: the version exists."""
    try:
        _put_hint(store, version)
    except StoreError as error:
        import logging

        logging.getLogger(__name__).debug(
            "version hint of %s not written: %s", store.public_uri, error
        )


def _put_hint(store: ObjectStore, version: int) -> None:
    """Write the hint.

    In a local directory it is overwritten in place if its length is unchanged: replacing a file
    costs as much as the rest of the commit, and misreading the hint does no harm there.
    """
    content = b'{"version":%d}' % version
    if not store.rewrite(HINT, content):
        store.put(HINT, [content])


def advance_hint(store: ObjectStore, version: int) -> None:
    """Have the hint name a version or a later one. One or two requests.

    Before versions are deleted: their writers may have ended before they updated it, and a commit
    that is made for an old version looks for those after it only if the hint is later.

    Raises
    ------
    StoreError
        The store failed, so no version may be deleted.
    """
    if (read_hint(store) or 0) < version:
        _put_hint(store, version)
