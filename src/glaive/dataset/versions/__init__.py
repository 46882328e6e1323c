"""Versions of a dataset: history, tags, branches, clones, differences and clean-up."""
