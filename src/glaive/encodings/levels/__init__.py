"""Repetition and definition levels, and what stands for them in sparse pages."""
