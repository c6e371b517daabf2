"""What a feature's metrics import: ``Feature.metrics`` names a ``FeatureMetrics``."""

from redrive.observe.feature_metrics import FeatureMetrics, count
from redrive.observe.metrics import Metric, Scope, Type
from redrive.observe.samples import Samples, put

__all__ = ["FeatureMetrics", "Metric", "Samples", "Scope", "Type", "count", "put"]
