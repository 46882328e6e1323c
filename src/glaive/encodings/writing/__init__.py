"""The choice of the cheapest encoding, one file per kind of data."""
