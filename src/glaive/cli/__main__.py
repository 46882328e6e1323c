"""``python -m glaive.cli`` for places where the ``glaive`` script is not on the path."""

from glaive.cli.main import main

if __name__ == "__main__":
    main()
