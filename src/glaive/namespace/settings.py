"""Properties of a directory namespace, as text, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from difflib import get_close_matches

from glaive.dataclass import dataclass
from glaive.errors import GlaiveError
from glaive.io.location import Location, split_secret
from glaive.namespace.errors import InvalidInputError, UnsupportedOperationError

__all__ = ["DirectorySettings"]

_STORAGE = "storage."
_IGNORED = frozenset(
    {
        "commit_retries",
        "dir_listing_to_manifest_migration_enabled",
        "inline_optimization_enabled",
        "ops_metrics_enabled",
    }
)
"""Properties of pylance that do not change what glaive does."""

_SWITCHES = {
    "manifest_enabled": True,
    "dir_listing_enabled": True,
    "table_version_tracking_enabled": False,
    "vend_input_storage_options": False,
}
_INTERVAL = "vend_input_storage_options_refresh_interval_millis"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySettings:
    """What a directory namespace is and does.

    Parameters
    ----------
    root
        Folder or URI.
    storage_options
        Options of its store.
    manifest
        Whether the table ``__manifest`` is used: namespaces below the root, properties.
    listing
        Whether folders ``NAME.lance`` below the root are tables.
    tracks_versions
        Whether clients are reported to commit versions through the namespace.
    vends_options
        Whether clients are given the storage options.
    refresh_millis
        Milliseconds after which they are reported to ask again.
    """

    root: str
    storage_options: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    manifest: bool = True
    listing: bool = True
    tracks_versions: bool = False
    vends_options: bool = False
    refresh_millis: int | None = None

    def __repr__(self) -> str:
        # The root may be a URL with a password.
        root = GlaiveError.without_secrets(self.root)
        return f"DirectorySettings(root={root!r}, manifest={self.manifest}, listing={self.listing})"

    @classmethod
    def of(cls, properties: Mapping[str, object]) -> DirectorySettings:
        """From properties.

        Raises
        ------
        InvalidInputError
            One is missing, unknown, or has an invalid value.
        UnsupportedOperationError
            Credentials are to be made for clients.
        """
        texts = {str(key): str(text) for key, text in properties.items()}
        storage = {
            key.removeprefix(_STORAGE): text
            for key, text in texts.items()
            if key.startswith(_STORAGE)
        }
        on = {name: _switch(name, texts.get(name), default) for name, default in _SWITCHES.items()}
        for name in texts:
            _check(name)
        root = texts.get("root", "")
        if not root:
            raise InvalidInputError("root: a directory namespace needs a folder or a URI")
        if root.rstrip("/") == "memory:":
            raise InvalidInputError(
                "root: memory:// without a name is another place for each who opens it. Give a "
                "name, as in memory://catalogue"
            )
        _refuse_password(root)
        if not (on["manifest_enabled"] or on["dir_listing_enabled"]):
            raise InvalidInputError(
                "manifest_enabled and dir_listing_enabled: at least one must be true"
            )
        return cls(
            root=root,
            storage_options=storage,
            manifest=on["manifest_enabled"],
            listing=on["dir_listing_enabled"],
            tracks_versions=on["table_version_tracking_enabled"],
            vends_options=on["vend_input_storage_options"],
            refresh_millis=_millis(texts.get(_INTERVAL)),
        )


def _refuse_password(root: str) -> None:
    """Refuse a root that fsspec would open with its password, and all tables below it without."""
    if split_secret(root)[1] and Location.parse(root).is_fsspec:
        raise InvalidInputError(
            f"root: {root!r} has a password, and the URIs of tables below it have none. Leave "
            f"it out, and give it as the option of the file system: {_STORAGE}password"
        )


def _check(name: str) -> None:
    if name.startswith("credential_vendor."):
        raise UnsupportedOperationError(
            f"{name}: glaive's directory namespace makes no credentials. Set "
            "vend_input_storage_options=true to hand on those it has, or use a REST catalogue"
        )
    known = {"root", _INTERVAL, *_SWITCHES, *_IGNORED}
    if name in known or name.startswith(_STORAGE):
        return
    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise InvalidInputError(
        f"unknown property {name!r} of a directory namespace{hint} Known: "
        f"{', '.join(sorted(known))}, and {_STORAGE}* for the store"
    )


def _switch(name: str, text: str | None, default: bool) -> bool:  # noqa: FBT001  # a value, not a mode
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise InvalidInputError(f"{name}: expected true or false, found {text!r:.60}")
    return text.lower() == "true"


def _millis(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise InvalidInputError(f"{_INTERVAL}: expected milliseconds, found {text!r:.60}")
    return int(text)
