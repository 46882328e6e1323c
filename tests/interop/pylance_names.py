"""The public names of pylance, module by module, and what glaive has for each.

``python -m tests.interop.pylance_names`` prints a table, which the site adds to
``docs/guide/names.md`` (``tools/site_pages.py``).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from glaive.compat.absent import AbsentName
from glaive.errors import UnsupportedFeatureError

READ_ONLY = ("torch", "vector")
"""Modules that need packages which the tests do without: their source is read, not run."""

NO_MODULES = ("conftest",)
"""Files of pylance that belong to its tests."""


class Name(NamedTuple):
    """A name, pylance's object (None where its module is only read), and glaive's."""

    module: str
    name: str
    theirs: Any
    mine: Any


@cache
def modules() -> tuple[str, ...]:
    """Public modules of pylance, without the name of the package; the first one is itself."""
    import lance

    found = ["", *(one.name.partition(".")[2] for one in walk(lance.__path__))]
    parts = [(name, name.split(".")) for name in found]
    return tuple(
        name
        for name, path in parts
        if not any(part.startswith("_") for part in path if part) and name not in NO_MODULES
    )


def walk(path: Any, prefix: str = "lance.") -> Iterator[pkgutil.ModuleInfo]:
    """Modules of a package, without importing any."""
    for one in pkgutil.iter_modules(path, prefix):
        yield one
        if one.ispkg:
            yield from walk(
                [f"{folder}/{one.name.rpartition('.')[2]}" for folder in path], f"{one.name}."
            )


def is_read_only(module: str) -> bool:
    return module.partition(".")[0] in READ_ONLY


def source_names(module: str) -> set[str]:
    """Public functions and classes of a module that is not run."""
    import lance

    path = Path(lance.__path__[0], *module.split("."))
    file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    found: set[str] = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            found |= set(ast.literal_eval(node.value))
    return {name for name in found if not name.startswith("_")} - {"ToTensorFn"}


def belongs(found: object, module: str) -> bool:
    """Whether something is of pylance, and not of what it imports or of another module here."""
    home = str(getattr(found, "__module__", ""))
    others = {f"lance.{one}" for one in modules() if one and not is_read_only(one)}
    own = home.startswith("lance") or home == "builtins"
    return own and home not in others - {f"lance.{module}"} and not inspect.ismodule(found)


@cache
def names() -> tuple[Name, ...]:
    """All of them."""
    return tuple(_names())


def _names() -> Iterator[Name]:
    for module in modules():
        mine = importlib.import_module(f"glaive.{module}" if module else "glaive")
        if is_read_only(module):
            for name in sorted(source_names(module)):
                yield Name(module, name, None, getattr(mine, name, NOWHERE))
            continue
        theirs = importlib.import_module(f"lance.{module}" if module else "lance")
        listed = getattr(theirs, "__all__", ())
        for name in sorted(filter(lambda one: one[0] != "_", {*dir(theirs), *listed})):
            found = getattr(theirs, name)
            if name in listed:
                wanted = not inspect.ismodule(found)
            elif listed:  # not shown by a star import, but it is defined there
                own = getattr(found, "__module__", "") == theirs.__name__
                wanted = own and not isinstance(found, TypeVar)
            else:
                wanted = belongs(found, module) or is_constant(name, found)
            if wanted:
                yield Name(module, name, found, getattr(mine, name, NOWHERE))


def is_constant(name: str, found: object) -> bool:
    return name.isupper() and isinstance(found, int | str | float) and not isinstance(found, bool)


def taken_from_elsewhere() -> Iterator[tuple[str, str]]:
    """Classes and functions of pylance, and of its interface to catalogues, in other modules.

    Programs import them from there as well: ``from lance.namespace import CreateTableRequest``.
    """
    for module in filter(None, modules()):
        if is_read_only(module):
            continue
        theirs = importlib.import_module(f"lance.{module}")
        for name, found in vars(theirs).items():
            home = str(getattr(found, "__module__", ""))
            is_code = inspect.isclass(found) or inspect.isfunction(found)
            if is_code and name[0] != "_" and home != theirs.__name__ and home.startswith("lance"):
                yield module, name


NOWHERE: Any = object()
"""In place of what glaive does not have."""


def state(one: Name) -> str:
    """What the page says of a name."""
    if isinstance(one.mine, AbsentName) and one.mine.__error__ is UnsupportedFeatureError:
        about = str(one.mine.__doc__).removeprefix(f"Not supported. {one.name} is not supported: ")
        return f"refused: {about}"
    return "missing" if one.mine is NOWHERE else "works"


def table() -> str:
    """Return the names and their states as a table in Markdown."""
    # First: it fails where another library has registered its extension types.
    importlib.import_module("lance.arrow")
    lines = ["| name | state |", "|---|---|"]
    lines += [
        f"| `{'.'.join(filter(None, ('lance', one.module, one.name)))}` | {state(one)} |"
        for one in names()
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table())
