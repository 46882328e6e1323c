"""Layer 9: the ``glaive`` command; one file per subcommand."""
