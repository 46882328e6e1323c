"""Which files of old versions, and of writers that failed, are deleted, and how that is divided."""
