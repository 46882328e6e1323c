"""How often each method of a catalogue was called, for those who look for requests to save."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from glaive.namespace.operations import OPERATIONS

__all__ = ["CallCounts", "count_calls"]

C = TypeVar("C", bound=type)


class CallCounts:
    """Base class of catalogues that count calls if ``ops_metrics_enabled`` is ``"true"``."""

    _calls: Counter[str] | None = None

    def _start_counting(self, properties: Mapping[str, object]) -> None:
        if str(properties.get("ops_metrics_enabled", "false")).lower() == "true":
            self._calls = Counter()

    def retrieve_ops_metrics(self) -> dict[str, int]:
        """Calls by name of the method; empty unless ``ops_metrics_enabled``."""
        return dict(self._calls or {})

    def reset_ops_metrics(self) -> None:
        """Count from 0 again."""
        if self._calls is not None:
            self._calls.clear()


def count_calls(catalogue: C) -> C:
    """Have all operations of a class counted."""
    for name in OPERATIONS:
        setattr(catalogue, name, _counted(name, getattr(catalogue, name)))
    return catalogue


def _counted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: CallCounts, *arguments: Any, **named: Any) -> Any:
        calls = self._calls  # of its class
        if calls is not None:
            calls[name] += 1
        return method(self, *arguments, **named)

    return call
