"""Full-text indices: documents, tokens, and which documents have a token."""
