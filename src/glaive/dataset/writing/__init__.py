"""Rows on their way into data files: what users hand over, how it is fitted, cut and placed."""
