"""Tokenizers: how texts are cut into tokens, and what is done to these."""
