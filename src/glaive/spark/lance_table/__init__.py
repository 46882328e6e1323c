"""``LanceTable``: a dataset changed by jobs of Spark, with the method names of Delta's tables."""
