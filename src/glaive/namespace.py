"""The names of ``lance.namespace``.

Clients of the package ``lance-namespace`` are taken by :func:`glaive.dataset` and
:func:`glaive.write_dataset`; its classes are here if it is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from glaive.compat.absent import absent_names, needs_package
from glaive.compat.refusals import REFUSED

__all__: list[str] = []

_OF_THE_PACKAGE = ("DescribeTableRequest", "LanceNamespace", "connect")

_refused = absent_names(__name__, REFUSED[__name__], globals())


def __getattr__(name: str) -> Any:
    if name not in _OF_THE_PACKAGE:
        return _refused(name)
    try:
        package = import_module("lance_namespace")
    except ImportError:
        advice = "pip install lance-namespace"
        return needs_package(__name__, name, "the package lance-namespace", advice)
    return getattr(package, name)
