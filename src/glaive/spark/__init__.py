"""Layer 9: the Spark pipeline."""
