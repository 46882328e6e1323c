"""From a path or URI to the store that holds it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from glaive.errors import OptionError
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore

__all__ = ["SCHEMES", "open_object", "open_store"]

SCHEMES = ("file", "memory", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "http", "https")
"""What may stand before ``://``."""

_RENAMED = {"azure": "az", "s3a": "s3"}


def open_store(
    uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
) -> ObjectStore:
    """Return a store rooted at a directory, bucket prefix or place in memory.

    Nothing is read. ``storage_options`` are for object stores; a directory needs none.

    Raises
    ------
    OptionError
        The scheme is unknown, the place is no text or empty, or a storage option does not exist.
    """
    text: object = os.fspath(uri) if isinstance(uri, os.PathLike) else uri
    if not isinstance(text, str):
        raise OptionError(f"uri: expected a path or a URI as text, found {uri!r}")
    if not text:
        raise OptionError("the URI is empty; give a path or a URI such as s3://bucket/table")
    scheme, mark, rest = text.partition("://")
    if not mark or len(scheme) < 2:  # "C:\table" is a path
        return LocalStore(os.path.expanduser(text))
    scheme = scheme.lower()
    if scheme == "file":
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise OptionError(
                f"{text}: a file URI names no other machine; write file:///{parts.netloc}/…"
            )
        return LocalStore(unquote(parts.path))
    if scheme not in SCHEMES:
        raise OptionError(
            f"{text}: unknown scheme {scheme!r}; known are a plain path and {', '.join(SCHEMES)}"
        )
    if not rest.strip("/"):
        raise OptionError(f"{text}: no bucket or name after {scheme}://")
    from glaive.io.objectstore import connect

    return connect(f"{_RENAMED.get(scheme, scheme)}://{rest}", dict(storage_options or {}))


def open_object(
    uri: str, storage_options: Mapping[str, str] | None = None
) -> tuple[ObjectStore, str]:
    """Return the store of the place that holds an object, and the object's path there.

    Nothing is read.

    Raises
    ------
    OptionError
        As :func:`open_store`; or the URI ends with a slash, which no object does.
    """
    folder, slash, name = uri.rpartition("/")
    if not name:
        raise OptionError(f"{uri!r} names a directory; give the path of an object")
    if uri.lower().startswith("file://"):
        name = unquote(name)
    return open_store(folder or ("/" if slash else "."), storage_options), name
