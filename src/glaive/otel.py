"""Metrics for OpenTelemetry, under the names of ``lance.otel``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glaive.dataset.metrics_export import (
    MetricDescription,
    MetricPoint,
    lance_metrics_catalog,
    register_lance_metrics_recorder,
    snapshot_lance_metrics,
)
from glaive.errors import MissingDependencyError

__all__ = [
    "MetricDescription",
    "MetricPoint",
    "instrument_lance_metrics",
    "lance_metrics_catalog",
    "register_lance_metrics_recorder",
    "snapshot_lance_metrics",
]

_instrumented: list[object] = []
"""Providers that have the counters already."""


def instrument_lance_metrics(meter_provider: Any = None) -> bool:
    """Export the counters of this process through OpenTelemetry.

    Calling it again with the same provider does nothing.

    Parameters
    ----------
    meter_provider
        A ``MeterProvider``; default: the global one.

    Returns
    -------
    bool
        Always true.

    Raises
    ------
    MissingDependencyError
        The package ``opentelemetry-api`` is not installed.
    """
    try:
        from opentelemetry import metrics
    except ImportError as error:
        raise MissingDependencyError(
            f"instrument_lance_metrics: OpenTelemetry is not installed ({error}). Install it: "
            "pip install opentelemetry-sdk"
        ) from error
    provider = metrics.get_meter_provider() if meter_provider is None else meter_provider
    if any(known is provider for known in _instrumented):
        return True
    meter = provider.get_meter("lance")
    for known in lance_metrics_catalog():
        meter.create_observable_counter(
            known.name,
            callbacks=[_observer(known.name, metrics.Observation)],
            unit=known.unit or "",
            description=known.description,
        )
    _instrumented.append(provider)
    return True


def _observer(name: str, observation: Any) -> Callable[[object], list[Any]]:
    def observe(_options: object) -> list[Any]:
        return [observation(one.value, {}) for one in snapshot_lance_metrics() if one.name == name]

    return observe
