"""Reading files of format 2.x."""
