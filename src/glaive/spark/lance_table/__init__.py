"""``LanceTable``: change a dataset by Spark jobs, with the method names of Delta tables."""
