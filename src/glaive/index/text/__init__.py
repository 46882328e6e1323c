"""Full-text indices: documents, tokens, and the postings of each token."""
