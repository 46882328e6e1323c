"""Layer 5: versions of a dataset: manifests, transactions, commits."""
