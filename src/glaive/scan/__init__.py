"""Plan a scan, run it, take rows; filters and searches, by indices or by scans."""
