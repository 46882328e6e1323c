"""Page layouts, one file each; found by the registry."""
