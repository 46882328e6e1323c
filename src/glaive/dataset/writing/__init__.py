"""Write rows: read the input, cast it to the schema, split it into data files."""
