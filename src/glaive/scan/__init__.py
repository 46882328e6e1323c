"""Plan a scan, run it, take rows; filters and searches, with and without indices."""
