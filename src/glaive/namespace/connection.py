"""``connect``: a catalogue by the name of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lance_namespace as interface

from glaive.namespace.errors import InvalidInputError


def connect(impl: str, properties: Mapping[str, str]) -> interface.LanceNamespace:
    """Connect to a catalogue.

    Parameters
    ----------
    impl
        ``"dir"`` for :class:`DirectoryNamespace`, ``"rest"`` for :class:`RestNamespace`, a name
        registered with ``lance_namespace.register_namespace_impl``, or a class as
        ``"module.Class"``.
    properties
        Those of the class.

    Raises
    ------
    InvalidInputError
        There is no such kind, or a property is invalid.
    """
    given: dict[str, Any] = dict(properties)
    if impl == "dir":
        from glaive.namespace.directory import DirectoryNamespace

        return DirectoryNamespace(**given)
    if impl == "rest":
        from glaive.namespace.rest import RestNamespace

        return RestNamespace(**given)
    try:
        return interface.connect(impl, given)
    except ValueError as error:
        raise InvalidInputError(
            f"connect: no catalogue of the kind {impl!r:.100}. Known: 'dir', 'rest', registered "
            f"names, and classes as 'module.Class'. {error}"
        ) from error
