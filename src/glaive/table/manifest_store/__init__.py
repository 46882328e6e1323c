"""Registers of manifests, for stores without atomic put-if-absent."""
