"""The mini-block page layout: chunks, levels and values of many rows together."""
