"""Layer 8: what users see: datasets, scanners, fragments, writing."""
