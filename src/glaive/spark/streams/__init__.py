"""Streams: ``readStream.format("lance")`` and ``writeStream.format("lance")``."""
