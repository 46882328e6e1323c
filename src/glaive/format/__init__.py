"""Layer 2: wire messages and fixed layouts. No I/O, no compute."""
