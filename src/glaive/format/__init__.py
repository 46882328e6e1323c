"""Wire messages, fixed layouts and names of files, to records and back, in memory."""
