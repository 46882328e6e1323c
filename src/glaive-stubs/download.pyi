"""Names that are refused at their first use: nothing is downloaded."""

from typing import Any


def __getattr__(name: str) -> Any: ...
