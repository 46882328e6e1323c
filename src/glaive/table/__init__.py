"""Versions of a dataset: manifests, transactions, commits."""
