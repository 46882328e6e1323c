"""Metrics for OpenTelemetry."""

from glaive.dataset.monitoring import MetricDescription as MetricDescription
from glaive.dataset.monitoring import MetricPoint as MetricPoint
from glaive.dataset.monitoring import instrument_lance_metrics as instrument_lance_metrics
from glaive.dataset.monitoring import lance_metrics_catalog as lance_metrics_catalog
from glaive.dataset.monitoring import register_lance_metrics_recorder as register_lance_metrics_recorder
from glaive.dataset.monitoring import snapshot_lance_metrics as snapshot_lance_metrics
