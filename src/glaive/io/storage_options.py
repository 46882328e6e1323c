"""``storage_options``: the keys of each kind of store.

Keys are Lance's keys, in upper or lower case. If a key is given in two spellings, the full name has
priority (``aws_region`` over ``region``). A store ignores the keys of other kinds of stores:
users often share one set of options between several kinds. A key that all kinds ignore is
logged with the closest known key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta
from typing import Any, Final, Literal

from glaive.dataclass import dataclass
from glaive.errors import GlaiveError, OptionError
from glaive.io.location import CONTROLS

StoreKind = Literal["s3", "gs", "az", "http", "memory"]

MAX_RETRIES = 3
"""Default number of times that a request is repeated (``client_max_retries``)."""

RETRY_SECONDS = 180
"""Seconds after the first attempt until the last retry may begin (``client_retry_timeout``)."""

DOWNLOAD_RETRIES = 3
"""Times that a read is repeated if its response breaks off (``download_retry_count``)."""

HTTP_OPTIONS = frozenset(
    {
        "allow_http",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "randomize_addresses",
        "read_timeout",
        "timeout",
        "user_agent",
    }
)
"""Keys of connections that are safe: they leave locations and checks as they are."""

_CLIENT = HTTP_OPTIONS | {
    "allow_invalid_certificates",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "root_certificate",
}
RETRY_OPTIONS = frozenset({"client_max_retries", "client_retry_timeout", "download_retry_count"})
PERMISSIONS: Final = ("allow_external_blobs", "base_store_params")
"""Keys that allow a dataset to read elsewhere: ``glaive.io.access`` uses them, stores do not."""

_ELSEWHERE = frozenset(
    {
        *PERMISSIONS,
        "checksums",
        "delete_through_links",
        "dynamodb_endpoint",
        "expires_at_millis",
        "fsync",
        "manifest_store",
        "refresh_offset_millis",
        "verify_checksums",
    }
)
"""Keys that other parts of this library read."""


_ADDRESSES: Final = frozenset({"aws_endpoint", "azure_endpoint", "google_base_url"})
_ADDRESS: Final = re.compile(
    r"https?://(?:[^\s/?#@]*@)?(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?(?:/\S*)?"
)
_MAX_PORT: Final = 65535
_REGIONS: Final = frozenset({"aws_region", "aws_default_region"})
_REGION: Final = re.compile(r"[A-Za-z0-9._-]*")
"""Pattern of regions: the client panics at all other values."""


def _with_prefix(prefix: str, names: str) -> dict[str, str]:
    """Return the full name of each key, by its full and by its short name."""
    pairs = {name: prefix + name for name in names.split()}
    return pairs | {full: full for full in pairs.values()}


_S3 = _with_prefix(
    "aws_",
    "access_key_id checksum_algorithm conditional_put container_authorization_token_file "
    "container_credentials_full_uri container_credentials_relative_uri copy_if_not_exists "
    "default_region disable_bulk_delete disable_tagging endpoint endpoint_url_sts "
    "imdsv1_fallback metadata_endpoint region request_payer role_arn role_session_name "
    "s3_express secret_access_key server_side_encryption session_token skip_signature "
    "sse_bucket_key_enabled sse_customer_key_base64 sse_kms_key_id unsigned_payload "
    "virtual_hosted_style_request web_identity_token_file",
) | {
    "aws_allow_http": "allow_http",
    "aws_endpoint_url": "aws_endpoint",
    "aws_endpoint_url_s3": "aws_endpoint",
    "aws_token": "aws_session_token",
    "endpoint_url": "aws_endpoint",
    "token": "aws_session_token",
}
_GS = _with_prefix(
    "google_",
    "application_credentials base_url bearer_token service_account service_account_key "
    "skip_signature",
) | {
    "google_allow_http": "allow_http",
    "google_service_account_path": "google_service_account",
    "google_storage_token": "google_bearer_token",
    "service_account_path": "google_service_account",
}
_AZ = (
    _with_prefix(
        "azure_",
        "authority_host client_id client_secret credential_type disable_tagging endpoint "
        "fabric_cluster_identifier fabric_session_token fabric_token_service_url "
        "fabric_workload_host federated_token_file msi_endpoint msi_resource_id object_id "
        "skip_signature tenant_id use_azure_cli use_fabric_endpoint",
    )
    | _with_prefix("azure_storage_", "account_key account_name sas_key token use_emulator")
    | {
        "access_key": "azure_storage_account_key",
        "authority_id": "azure_tenant_id",
        "azure_allow_http": "allow_http",
        "azure_authority_id": "azure_tenant_id",
        "azure_identity_endpoint": "azure_msi_endpoint",
        "azure_storage_access_key": "azure_storage_account_key",
        "azure_storage_authority_host": "azure_authority_host",
        "azure_storage_authority_id": "azure_tenant_id",
        "azure_storage_client_id": "azure_client_id",
        "azure_storage_client_secret": "azure_client_secret",
        "azure_storage_endpoint": "azure_endpoint",
        "azure_storage_master_key": "azure_storage_account_key",
        "azure_storage_sas_token": "azure_storage_sas_key",
        "azure_storage_tenant_id": "azure_tenant_id",
        "bearer_token": "azure_storage_token",
        "identity_endpoint": "azure_msi_endpoint",
        "master_key": "azure_storage_account_key",
        "sas_token": "azure_storage_sas_key",
    }
)
_KEYS: Mapping[StoreKind, Mapping[str, str]] = {"s3": _S3, "gs": _GS, "az": _AZ}

_MULTILINE: Final = frozenset(
    {*PERMISSIONS, "google_service_account_key", "proxy_ca_certificate", "root_certificate"}
)
"""Options whose values are JSON or certificates, and may have several lines."""

_ENVIRONMENT_PREFIXES: Final = ("aws_", "azure_", "google_")
"""Prefixes of the environment variables that the client reads."""

_MAX_DIGITS: Final = 9
"""Maximum digits of a number of attempts or seconds."""

_MAX_LOGGED_KEYS: Final = 10
_MAX_KEY_CHARACTERS: Final = 100
"""Maximum ignored keys to log, and characters of such a key to compare with others."""

NAMES: frozenset[str] = frozenset().union(_S3, _GS, _AZ, _CLIENT, RETRY_OPTIONS, _ELSEWHERE)
"""All keys that have an effect, in lower case."""


def full_names(key: str) -> frozenset[str]:
    """Return the full names of a key. A short key has a full name in each kind of store with it.

    Empty for a key that all kinds of stores ignore.
    """
    name = key.lower()
    found = {names[name] for names in _KEYS.values() if name in names}
    return frozenset(found) if found or name not in NAMES else frozenset({name})


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Storage options grouped by their purpose.

    Parameters
    ----------
    config
        Settings of the kind of store, by full name.
    client
        Settings of the HTTP client.
    retry
        Number and time limit of retries of requests.
    download_retries
        Number of times that a read is repeated if its response breaks off.
    """

    config: Mapping[str, str] = field(repr=False)
    client: Mapping[str, str] = field(repr=False)
    retry: Mapping[str, Any]
    download_retries: int


