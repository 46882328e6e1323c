"""The 0.1 container: pages by batch, a page table, and statistics of pages."""
