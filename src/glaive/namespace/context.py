"""Who is asked for headers before each request, such as tokens that change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from glaive.namespace.errors import InvalidInputError

__all__ = ["ContextProvider", "provider_of"]

_PREFIX = "dynamic_context_provider."


class ContextProvider(ABC):
    """Base class of objects that give headers; pylance's ``DynamicContextProvider``."""

    @abstractmethod
    def provide_context(self, info: dict[str, str]) -> dict[str, str]:
        """Return entries for a request, such as ``{"headers.Authorization": "Bearer …"}``.

        ``info`` has ``operation``, the method, and ``object_id``.
        """


def provider_of(properties: Mapping[str, str]) -> Any:
    """The provider that properties name by its class; ``None`` if they name none.

    Raises
    ------
    InvalidInputError
        There is no such class.
    """
    name = properties.get(f"{_PREFIX}impl")
    if not name:
        return None
    module, _, attribute = name.rpartition(".")
    try:
        kind = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(
            f"{_PREFIX}impl: expected module.Class, found {name!r:.100}: {error}"
        ) from None
    options = {
        key.removeprefix(_PREFIX): text
        for key, text in properties.items()
        if key.startswith(_PREFIX) and key != f"{_PREFIX}impl"
    }
    return kind(**options)