def normalise_options(options: Mapping[str, object] | None) -> dict[str, str]:
    """Return options with their values as strings.

    Raises
    ------
    OptionError
        The options, a key or a value have an invalid type. Options are a mapping, keys are strings,
        and values are strings or numbers. Values of :data:`PERMISSIONS` may also be lists and
        mappings, which become JSON.
    """
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"storage_options: expected a mapping, found {type(options).__name__}")
    plain: dict[str, str] = {}
    for key, value in (options or {}).items():
        if not isinstance(key, str):
            raise OptionError(f"storage_options: expected a string as key, found {key!r}")
        if isinstance(value, bool):
            plain[key] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            plain[key] = str(value)
        elif key.lower() in PERMISSIONS and isinstance(value, list | tuple | Mapping):
            plain[key] = _json(key, value)
        else:
            kind = type(value).__name__  # the value may be a secret
            raise OptionError(f"storage_options: expected a string for {key!r}, found {kind}")
    return plain


def _json(key: str, value: object) -> str:
    """Return a list or a mapping as JSON. Messages omit it: it may have credentials."""
    import json

    try:
        return json.dumps(value, default=dict)
    except (TypeError, ValueError, RecursionError):
        raise OptionError(
            f"{key}: expected strings or options by path, found a {type(value).__name__} of others"
        ) from None


