"""Versions of a dataset: which there are, their names, copies, differences and end."""
