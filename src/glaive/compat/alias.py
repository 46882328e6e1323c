"""``import lance`` gives glaive: for programs and packages that import pylance by its name.

Afterwards each ``lance.x`` is the module ``glaive.x`` itself, and ``lance`` has glaive's names.
Both imports give the same classes. ``lance.__version__`` is the version of pylance whose interface
it has; ``lance.__glaive__`` is glaive's own version.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from glaive.errors import OptionError

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    # The import system requires methods, not base classes; this class takes 15 ms to load.
    Loader = object


PYLANCE_VERSION = "14.0.2"
"""The version of pylance whose names and signatures glaive has."""

_NAME = "lance"

_ELSEWHERE = {"lance._arrow": "glaive.arrow", "lance._arrow.bf16": "glaive.arrow"}
"""Private modules of pylance that programs import, and the modules that have their names."""


class _Lance(ModuleType):
    """The module ``lance``: glaive, with the version of pylance."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("glaive"), name)

    def __reduce__(self) -> tuple[object, ...]:
        # cloudpickle, which Ray and Spark use, only supports plain modules.
        return importlib.import_module, (_NAME,)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(importlib.import_module("glaive"))})


class _AliasLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        if spec.name != _NAME:
            return None  # replaced below
        module = _Lance(_NAME, importlib.import_module("glaive").__doc__)
        module.__dict__["__version__"] = PYLANCE_VERSION
        module.__dict__["__glaive__"] = importlib.import_module("glaive").__version__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ != _NAME:
            # The import system then returns the module in sys.modules.
            sys.modules[module.__name__] = importlib.import_module(_ours(module.__name__))


class _AliasFinder:
    """Finder of ``lance`` and ``lance.x``, before the import system searches folders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _NAME and not fullname.startswith(f"{_NAME}."):
            return None
        if fullname != _NAME and _found(_ours(fullname)) is None:
            return None
        return ModuleSpec(fullname, _AliasLoader(), is_package=True)


_FINDER = _AliasFinder()


def _ours(name: str) -> str:
    return _ELSEWHERE.get(name) or "glaive" + name.removeprefix(_NAME)


def _found(name: str) -> ModuleSpec | None:
    from importlib.util import find_spec

    try:
        return find_spec(name)
    except ModuleNotFoundError:  # a parent is a plain module
        return None


def is_installed() -> bool:
    """Return whether ``import lance`` gives glaive."""
    return _FINDER in sys.meta_path


def install() -> None:
    """Make ``import lance`` give glaive in this process. You may call it twice.

    Call it before anything imports ``lance``: in the program's first lines, or in
    ``sitecustomize`` for programs that you cannot change. Processes that start later, such as
    workers of a pool by ``spawn``, call it themselves.

    Raises
    ------
    OptionError
        pylance was imported already: its objects would be mixed with glaive's.
    """
    if is_installed():
        return
    loaded = sys.modules.get(_NAME)
    if loaded is not None:
        raise OptionError(
            f"compat.install: {_NAME} was imported already, from "
            f"{getattr(loaded, '__file__', '')}. Call install() before the first import of it"
        )
    sys.meta_path.insert(0, _FINDER)


def uninstall() -> None:
    """Undo :func:`install`. Names that programs imported meanwhile stay glaive's."""
    if not is_installed():
        return
    sys.meta_path.remove(_FINDER)
    for name in [one for one in sys.modules if one == _NAME or one.startswith(f"{_NAME}.")]:
        del sys.modules[name]
