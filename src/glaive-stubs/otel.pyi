"""Metrics for OpenTelemetry."""

from glaive.dataset.metrics_export import MetricDescription as MetricDescription
from glaive.dataset.metrics_export import MetricPoint as MetricPoint
from glaive.dataset.metrics_export import instrument_lance_metrics as instrument_lance_metrics
from glaive.dataset.metrics_export import lance_metrics_catalog as lance_metrics_catalog
from glaive.dataset.metrics_export import register_lance_metrics_recorder as register_lance_metrics_recorder
from glaive.dataset.metrics_export import snapshot_lance_metrics as snapshot_lance_metrics
