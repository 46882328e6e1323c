"""Layer 1: everything that touches Arrow memory by hand."""
