"""Shipped orders, by their number: each run continues where the last run ended."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

dp.create_sink(
    "shipped",
    format="lance",
    options={"path": spark.conf.get("shipments.shipped"), "merge_keys": "order"},
)


@dp.append_flow(target="shipped")
def shipped_orders() -> DataFrame:
    """Return new orders, and new values of changed orders."""
    feed = (
        spark.readStream.format("lance")
        .option("readChangeFeed", "true")
        .option("preimages", "false")
        .load(spark.conf.get("shipments.orders"))
    )
    shipped = feed.where("_change_type <> 'delete' and state = 'shipped'")
    return shipped.select("order", "state")
