"""The format versions, by name and by footer.

``PROFILES`` holds one value per version that glaive reads and writes; the modules
``glaive.file.v2.profiles.v2_*`` and ``glaive.file.legacy.profile`` define them.
"""

from __future__ import annotations

from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.file.legacy.profile import V0_1, LegacyProfile
from glaive.file.profile import FormatProfile
from glaive.file.v2.profiles.v2_0 import V2_0
from glaive.file.v2.profiles.v2_1 import V2_1
from glaive.file.v2.profiles.v2_2 import V2_2
from glaive.file.v2.profiles.v2_3 import V2_3
from glaive.types import FormatVersion

__all__ = [
    "DEFAULT",
    "PROFILES",
    "Profile",
    "profile_of",
    "profile_of_footer",
    "resolve_version",
    "stable_version",
]

Profile = FormatProfile | LegacyProfile

_ALL: tuple[Profile, ...] = (V0_1, V2_0, V2_1, V2_2, V2_3)
PROFILES: dict[str, Profile] = {str(p.version): p for p in _ALL}

DEFAULT = str(V2_2.version)
"""The version of new datasets."""

_ALIASES = {"stable": "2.2", "next": "2.3", "legacy": "0.1", "0.3": "2.0"}


def resolve_version(name: str | None) -> str:
    """Version by name, aliases resolved: ``None``, ``"stable"``, ``"2.1"``, … → ``"2.2"``.

    Raises
    ------
    OptionError
        There is no such version.
    """
    text = DEFAULT if name is None else str(name).strip().lower()
    version = _ALIASES.get(text, text)
    if version in PROFILES:
        return version
    choices = ", ".join([*PROFILES, *_ALIASES])
    raise OptionError(
        f"data_storage_version: Unknown Lance storage version: {name!r:.60}; "
        f"expected one of {choices}"
    )


def stable_version() -> str:
    """The newest version whose files later releases will read, such as ``"2.2"``."""
    return resolve_version("stable")


def profile_of(version: FormatVersion) -> Profile:
    """The profile of a format version.

    Raises
    ------
    OptionError
        There is no such version.
    """
    return PROFILES[resolve_version(str(version))]


def profile_of_footer(major: int, minor: int, path: str) -> Profile:
    """The profile of a file by the version in its footer.

    Raises
    ------
    UnsupportedFeatureError
        The version is not one that this reader knows.
    """
    for profile in PROFILES.values():
        if (major, minor) in profile.on_disk:
            return profile
    known = ", ".join(PROFILES)
    raise UnsupportedFeatureError(
        f"{path} is a Lance file of unknown format version {major}.{minor} (footer "
        f"{major}.{minor}); this reader knows {known}. Upgrade glaive to read it."
    )
