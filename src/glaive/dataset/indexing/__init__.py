"""Build, merge, commit and describe secondary indices."""
