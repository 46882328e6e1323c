"""From a path or URI to the store that holds it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import count

from glaive.errors import OptionError
from glaive.io.local import LocalStore
from glaive.io.location import (
    LOCAL_SCHEMES,
    RENAMED,
    SCHEMES,
    check_root,
    path_of_file_uri,
    with_secret,
    with_slashes,
)
from glaive.io.storage_options import PERMISSIONS, normalise_options
from glaive.io.store import ObjectStore
from glaive.plugins import added

_unnamed = count(1)
"""Numbers of the locations in memory without a name."""


def open_store(
    uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
) -> ObjectStore:
    """Return a store rooted at a directory, bucket prefix or location in memory.

    Nothing is read. The URI must come from the caller: locations that a dataset names are opened
    by :func:`glaive.io.access.open_named`.

    Raises
    ------
    OptionError
        The scheme is unknown or followed by a single slash, the location is not a string, is empty
        or has a character that no name has, or a storage option has an invalid value.
    MissingDependencyError
        The scheme needs a package that is not installed.
    """
    text: object = os.fspath(uri) if isinstance(uri, os.PathLike) else uri
    if not isinstance(text, str):
        raise OptionError(f"uri: expected a path or a URI as text, found {uri!r}")
    if not text:
        raise OptionError("the URI is empty; give a path or a URI such as s3://bucket/table")
    check_root(text, is_local=False)
    text = with_slashes(text)
    options = normalise_options(storage_options) if storage_options else {}
    options = {key: given for key, given in options.items() if key.lower() not in PERMISSIONS}
    scheme, mark, rest = text.partition("://")
    if not mark or len(scheme) < 2:  # "C:\table" is a path
        return LocalStore(os.path.expanduser(text), options)
    scheme = scheme.lower()
    if scheme in LOCAL_SCHEMES:
        return LocalStore(path_of_file_uri(text), options)
    if scheme == "memory" and not rest.strip("/"):
        rest = f"unnamed-{next(_unnamed)}"  # one of its own each time, as in pylance
    if not rest.strip("/"):
        raise OptionError(f"{text}: no bucket or name after {scheme}://")
    if scheme not in SCHEMES:
        return _through_fsspec(text, scheme, rest, options)
    from glaive.io.objectstore import connect

    return connect(f"{RENAMED.get(scheme, scheme)}://{rest}", options)


def _through_fsspec(text: str, scheme: str, rest: str, options: dict[str, str]) -> ObjectStore:
    from glaive.io.fsspec import connect_fsspec, is_known

    prefix, plus, inner = scheme.partition("+")
    if prefix == "fsspec" and plus:
        return connect_fsspec(f"{inner}://{rest}", options)
    connect = added("stores").get(scheme)
    if connect is not None:
        store: ObjectStore = connect(text, options)
        return store
    if is_known(scheme):
        return connect_fsspec(text, options)
    raise OptionError(
        f"{text}: no object store for the unknown scheme {scheme!r}; known are a plain path, "
        f"{', '.join(SCHEMES)}, and the schemes of fsspec if it is installed "
        "(pip install 'glaive[fsspec]')"
    )


def open_sibling(store: ObjectStore, uri: str) -> ObjectStore:
    """Open another location of the caller, such as a branch beside an opened dataset.

    Opened with the same storage options, which expire with them, and the password that the
    caller's URI had.
    """
    uri = with_secret(uri, store.secret)
    return store.again(uri) or open_store(uri, store.options)


def open_object(
    uri: str, storage_options: Mapping[str, str] | None = None
) -> tuple[ObjectStore, str]:
    """Return the store of the location that holds an object, and the object's path there.

    Nothing is read. Errors as for :func:`open_store`; no object's URI ends with a slash.
    """
    text = uri = with_slashes(uri)
    is_local = uri.partition("://")[0].lower() in LOCAL_SCHEMES
    if is_local:
        text = path_of_file_uri(uri)
    folder, slash, name = text.rpartition("/")
    if not name:
        raise OptionError(f"{uri!r} names a directory; give the path of an object")
    folder = folder or ("/" if slash else ".")
    return open_store(f"local://{folder}" if is_local else folder, storage_options), name
