"""Value encodings, one file each; found by the registry."""
