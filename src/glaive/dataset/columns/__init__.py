"""Adding, changing and dropping columns."""
