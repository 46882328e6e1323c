"""Secondary indices: what their files hold, and making them anew for rows that moved."""
