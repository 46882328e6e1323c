"""``python -m glaive``: the command line."""

from __future__ import annotations

from glaive.cli.main import main

if __name__ == "__main__":
    main()
