"""Generated from ``../protos`` by ``make protos``; checked in."""
