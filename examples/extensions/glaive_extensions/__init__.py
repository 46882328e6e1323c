"""Examples of what a package can add to glaive: one module for each entry point."""
