"""What the site's reader of sources has to be told: ``glaive.dataclass`` makes data classes.

Without it their parameters would be unknown, since it goes by the name of the decorator.
"""

from __future__ import annotations

from typing import Any

from griffe import Alias, Extension

__all__ = ["OurDataclasses"]


class OurDataclasses(Extension):
    """Takes the decorator of ``glaive.dataclass`` for that of the standard library."""

    def on_alias_instance(self, *, alias: Alias, **_: Any) -> None:
        """A name was imported."""
        if alias.target_path == "glaive.dataclass.dataclass":
            alias.target_path = "dataclasses.dataclass"
