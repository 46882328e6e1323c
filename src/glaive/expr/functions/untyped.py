"""Arrow without the types of its stubs.

Values here are of any type, which the stubs' overloads, one for each pair of types, do not
allow.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["pa", "pc"]

pa: Any = import_module("pyarrow")
"""``pyarrow``."""

pc: Any = import_module("pyarrow.compute")
"""``pyarrow.compute``."""
