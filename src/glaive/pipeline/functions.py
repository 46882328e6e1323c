"""Functions of users that steps name as ``module:function``."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from glaive.errors import OptionError

__all__ = ["check_function", "function_named"]

_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def check_function(name: str) -> None:
    """Refuse what names no function.

    Raises
    ------
    OptionError
        It is not of the form ``module:function``.
    """
    if not _FUNCTION.fullmatch(name):
        raise OptionError(f"function: expected 'module:function', found {name!r:.60}")


def function_named(name: str) -> Callable[..., Any]:
    """The function; imports its module.

    Raises
    ------
    OptionError
        There is no such module or function.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise OptionError(
            f"function {name!r}: {error}. Add the file to the key modules of the pipeline, or "
            "install the package"
        ) from error
    found: Any = getattr(module, function_name, None)
    if not callable(found):
        raise OptionError(f"function {name!r}: the module has no function {function_name!r}")
    made: Callable[..., Any] = found
    return made
