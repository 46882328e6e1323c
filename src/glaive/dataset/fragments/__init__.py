"""Fragments of a dataset, for those who read and write in parts."""
