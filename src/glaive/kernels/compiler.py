"""The compiler of kernels, imported without the settings of the working directory.

numba reads the file ``.numba_config.yaml`` there whenever it is imported and whenever it compiles,
where PyYAML is installed. Its settings name files that are written over, such as ``dump_html``; and
the working directory may be that of a stranger's dataset. Variables of the environment
(``NUMBA_…``) have the same settings.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

_FILE: Final = ".numba_config.yaml"


def import_numba() -> None:
    """Import numba, which then never reads the file.

    In a program that imported it before, it did so for that program: nothing is changed there.
    """
    if "numba" in sys.modules:
        return
    exists = os.path.exists

    def exists_elsewhere(path: Any) -> bool:
        return path != _FILE and exists(path)

    # Looked for by its relative name, so that a thread which asks for another one sees no change.
    os.path.exists = exists_elsewhere
    try:
        from numba.core import config
    finally:
        os.path.exists = exists
    config._config_fname = ""  # noqa: SLF001  # it is looked for before each compilation, too


def has_settings_of_a_file() -> bool:
    """Whether numba compiles by the file: in a program that imported it, and has such a file here.

    The names of kept code have the variables of the environment, and nothing of the file.
    """
    from numba.core import config

    return bool(config._config_fname) and os.path.exists(_FILE)  # noqa: SLF001, PTH110  # as numba looks for it
