"""Create an object, and recognise it where the answer to the request was lost."""

from __future__ import annotations

from glaive.errors import ObjectExistsError, ObjectNotFoundError
from glaive.io.store import ObjectStore

__all__ = ["create_own"]


def create_own(store: ObjectStore, path: str, content: bytes) -> bool:
    """Create an object with a content that no other writer gives it; ``False`` if there is another.

    A client or a proxy may have repeated the request, and got the answer to the second one: then
    the object is there with this content. One request, and another one if there is an object.
    """
    try:
        store.put(path, [content], mode="create")
    except ObjectExistsError:
        try:
            return store.get(path).to_pybytes() == content
        except ObjectNotFoundError:
            return False
    return True
