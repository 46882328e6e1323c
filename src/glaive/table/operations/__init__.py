"""Table operations, one file each."""
