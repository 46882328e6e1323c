"""Layer 4: one ``.lance`` file, all versions."""
