"""Batches for training loops of older programs, under the names of ``lance._dataset``."""
