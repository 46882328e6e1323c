"""The ``glaive`` command; one file per subcommand."""
