"""Names that are refused at their first use."""

from typing import Any


def __getattr__(name: str) -> Any: ...
