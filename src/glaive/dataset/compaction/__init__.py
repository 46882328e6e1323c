"""Compaction in three steps: plan, tasks, commit."""
