"""Which other locations a dataset may refer to, and the options each is opened with.

A manifest names base paths, a row the URI of its value. They may come from somebody other than the
caller, so these locations are opened with the options that the caller gave for them, or with those
of the root if they are in the same bucket or on the same host. Other schemes than that of the
root, other web servers, and all that fsspec opens have to be allowed by name.

Decision: ``docs/adr/0014-places-that-a-dataset-names.md``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final, Self

from glaive.dataclass import dataclass
from glaive.errors import AccessError, OptionError
from glaive.io.credentials import open_renewed
from glaive.io.local import LocalStore
from glaive.io.location import FABRIC, Location
from glaive.io.storage_options import PERMISSIONS, normalise_options, read_switch
from glaive.io.store import ObjectStore
from glaive.io.uri import open_sibling

_ACCOUNTS: Final = ("azure_storage_account_name", "account_name")
_IN_FABRIC: Final = ("azure_use_fabric_endpoint", "use_fabric_endpoint")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")
_TREE: Final = "/tree/"
"""Between the root of a dataset and a branch of it."""

_EXTERNAL, _BASES = PERMISSIONS

AS_OPTION: Final = "Commands, pipelines and Spark take it as a storage option, in JSON."
"""The end of messages that say what to allow: not everybody opens the dataset."""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """The locations that a caller allows in addition to the one it opens.

    Parameters
    ----------
    given
        Locations that the caller names, with the storage options for all that lies below each.
    external
        Whether values of blob columns may be fetched from outside of the dataset, also from below
        its base paths; or the only other locations they may be fetched from. ``None`` if the
        caller did not say: they may not.
    """

    given: tuple[tuple[Location, Mapping[str, str]], ...] = field(default=(), repr=False)
    external: bool | tuple[Location, ...] | None = None

    @classmethod
    def of(
        cls,
        base_store_params: object = None,
        allow_external_blobs: object = None,
        *,
        before: AccessPolicy | None = None,
    ) -> Self | AccessPolicy | None:
        """The policy for the options of a user; ``before`` for options that are not given.

        Raises
        ------
        OptionError
            One of them has an invalid value.
        """
        if base_store_params is None and allow_external_blobs is None:
            return before
        before = before or NOTHING
        return cls(
            before.given if base_store_params is None else _given(base_store_params),
            before.external if allow_external_blobs is None else _external(allow_external_blobs),
        )

    @classmethod
    def of_options(
        cls, storage_options: Mapping[str, str], over: AccessPolicy | None = None
    ) -> AccessPolicy | None:
        """The policy that storage options give; what ``over`` says has priority.

        For all who open a dataset for somebody: each has storage options.

        Parameters
        ----------
        storage_options
            Normalised ones. ``allow_external_blobs`` is ``true``, ``false``, a place, or a JSON
            list of places; ``base_store_params`` is JSON. Others are ignored.

        Raises
        ------
        OptionError
            One of them has an invalid value.
        """
        given = {key.lower(): storage_options[key] for key in storage_options}
        if _EXTERNAL not in given and _BASES not in given:
            return over
        bases = _json(_BASES, given[_BASES]) if _BASES in given else None
        policy = cls.of(bases, _external_in(given))
        if over is None or policy is None:
            return policy
        external = policy.external if over.external is None else over.external
        return AccessPolicy(over.given or policy.given, external)

    def as_options(self) -> dict[str, str]:
        """The storage options that give this policy to any process; places are absolute."""
        import json

        options = {}
        if isinstance(self.external, tuple):
            options[_EXTERNAL] = json.dumps([place.uri for place in self.external])
        elif self.external is not None:
            options[_EXTERNAL] = json.dumps(self.external)
        if self.given:
            options[_BASES] = json.dumps({place.uri: dict(own) for place, own in self.given})
        return options

    def naming(
        self, root: ObjectStore, uris: Iterable[str], options: Mapping[str, str] | None = None
    ) -> AccessPolicy:
        """The policy that allows base paths that the caller adds to the dataset at ``root``.

        Parameters
        ----------
        root
            The store of the dataset.
        uris
            The base paths.
        options
            Storage options for them; by default those of the root, for those in its bucket.
        """
        locations = [Location.parse(uri) for uri in uris]
        if not locations:
            return self
        home, added = Location.parse(root.uri), []
        for location in locations:
            if self.options_for(location) is not None:
                continue
            given = _root_options(root, home, location) if options is None else options
            added.append((location, given))
        return AccessPolicy((*self.given, *added), self.external) if added else self

    def options_for(self, location: Location) -> Mapping[str, str] | None:
        """Options given for a location or the nearest one above it; ``None`` if there are none."""
        nearest = self._nearest(location)
        return None if nearest is None else nearest[1]

    def place_of(self, location: Location) -> Location | None:
        """The nearest location that was named and contains this one."""
        nearest = self._nearest(location)
        return None if nearest is None else nearest[0]

    def _nearest(self, location: Location) -> tuple[Location, Mapping[str, str]] | None:
        above = [entry for entry in self.given if entry[0].contains(location)]
        return max(above, key=lambda entry: len(entry[0].path)) if above else None

    def listed_place_of(self, location: Location) -> Location | None:
        """The first location listed for values of blob columns that contains this one."""
        listed = self.external if isinstance(self.external, tuple) else ()
        return next((allowed for allowed in listed if allowed.contains(location)), None)

    def allows_external(self, location: Location) -> bool:
        """Whether the value of a blob column may be fetched from there."""
        if isinstance(self.external, tuple):
            return self.listed_place_of(location) is not None
        named = not location.is_fsspec or self.options_for(location) is not None
        return bool(self.external) and named and not location.is_chained


NOTHING: Final = AccessPolicy()
"""No other location is allowed."""


def _given(params: object) -> tuple[tuple[Location, Mapping[str, str]], ...]:
    if not isinstance(params, Mapping):
        raise OptionError(
            "base_store_params: expected storage options by base path, such as "
            f"{{'s3://bucket/path': {{'aws_region': 'eu-west-1'}}}}, found {type(params).__name__}"
        )
    given = []
    for uri, options in params.items():
        if not isinstance(uri, str) or not uri or not isinstance(options, Mapping):
            raise OptionError(
                "base_store_params: expected a path or URI and a mapping of storage options for "
                f"it, found {uri!r} and {type(options).__name__}"
            )
        given.append((_named(uri, "base_store_params"), normalise_options(options)))
    return tuple(given)


def _external(allowed: object) -> bool | tuple[Location, ...]:
    if isinstance(allowed, bool):
        return allowed
    locations = (
        None if isinstance(allowed, str) or not isinstance(allowed, Iterable) else [*allowed]
    )
    if locations is None or not all(
        isinstance(location, str) and location for location in locations
    ):
        raise OptionError(
            "allow_external_blobs: expected True, False, or a list of locations such as "
            f"['s3://bucket/media'], found {type(allowed).__name__}"
        )
    return tuple(_named(location, "allow_external_blobs") for location in locations)


def _external_in(options: Mapping[str, str]) -> object:
    """The value of the storage option: a switch, a JSON list of places, or one place."""
    text = options.get(_EXTERNAL)
    if text is None:
        return None
    if text.lstrip().startswith("["):
        return _json(_EXTERNAL, text)
    text = text.strip()
    if "/" in text or "\\" in text:
        return [text]
    try:
        return read_switch({_EXTERNAL: text}, _EXTERNAL)
    except OptionError:
        raise OptionError(
            f"{_EXTERNAL}: expected true, false, a place such as ./media or s3://bucket/media, or "
            f"a JSON list of places, found {text!r}"
        ) from None


def _json(option: str, text: str) -> Any:
    """Parse JSON. It may have credentials, so messages do not show it."""
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # includes huge numbers and deep nesting
        raise OptionError(f"{option}: not JSON ({error})") from None


def _named(uri: str, option: str) -> Location:
    location = Location.parse(os.path.expanduser(uri), f"{option}: ")
    if location.climbs:
        raise OptionError(f"{option}: {uri!r} contains '..'. Give the location itself.")
    return location


# ---------------------------------------------------------------------- opening


def open_named(
    root: ObjectStore, uri: str, policy: AccessPolicy = NOTHING, *, subject: str
) -> ObjectStore:
    """Open a location that the dataset at ``root`` names, such as a base path; no request.

    Parameters
    ----------
    root
        The store of the dataset.
    uri
        The location.
    policy
        The locations that the caller allows.
    subject
        What names the location, for messages.

    Raises
    ------
    AccessError
        The caller has to allow it.
    OptionError
        It is no location, or its options have invalid values.
    """
    location = _trusted_spelling(uri, subject)
    given = policy.options_for(location)
    if given is not None:
        return _open(root, location, given)
    home = Location.parse(root.uri)
    why = _refusal(home, location)
    if why is not None:
        raise AccessError(
            f"{subject} is {uri!r}, {why}. It was not opened. If the dataset may read there, name "
            f"the location when opening it: base_store_params={{{location.uri!r}: {{...}}}}, with "
            f"the storage options for it. {AS_OPTION}"
        )
    return _open(root, location, _root_options(root, home, location))


def open_external(
    root: ObjectStore, uri: str, policy: AccessPolicy, *, subject: str
) -> tuple[ObjectStore, str]:
    """Open the location of an object outside of a dataset; also return its path there.

    Errors as for :func:`open_named`.

    Parameters
    ----------
    root, policy, subject
        As for :func:`open_named`.
    uri
        The object.
    """
    location = _trusted_spelling(uri, subject)
    if not policy.allows_external(location):
        raise AccessError(f"{subject} is {uri!r}, {_not_allowed(location, policy)}")
    folder, _, name = location.uri.rpartition("/")
    if not name or folder.endswith(("/", ":")):
        raise OptionError(f"{subject} is {uri!r}, which names no object")
    parent = Location.parse(folder or "/")
    given = policy.options_for(location)
    if given is None:
        given = _root_options(root, Location.parse(root.uri), location)
    return _open(root, parent, given), name


def allow_copies(policy: AccessPolicy) -> AccessPolicy:
    """The policy for values that the caller's own rows ask to copy: from anywhere.

    Locations that fsspec opens still have to be named by the caller, because rows may come from
    somebody else.
    """
    return AccessPolicy(policy.given, external=True)


def _not_allowed(location: Location, policy: AccessPolicy) -> str:
    if policy.external is True:
        return (
            "which fsspec would open. It was not fetched. If it is trusted, name the location: "
            f"base_store_params={{{location.uri!r}: {{...}}}}, with the storage options for it. "
            f"{AS_OPTION}"
        )
    listed = ", and below none of the allowed locations" if policy.external else ""
    return (
        f"outside of the dataset and its base paths{listed}. It was not fetched. If it is to be "
        f"trusted, open the dataset with allow_external_blobs=[{location.uri!r}], or a location "
        f"above it; allow_external_blobs=True allows all. {AS_OPTION}"
    )


def _trusted_spelling(uri: str, subject: str) -> Location:
    location = Location.parse(uri, f"{subject}: ")
    controls = _CONTROLS.search(uri) is not None
    if location.user or location.is_chained or location.climbs or controls:
        has = "control characters" if controls else "'..'" if location.climbs else "'::'"
        has = "a user or password" if location.user else has
        raise AccessError(
            f"{subject} is {uri!r}, which contains {has}. It was not opened: give the location "
            "itself, and credentials in base_store_params."
        )
    return location


def _refusal(home: Location, location: Location) -> str | None:
    """Why a location is not opened unless the caller names it; ``None`` if it is opened."""
    if home.is_fsspec or location.is_fsspec:
        if home.contains(location) or _branches(home, location):
            return None
        return "which fsspec would open"
    if home.scheme != location.scheme:
        return f"while the dataset is in {home.uri}"
    if (home.is_http or home.is_local) and location.origin not in ("", home.origin):
        return f"on another server than the dataset in {home.uri}"
    if location.is_whole_disk:
        return "which is the whole disk"
    return None


def _branches(home: Location, location: Location) -> bool:
    """Whether ``location`` is the root of the dataset that has a branch at ``home``."""
    return location.contains(home) and f"/{location.below(home)}".startswith(_TREE)


def _root_options(root: ObjectStore, home: Location, location: Location) -> Mapping[str, str]:
    """Options of the root if a location is in the same bucket or account, else none."""
    options = root.options
    if home.scheme != location.scheme:
        return {}
    if home.scheme == "az":
        given = {key.lower(): value for key, value in options.items()}
        own = next((given[key] for key in _ACCOUNTS if key in given), "")
        if any(read_switch(given, name) for name in _IN_FABRIC):
            own = f"{own}{FABRIC}"
        # A container without an account is in the account of the options or the environment.
        same = not location.origin or location.origin == (home.origin or own)
        return options if same else {}
    return options if home.origin == location.origin else {}


def _open(root: ObjectStore, location: Location, options: Mapping[str, str]) -> ObjectStore:
    if location.is_local:
        return LocalStore(location.path, options)
    if (beside := root.beside(location.uri)) is not None:
        return beside
    if options is root.options:
        return open_sibling(root, location.uri)
    return open_renewed(location.uri, options)
