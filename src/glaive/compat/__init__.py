"""pylance's names where programs look for them.

``install`` makes ``import lance`` import glaive; ``absent`` has stand-ins for names glaive lacks.
"""

from __future__ import annotations

from glaive.compat.alias import PYLANCE_VERSION, install, is_installed, uninstall

__all__ = ["PYLANCE_VERSION", "install", "is_installed", "uninstall"]
