"""Layer 7: plan a scan, execute it, take rows."""
