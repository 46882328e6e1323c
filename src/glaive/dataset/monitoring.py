"""Report the work of the process: progress lines of the terminal, and counters as metrics."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from importlib import import_module
from typing import Any, TextIO

from glaive.dataclass import dataclass
from glaive.errors import MissingDependencyError, OptionError
from glaive.io.store import process_totals


class ProgressLine:
    """A progress line in the terminal, drawn by ``rich``.

    Parameters
    ----------
    label
        Name of the work: ``write``.
    unit
        Unit of the count: ``rows``.
    stream
        A terminal.
    total
        Total number of units, if known.
    """

    def __init__(self, label: str, unit: str, stream: TextIO, total: int | None = None) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        counts = MofNCompleteColumn(separator=" of "), TextColumn(unit)
        columns = TextColumn("{task.description}"), BarColumn(24), *counts, TimeElapsedColumn()
        self._bars = Progress(*columns, console=Console(file=stream), transient=True)
        self._task = self._bars.add_task(escape(label), total=total)
        self._bars.start()

    def advance(self, count: int) -> None:
        """Add ``count`` units to the progress; callable from any thread."""
        self._bars.advance(self._task, count)

    def move_to(self, done: int, total: int | None) -> None:
        """Set the units done and the total; callable from any thread."""
        self._bars.update(self._task, completed=done, total=total)

    def end(self) -> None:
        """Remove the line."""
        self._bars.stop()


_LINE: ContextVar[ProgressLine | None] = ContextVar("line of the terminal", default=None)


def current_line() -> ProgressLine | None:
    """Return the progress line of the work in this thread, if it has one."""
    return _LINE.get()


def note_rows(count: int) -> None:
    """Add rows that were written, or found for a change, to the progress."""
    line = _LINE.get()
    if line is not None:
        line.advance(count)


@contextmanager
def showing(
    progress: object, label: str, total: int | None = None, unit: str = "rows"
) -> Iterator[None]:
    """Show a progress line during a block, if ``progress`` is True and stderr is a terminal.

    Nested work uses the outer line.

    Raises
    ------
    OptionError
        ``progress`` is not True, False or None.
    """
    if progress is not None and not isinstance(progress, bool):
        raise OptionError(f"progress: expected True or False, found {progress!r:.80}")
    stream = sys.stderr
    if not progress or _LINE.get() is not None or stream is None or not stream.isatty():
        yield
        return
    line = ProgressLine(label, unit, stream, total)
    before = _LINE.set(line)
    try:
        yield
    finally:
        _LINE.reset(before)
        line.end()


# --- Bytes and requests of this process, and features of the CPU: pylance's counters -----

_TIERS = (("avx512", "AVX512F"), ("avx2", "AVX2"), ("neon", "NEON"), ("sse4.2", "SSE42"))


def bytes_read_counter() -> int:
    """Return the bytes that this process has read, over all datasets and files."""
    return process_totals().read_bytes


def iops_counter() -> int:
    """Return the read operations of this process, over all datasets and files."""
    return process_totals().read_iops


def simd_info() -> dict[str, Any]:
    """Describe the CPU: ``tier`` (widest instructions), ``target_arch``, ``host_features``.

    Kernels are compiled for the CPU that they run on.
    """
    features: dict[str, bool] = import_module("numpy._core._multiarray_umath").__cpu_features__
    tier = next((name for name, feature in _TIERS if features.get(feature)), "none")
    present = sorted(name.lower() for name, there in features.items() if there)
    return {"tier": tier, "target_arch": platform.machine(), "host_features": present}


@dataclass(frozen=True)
class MetricDescription:
    """A metric: its name, ``kind`` (always ``counter``), unit and meaning."""

    name: str
    kind: str
    unit: str | None
    description: str


@dataclass(frozen=True)
class MetricPoint:
    """The value of a metric. Only histograms, which glaive lacks, use the last three fields."""

    name: str
    kind: str
    attributes: dict[str, str] = field(default_factory=dict)
    value: float | None = None
    buckets: list[tuple[str, int]] | None = None
    count: int | None = None
    sum: float | None = None


_CATALOG = (
    ("read_iops", "lance.object_store.read.requests", "1", "Read operations of all stores"),
    ("read_bytes", "lance.object_store.read.bytes", "By", "Bytes read from all stores"),
    ("write_iops", "lance.object_store.write.requests", "1", "Write operations of all stores"),
    ("written_bytes", "lance.object_store.write.bytes", "By", "Bytes written to all stores"),
)


def lance_metrics_catalog() -> list[MetricDescription]:
    """Return all metrics."""
    return [MetricDescription(name, "counter", unit, text) for _, name, unit, text in _CATALOG]


def register_lance_metrics_recorder() -> bool:
    """Return True: the counters are always ready."""
    return True


def snapshot_lance_metrics() -> list[MetricPoint]:
    """Return the current values."""
    totals = process_totals()
    return [
        MetricPoint(name, "counter", {}, float(getattr(totals, counter)))
        for counter, name, _, _ in _CATALOG
    ]


# --- Export of the counters by OpenTelemetry

_instrumented: list[object] = []
"""Providers that already have the counters."""


def instrument_lance_metrics(meter_provider: Any = None) -> bool:
    """Export the counters of this process through OpenTelemetry.

    A second call with the same provider is ignored.

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
        The package ``opentelemetry-api`` is missing.
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
