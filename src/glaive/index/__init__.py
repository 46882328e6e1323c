"""Secondary indices: what their files hold, and rebuilding them for relocated rows."""
