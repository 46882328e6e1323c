"""Examples of extensions of glaive: one module for each entry point."""
