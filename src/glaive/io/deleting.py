"""What deleting and copying need to know of a store, beside the contract: links, and own files.

Only directories have links. A store that does not know of them has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glaive.io.store import ObjectStore

__all__ = ["discard", "file_link_out", "is_link", "link_out", "remove_unfinished"]


def link_out(store: ObjectStore, folder: str) -> str | None:
    """Why files in a folder are not deleted: the link that leads out of the root, and to where.

    ``None`` if there is no such link, or the caller allowed to delete through links.
    """
    look: Any = getattr(store, "link_out", None)
    return None if look is None else look(folder)


def is_link(store: ObjectStore, path: str) -> bool:
    """Whether a name in a folder is a link: no writer makes one."""
    look: Any = getattr(store, "is_link", None)
    return False if look is None else bool(look(path))


def file_link_out(store: ObjectStore, path: str) -> str | None:
    """Why the content of a file is not copied: it is a link that leads out of the root.

    For content of which nothing tells whether it is the dataset's. ``None`` if the file is no such
    link, or the caller allowed what lies behind links. Links of folders do not count: the file
    there has a name that only writers of datasets give.
    """
    return link_out(store, path) if is_link(store, path) else None


def discard(store: ObjectStore, paths: Sequence[str]) -> None:
    """Delete files that this process has written under names it made up.

    They lie where it wrote them, so links on the way do not matter.
    """
    getattr(store, "discard", store.delete)(paths)


def remove_unfinished(store: ObjectStore, path: str) -> bool:
    """Remove an empty object whose writer was stopped; whether it was removed.

    Elsewhere than in a directory names are not taken before there is something to be named.
    """
    remove: Any = getattr(store, "remove_unfinished", None)
    return False if remove is None else bool(remove(path))
