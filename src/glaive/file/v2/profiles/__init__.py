"""What each format version of 2.x is made of: one file each."""
