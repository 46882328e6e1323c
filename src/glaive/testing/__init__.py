"""Layer 9: the test kit that ships with the package."""
