"""Layer 5: registers of manifests, for stores without atomic put-if-absent."""
