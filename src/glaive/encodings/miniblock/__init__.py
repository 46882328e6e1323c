"""The mini-block page layout: chunks of levels and values of many rows."""
