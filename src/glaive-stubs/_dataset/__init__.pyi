"""Batches for training loops of older programs."""
