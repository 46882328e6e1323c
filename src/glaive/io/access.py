"""Which places beside its own a dataset may lead to, and the options each is opened with.

A manifest names base paths, a row the URI of its value. Whoever wrote them is not the caller:
what they name is opened with the options that the caller gave for that place, or with those of
the root where the place is in the same bucket or on the same host. Another scheme than that of
the root, another web server, and all that fsspec opens have to be allowed by name.

Decision: ``docs/adr/0014-places-that-a-dataset-names.md``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from glaive.errors import AccessError, OptionError
from glaive.io.local import LocalStore
from glaive.io.location import Location
from glaive.io.storage_options import settle
from glaive.io.store import ObjectStore
from glaive.io.uri import open_sibling, open_store

__all__ = ["NOTHING", "AccessPolicy", "allow_copies", "open_external", "open_named"]

_ACCOUNTS: Final = ("azure_storage_account_name", "account_name")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")
_TREE: Final = "/tree/"
"""Between the root of a dataset and a branch of it."""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """What a caller allows beside the place it opens.

    Parameters
    ----------
    given
        Places that the caller names, with the storage options for all that lies below each.
    external
        Whether values of blob columns may be fetched from outside of the dataset and its base
        paths; or the only places they may be fetched from.
    """

    given: tuple[tuple[Location, Mapping[str, str]], ...] = ()
    external: bool | tuple[Location, ...] = False

    @classmethod
    def of(
        cls,
        base_store_params: object = None,
        allow_external_blobs: object = None,
        *,
        before: AccessPolicy | None = None,
    ) -> Self | AccessPolicy | None:
        """The policy that options of users mean; ``before`` where they say nothing.

        Raises
        ------
        OptionError
            One of them has a value it cannot have.
        """
        if base_store_params is None and allow_external_blobs is None:
            return before
        before = before or NOTHING
        return cls(
            before.given if base_store_params is None else _given(base_store_params),
            before.external if allow_external_blobs is None else _external(allow_external_blobs),
        )

    def naming(
        self,
        root: ObjectStore,
        uris: Iterable[str],
        options: Mapping[str, str] | None = None,
    ) -> AccessPolicy:
        """The policy of a caller who names base paths of the dataset at ``root`` just now.

        Parameters
        ----------
        options
            Storage options for them; otherwise those of the root, for those in its bucket.
        """
        places = [Location.parse(uri) for uri in uris]
        if not places:
            return self
        home, more = Location.parse(root.uri), []
        for place in places:
            if self.options_for(place) is not None:
                continue
            if options is not None:
                more.append((place, options))
            elif _refusal(home, place) is not None:
                more.append((place, _root_options(root, home, place)))
        return AccessPolicy((*self.given, *more), self.external) if more else self

    def options_for(self, place: Location) -> Mapping[str, str] | None:
        """Options given for a place, those of the nearest one above it; ``None`` for none."""
        found = [entry for entry in self.given if entry[0].contains(place)]
        return max(found, key=lambda entry: len(entry[0].path))[1] if found else None

    def allows_external(self, place: Location) -> bool:
        """Whether the value of a blob column may be fetched from there."""
        if isinstance(self.external, tuple):
            return any(allowed.contains(place) for allowed in self.external)
        named = not place.is_fsspec or self.options_for(place) is not None
        return self.external and named and not place.is_chained


NOTHING: Final = AccessPolicy()
"""Nothing beside the place itself."""


def _given(params: object) -> tuple[tuple[Location, Mapping[str, str]], ...]:
    if not isinstance(params, Mapping):
        raise OptionError(
            "base_store_params: expected storage options by base path, such as "
            f"{{'s3://bucket/path': {{'aws_region': 'eu-west-1'}}}}, found {type(params).__name__}"
        )
    found = []
    for uri, options in params.items():
        if not isinstance(uri, str) or not uri or not isinstance(options, Mapping):
            raise OptionError(
                "base_store_params: expected a path or URI and a mapping of storage options for "
                f"it, found {uri!r} and {type(options).__name__}"
            )
        found.append((_named(uri, "base_store_params"), settle(options)))
    return tuple(found)


def _external(allowed: object) -> bool | tuple[Location, ...]:
    if isinstance(allowed, bool):
        return allowed
    places = None if isinstance(allowed, str) or not isinstance(allowed, Iterable) else [*allowed]
    if places is None or not all(isinstance(place, str) and place for place in places):
        raise OptionError(
            "allow_external_blobs: expected True, False, or a list of places such as "
            f"['s3://bucket/media'], found {type(allowed).__name__}"
        )
    return tuple(_named(place, "allow_external_blobs") for place in places)


def _named(uri: str, option: str) -> Location:
    place = Location.parse(os.path.expanduser(uri), f"{option}: ")
    if place.climbs:
        raise OptionError(f"{option}: {uri!r} has steps upwards ('..'). Name the place itself.")
    return place


# ---------------------------------------------------------------------- opening


def open_named(
    root: ObjectStore, uri: str, policy: AccessPolicy = NOTHING, *, what: str
) -> ObjectStore:
    """Open a place that content of the dataset at ``root`` names, as a base path; no request.

    Parameters
    ----------
    what
        What names it, for messages.

    Raises
    ------
    AccessError
        The caller has to allow it.
    OptionError
        It is no place, or its options have values they cannot have.
    """
    place = _trusted_spelling(uri, what)
    given = policy.options_for(place)
    if given is not None:
        return _open(root, place, given)
    home = Location.parse(root.uri)
    why = _refusal(home, place)
    if why is not None:
        raise AccessError(
            f"{what} is {uri!r}, {why}. It was not opened. If the dataset may read there, name the "
            f"place when opening it: base_store_params={{{place.uri!r}: {{...}}}}, with the "
            "storage options for it."
        )
    return _open(root, place, _root_options(root, home, place))


def open_external(
    root: ObjectStore, uri: str, policy: AccessPolicy, *, what: str
) -> tuple[ObjectStore, str]:
    """Open the place that holds an object outside of a dataset; and the object's path there.

    Raises
    ------
    AccessError
        The caller has to allow it.
    OptionError
        It is no place.
    """
    place = _trusted_spelling(uri, what)
    if not policy.allows_external(place):
        raise AccessError(f"{what} is {uri!r}, {_not_allowed(place, policy)}")
    folder, _, name = place.uri.rpartition("/")
    if not name or folder.endswith(("/", ":")):
        raise OptionError(f"{what} is {uri!r}, which names no object")
    around = Location.parse(folder or "/")
    given = policy.options_for(place)
    if given is None:
        given = _root_options(root, Location.parse(root.uri), place)
    return _open(root, around, given), name


def allow_copies(policy: AccessPolicy) -> AccessPolicy:
    """The policy for values that the caller's own rows ask to copy: from anywhere.

    fsspec is asked for places only that the caller names, for whom rows may speak or not.
    """
    return AccessPolicy(policy.given, external=True)


def _not_allowed(place: Location, policy: AccessPolicy) -> str:
    if policy.external is True:
        return (
            "which fsspec would open. It was not fetched. If it is to be trusted, name the place: "
            f"base_store_params={{{place.uri!r}: {{...}}}}, with the storage options for it."
        )
    listed = ", and below none of the places allowed" if policy.external else ""
    return (
        f"outside of the dataset and its base paths{listed}. It was not fetched. If it is to be "
        f"trusted, open the dataset with allow_external_blobs=[{place.uri!r}], or a place above "
        "it; allow_external_blobs=True allows all."
    )


def _trusted_spelling(uri: str, what: str) -> Location:
    place = Location.parse(uri, f"{what}: ")
    controls = _CONTROLS.search(uri) is not None
    if place.user or place.is_chained or place.climbs or controls:
        has = "control characters" if controls else "'..'" if place.climbs else "'::'"
        has = "a user or password" if place.user else has
        raise AccessError(
            f"{what} is {uri!r}, which has {has} in it. It was not opened: give the place itself, "
            "and credentials in base_store_params."
        )
    return place


def _refusal(home: Location, place: Location) -> str | None:
    """Why a place is not opened unless the caller names it; ``None`` if it is."""
    if home.is_fsspec or place.is_fsspec:
        if home.contains(place) or _branches(home, place):
            return None
        return "which fsspec would open"
    if home.scheme != place.scheme:
        return f"while the dataset is in {home.uri}"
    if home.is_http and home.origin != place.origin:
        return f"on another server than the dataset in {home.uri}"
    if place.is_whole_disk:
        return "which is the whole disk"
    return None


def _branches(home: Location, place: Location) -> bool:
    """Whether ``place`` is the root of the dataset that has a branch at ``home``."""
    return place.contains(home) and f"/{place.below(home)}".startswith(_TREE)


def _root_options(root: ObjectStore, home: Location, place: Location) -> Mapping[str, str]:
    """Options of the root where a place is in the same bucket or account, else none."""
    options = root.options
    if home.scheme != place.scheme:
        return {}
    if home.scheme == "az":
        given = {key.lower(): value for key, value in options.items()}
        own = next((given[key] for key in _ACCOUNTS if key in given), "")
        # A container without an account is in that of the options or of the environment.
        same = not place.origin or place.origin == (home.origin or own)
        return options if same else {}
    return options if home.origin == place.origin else {}


def _open(root: ObjectStore, place: Location, options: Mapping[str, str]) -> ObjectStore:
    if place.is_local:
        return LocalStore(place.path, options)
    if place.is_fsspec and options is root.options:
        return open_sibling(root, place.uri)
    return open_store(place.uri, options)
