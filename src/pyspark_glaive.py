"""Found by Spark: it imports modules named ``pyspark_*`` and registers their ``DefaultSource``."""

from glaive.spark.source import LanceDataSource as DefaultSource

__all__ = ["DefaultSource"]
