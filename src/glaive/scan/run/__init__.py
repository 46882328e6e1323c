"""Run a plan: read parts ahead on threads, return batches in order."""
