"""Places and storage options that a catalogue on another machine gives: which are used.

They are the words of that server. Options that name files of this machine, or where its credentials
are to be sent, would hand these over; a place on this machine would be read or written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from glaive.io.location import Location
from glaive.io.storage_options import HTTP_OPTIONS, RETRY_OPTIONS, full_names
from glaive.namespace.this_machine import is_near

__all__ = ["refusal_of_location", "refusal_of_options"]

_ENDPOINTS: Final[Mapping[str, tuple[str, tuple[tuple[str, ...], ...]]]] = {
    "s3": (
        "aws_endpoint",
        (("aws_access_key_id", "aws_secret_access_key"), ("aws_skip_signature",)),
    ),
    "gs": (
        "google_base_url",
        (("google_bearer_token",), ("google_service_account_key",), ("google_skip_signature",)),
    ),
    "az": ("azure_endpoint", (("azure_storage_token",), ("azure_skip_signature",))),
}
"""By scheme, the option with the address of the store, and the sets of options of which one keeps
credentials of this machine away from it: others have less priority than those of the environment.
"""

_BEFORE: Final[Mapping[str, tuple[str, ...]]] = {
    "azure_storage_token": (
        "AZURE_FABRIC_CLUSTER_IDENTIFIER",
        "AZURE_FABRIC_SESSION_TOKEN",
        "AZURE_FABRIC_TOKEN_SERVICE_URL",
        "AZURE_FABRIC_WORKLOAD_HOST",
    ),
    "google_service_account_key": ("GOOGLE_BEARER_TOKEN",),
}
"""Variables of the environment that, together, have priority over an option all the same."""

_IN_HOSTS: Final = frozenset({"aws_region", "aws_default_region", "azure_storage_account_name"})
"""Options that become a part of the name of a host."""

_PART_OF_HOST: Final = re.compile(r"[A-Za-z0-9._-]*")
"""After any other character what follows may be another host: ``x@evil/``."""

_TIME: Final = re.compile(
    r"(?=[0-9])(?:[0-9]{1,2} ?(?:m|mins?|minutes?) ?)?(?:[0-9]{1,3} ?(?:s|secs?|seconds?) ?)?"
    r"(?:[0-9]{1,6} ?(?:ms|millis|msecs?))?"
)
_COUNT: Final = re.compile(r"[0-9]{1,2}")
_WAITING: Final[Mapping[str, re.Pattern[str]]] = {
    "client_max_retries": _COUNT,
    "client_retry_timeout": re.compile(r"[0-9]{1,3}"),
    "connect_timeout": _TIME,
    "download_retry_count": _COUNT,
    "read_timeout": _TIME,
    "timeout": _TIME,
}
"""Options that say how long a server may keep a caller waiting, and the values that are used."""

_CONDITIONS: Final = frozenset({"aws_conditional_put", "aws_copy_if_not_exists"})
"""Options that some releases of the client take the name of a table for, where it writes."""

_ENCRYPTION: Final = "aws_sse_customer_key_base64"
_OWN_ENCRYPTION: Final = "AWS_SSE_CUSTOMER_KEY_BASE64"

_PLAIN: Final = frozenset(
    {
        *HTTP_OPTIONS,
        *RETRY_OPTIONS,
        *(endpoint for endpoint, _ in _ENDPOINTS.values()),
        *(name for _, sets in _ENDPOINTS.values() for names in sets for name in names),
        *_IN_HOSTS,
        "aws_checksum_algorithm",
        "aws_conditional_put",
        "aws_copy_if_not_exists",
        "aws_disable_bulk_delete",
        "aws_disable_tagging",
        "aws_request_payer",
        "aws_s3_express",
        "aws_server_side_encryption",
        "aws_session_token",
        "aws_sse_bucket_key_enabled",
        _ENCRYPTION,
        "aws_sse_kms_key_id",
        "aws_unsigned_payload",
        "aws_virtual_hosted_style_request",
        "azure_client_id",
        "azure_client_secret",
        "azure_disable_tagging",
        "azure_storage_account_key",
        "azure_storage_sas_key",
        "azure_tenant_id",
        "azure_use_fabric_endpoint",
        "checksums",
        "expires_at_millis",
        "fsync",
        "refresh_offset_millis",
        "verify_checksums",
    }
)
"""Options that say no more than how a store is reached, and with which credentials."""


def refusal_of_location(location: str) -> str | None:
    """Why a place is not used; ``None`` if it is.

    Raises
    ------
    OptionError
        It is no place.
    """
    place = Location.parse(location)
    if place.is_local or place.scheme == "memory":
        return f"{location!r:.200}, a place on this machine"
    if place.is_http and is_near(place.authority):
        return f"{location!r:.200}, a server on this machine or its link"
    return f"{location!r:.200}, which fsspec would open" if place.is_fsspec else None


def refusal_of_options(options: Mapping[str, object], location: str) -> str | None:
    """Why storage options for a place are not used, without their values; ``None`` if they are.

    Each may be there by several names, of which a store takes one: all are looked at.
    """
    given: dict[str, list[str]] = {}
    for key in options:
        for name in full_names(key):
            given.setdefault(name, []).append(str(options[key]))
    servers_of_keys = [*map(_server_of, given.get("google_service_account_key", ()))]
    if "" in servers_of_keys:
        return "the storage option 'google_service_account_key', which is no JSON object"
    by_keys = [*filter(None, servers_of_keys)]
    if by_keys:
        given.setdefault("google_base_url", [])
    for endpoint, _ in _ENDPOINTS.values():
        servers = [*given.get(endpoint, ()), *(by_keys if endpoint == "google_base_url" else ())]
        if any(map(is_near, filter(None, servers))):
            return f"the storage option {endpoint!r} with a server on this machine or its link"
    return next(_refusals(given, *_ENDPOINTS.get(Location.parse(location).scheme, ("", ()))), None)


def _refusals(
    given: Mapping[str, Sequence[str]], endpoint: str, sets: Sequence[tuple[str, ...]]
) -> Iterator[str]:
    for name in sorted(given):
        if name not in _PLAIN:
            yield f"the storage option {name!r}, which makes use of this machine"
        if name in _CONDITIONS and any(text.strip().startswith("dynamo") for text in given[name]):
            yield f"the storage option {name!r} with a table of DynamoDB, where it would write"
        if name in _WAITING and not all(map(_WAITING[name].fullmatch, given[name])):
            yield f"the storage option {name!r} with so much that a call would wait without end"
        if name in _IN_HOSTS and not all(map(_PART_OF_HOST.fullmatch, given[name])):
            yield (
                f"the storage option {name!r} with characters that end the name of a host: "
                "credentials of this machine would be sent to another one"
            )
    if endpoint not in given:
        return
    if not any(_has(given, names) for names in sets):
        wanted = ", or ".join(" and ".join(names) for names in sets)
        yield (
            f"the storage option {endpoint!r} without {wanted}: credentials of this machine "
            "would be sent there"
        )
    if endpoint == "aws_endpoint" and _ENCRYPTION not in given and os.environ.get(_OWN_ENCRYPTION):
        yield (
            f"the storage option {endpoint!r}: the key of encryption in {_OWN_ENCRYPTION} would be "
            "sent there"
        )


def _server_of(key: str) -> str | None:
    """The address of a server in a key of Google, which is a JSON object; an empty text if it may
    have one that is not seen here.
    """
    import json

    try:
        found = json.loads(key)
    except (TypeError, ValueError, RecursionError):
        return ""  # a store may take it: its parser allows other depths and numbers
    if not isinstance(found, dict):
        return ""  # a store takes an array of the values, too
    return str(found["gcs_base_url"]) if "gcs_base_url" in found else None


def _has(given: Mapping[str, Sequence[str]], names: tuple[str, ...]) -> bool:
    """Whether all of these are given, by any name; a switch counts if it is on."""
    return all(
        name in given
        and not (name in _BEFORE and all(map(os.environ.get, _BEFORE[name])))
        and all(
            text and (not name.endswith("_skip_signature") or text.lower() in ("true", "1"))
            for text in given[name]
        )
        for name in names
    )
