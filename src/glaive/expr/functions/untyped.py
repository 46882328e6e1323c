"""pyarrow as ``Any``: functions here take values of any type, which its stubs do not allow."""

from __future__ import annotations

from importlib import import_module
from typing import Any

pa: Any = import_module("pyarrow")
"""``pyarrow``."""

pc: Any = import_module("glaive.arrow.compute")
"""``pyarrow.compute``, once a function of it is used."""
