"""Catalogues, which list tables and their locations; the names of ``lance.namespace``.

:func:`connect` opens a catalogue: a directory or bucket (:class:`DirectoryNamespace`), or a server
(:class:`RestNamespace`). :func:`glaive.dataset` and :func:`glaive.write_dataset` take it as
``namespace_client``. Needs the package ``lance-namespace``, which defines the interface. glaive
uses its requests, responses and errors unchanged.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from glaive.compat.absent import needs_package

if TYPE_CHECKING:
    from glaive.namespace.directory import DirectoryNamespace, connect
    from glaive.namespace.rest import ContextProvider as DynamicContextProvider
    from glaive.namespace.rest import RestNamespace
    from glaive.namespace.server import RestAdapter

__all__ = [
    "DirectoryNamespace",
    "DynamicContextProvider",
    "RestAdapter",
    "RestNamespace",
    "connect",
]

_HOMES = {
    "DirectoryNamespace": ("directory", "DirectoryNamespace"),
    "DynamicContextProvider": ("rest", "ContextProvider"),
    "RestAdapter": ("server", "RestAdapter"),
    "RestNamespace": ("rest", "RestNamespace"),
    "connect": ("directory", "connect"),
}
_INTERFACE_SUFFIXES = ("Request", "Response", "LanceNamespace")
"""Ends of the names that the package lance-namespace defines."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES and not name.endswith(_INTERFACE_SUFFIXES):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        interface = import_module("lance_namespace")
    except ImportError:
        advice = "pip install 'glaive[namespace]'"
        return needs_package(__name__, name, "the package lance-namespace", advice)
    if name not in _HOMES:
        return getattr(interface, name)
    module, attribute = _HOMES[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
