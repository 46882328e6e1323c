"""Places and storage options that a catalogue on another machine gives: which are used.

They are the words of that server. Options that name files of this machine, or where its credentials
are to be sent, would hand these over; a place on this machine would be read or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from glaive.io.location import Location
from glaive.io.storage_options import HTTP_OPTIONS, RETRY_OPTIONS, full_names

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

_PLAIN: Final = frozenset(
    {
        *HTTP_OPTIONS,
        *RETRY_OPTIONS,
        *(endpoint for endpoint, _ in _ENDPOINTS.values()),
        *(name for _, sets in _ENDPOINTS.values() for names in sets for name in names),
        "aws_checksum_algorithm",
        "aws_conditional_put",
        "aws_copy_if_not_exists",
        "aws_default_region",
        "aws_disable_bulk_delete",
        "aws_disable_tagging",
        "aws_region",
        "aws_request_payer",
        "aws_s3_express",
        "aws_server_side_encryption",
        "aws_session_token",
        "aws_sse_bucket_key_enabled",
        "aws_sse_customer_key_base64",
        "aws_sse_kms_key_id",
        "aws_unsigned_payload",
        "aws_virtual_hosted_style_request",
        "azure_client_id",
        "azure_client_secret",
        "azure_disable_tagging",
        "azure_storage_account_key",
        "azure_storage_account_name",
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
    return f"{location!r:.200}, which fsspec would open" if place.is_fsspec else None


def refusal_of_options(options: Mapping[str, object], location: str) -> str | None:
    """Why storage options for a place are not used, without their values; ``None`` if they are."""
    given = {name: str(options[key]) for key in options for name in full_names(key)}
    for name in sorted(given):
        if name not in _PLAIN:
            return f"the storage option {name!r}, which makes use of this machine"
    endpoint, sets = _ENDPOINTS.get(Location.parse(location).scheme, ("", ()))
    if endpoint in given and not any(_has(given, names) for names in sets):
        wanted = ", or ".join(" and ".join(names) for names in sets)
        return (
            f"the storage option {endpoint!r} without {wanted}: credentials of this machine "
            "would be sent there"
        )
    return None


def _has(given: Mapping[str, str], names: tuple[str, ...]) -> bool:
    """Whether all of these are given; a switch counts if it is on."""
    return all(
        given.get(name, "") != ""
        and (not name.endswith("_skip_signature") or given[name].lower() in ("true", "1"))
        for name in names
    )
