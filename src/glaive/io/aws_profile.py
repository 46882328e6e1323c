"""Credentials from the profiles of the AWS command line, read by boto3 if it is installed.

The object store client supports keys in options and in the environment, web identities,
containers and instances. boto3 adds profiles, single sign-on and assumed roles.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from glaive.errors import StoreError
from glaive.io.failures import first_line_of

__all__ = ["profile_credentials"]

_IN_OPTIONS = ("aws_access_key_id", "aws_skip_signature", "aws_web_identity_token_file")
_IN_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)


def profile_credentials(config: Mapping[str, str]) -> Any | None:
    """A provider of the profile's credentials; ``None`` if there is no profile, or other ones.

    boto3 is loaded only if there is a profile and no other credentials are configured.

    Raises
    ------
    StoreError
        The profile is missing, incomplete, or names what gives no credentials.
    """
    if any(key in config for key in _IN_OPTIONS):
        return None
    if any(os.environ.get(key) for key in _IN_ENVIRONMENT):
        return None
    if not os.environ.get("AWS_PROFILE") and not _has_file():
        return None
    if find_spec("boto3") is None:
        return None
    import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        session = boto3.Session()
        is_known = session.get_credentials() is not None
    except Exception as error:  # any: a profile may name a program, whose answer is read there
        raise StoreError(
            f"no credentials from the AWS profile {os.environ.get('AWS_PROFILE', 'default')!r}: "
            f"{first_line_of(error, config)}. Correct AWS_PROFILE and the files of profiles, or "
            "give keys in storage_options."
        ) from None
    return Boto3CredentialProvider(session) if is_known else None


def _has_file() -> bool:
    paths = (
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        os.environ.get("AWS_CONFIG_FILE", "~/.aws/config"),
    )
    return any(os.path.isfile(os.path.expanduser(path)) for path in paths)
