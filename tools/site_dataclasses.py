"""Teach griffe, which reads sources for the site, that ``glaive.dataclass`` makes data classes.

griffe recognizes data classes by the name of the decorator. Otherwise it would miss their
parameters.
"""

from __future__ import annotations

from typing import Any

from griffe import Alias, Extension

__all__ = ["OurDataclasses"]


class OurDataclasses(Extension):
    """An extension that maps ``glaive.dataclass`` to the decorator of the standard library."""

    def on_alias_instance(self, *, alias: Alias, **_: Any) -> None:
        """Handle an imported name."""
        if alias.target_path == "glaive.dataclass.dataclass":
            alias.target_path = "dataclasses.dataclass"
