"""Running a plan: parts ahead on threads, batches in order."""
