"""Kinds of steps by name: the modules of ``glaive.pipeline.steps``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from glaive.pipeline import steps
from glaive.pipeline.step import Step

__all__ = ["kind_of", "kinds"]


@cache
def kinds() -> tuple[str, ...]:
    """The names of all kinds, sorted; imports none of them."""
    return tuple(sorted(module.name for module in iter_modules(steps.__path__)))


@cache
def kind_of(name: str) -> type[Step]:
    """The class of a kind."""
    module = import_module(f"{steps.__name__}.{name}")
    (found,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Step)
        and value.__module__ == module.__name__
    )
    found.kind = name
    return found