def read_options(kind: StoreKind, options: Mapping[str, str], *, uri: str) -> Connection:
    """Group the options for a kind of store. A key that all kinds ignore is logged.

    An invalid number is ignored, as in Lance.

    Raises
    ------
    OptionError
        A value that becomes part of a request, also from the environment, has a control character.
        Or it is an invalid address or region, so the client would panic.
    """
    known = _KEYS.get(kind, {})
    config: dict[str, str] = {}
    client: dict[str, str] = {}
    own: dict[str, str] = {}
    unknown: list[str] = []
    for key in sorted(options, key=lambda key: _rank(known, key)):
        name, value = key.lower(), options[key]
        full = known.get(name, name)
        _check_line(full, value, f"{name!r} in storage_options", uri)
        if full in _CLIENT:
            client.setdefault(full, value)
        elif name in known:
            config.setdefault(full, value)
        elif name in RETRY_OPTIONS:
            own.setdefault(name, value)
        elif name not in NAMES:
            unknown.append(key)
    _warn_of(unknown, uri)
    for variable, value in os.environ.items():  # the client itself reads variables of its kind
        option = known.get(variable.lower())
        if option not in config and variable.lower().startswith(_ENVIRONMENT_PREFIXES):
            _check_line(option or "", value, f"the variable {variable}")
    retry = {
        "max_retries": _integer(own.get("client_max_retries"), MAX_RETRIES),
        "retry_timeout": timedelta(
            seconds=_integer(own.get("client_retry_timeout"), RETRY_SECONDS)
        ),
    }
    downloads = _integer(own.get("download_retry_count"), DOWNLOAD_RETRIES)
    return Connection(config=config, client=client, retry=retry, download_retries=downloads)


def _check_line(name: str, value: str, what: str, uri: str | None = None) -> None:
    if name in NAMES and name not in _MULTILINE and CONTROLS.search(value):
        place = "" if uri is None else f" for {GlaiveError.without_secrets(uri)}"
        raise OptionError(
            f"{what}{place}: the value has a control character. Strip the line end, if it was "
            "read from a file"
        )
    if name in _ADDRESSES:
        check_address(value, what)
    if name in _REGIONS and not _REGION.fullmatch(value):
        raise OptionError(f"{what}: expected a region such as eu-west-1, of letters and digits")


def check_address(value: str, what: str) -> None:
    """Refuse an invalid address of a server. Messages omit it: it may have a password.

    Raises
    ------
    OptionError
        The scheme, host or port is missing or invalid.
    """
    address = _ADDRESS.fullmatch(value)
    if address is None or int(address[1] or 0) > _MAX_PORT:
        raise OptionError(
            f"{what}: expected an address such as http://127.0.0.1:9000 or https://host, with "
            "http:// or https:// before the host"
        )


def _rank(known: Mapping[str, str], key: str) -> tuple[int, str]:
    """Return the priority: full names, full names in upper case, then other spellings."""
    name = key.lower()
    if known.get(name, name) != name:
        return 2, key
    return (0 if key == name else 1), key


def _integer(text: str | None, default: int) -> int:
    digits = "" if text is None else text.strip()
    return int(digits) if digits.isdecimal() and len(digits) <= _MAX_DIGITS else default


def _warn_of(keys: list[str], uri: str) -> None:
    """Log a few ignored keys: a catalogue may give many keys of any length."""
    if not keys:
        return
    import logging

    public, logger = GlaiveError.without_secrets(uri), logging.getLogger(__name__)
    for key in keys[:_MAX_LOGGED_KEYS]:
        close = _close(key.lower()[:_MAX_KEY_CHARACTERS])
        logger.warning("storage_options for %s: %.100r has no effect%s", public, key, close)
    if len(keys) > _MAX_LOGGED_KEYS:
        more = len(keys) - _MAX_LOGGED_KEYS
        logger.warning("storage_options for %s: nor have %d other keys", public, more)


def _close(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, NAMES, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def read_switch(options: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Return the value of an option that is true or false.

    Raises
    ------
    OptionError
        The value is something else.
    """
    for key, value in options.items():
        if key.lower() == name:
            switch = _SWITCHES.get(value.lower())
            if switch is None:
                raise OptionError(f"storage_options: {name} is true or false, found {value!r}")
            return switch
    return default


_SWITCHES = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
