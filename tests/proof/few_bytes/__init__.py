"""Files of few bytes that agree with themselves, and stand for many values."""
