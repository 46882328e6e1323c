"""What one library writes, the other reads."""
