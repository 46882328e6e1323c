"""Keys of S3 that options give: the session token of the environment belongs to other ones.

The client would send it along with any keys, also to a server that only these are meant for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["keys_without_token"]

_TOKENS: Final = ("AWS_SESSION_TOKEN", "AWS_TOKEN")


def keys_without_token(config: Mapping[str, str]) -> Any | None:
    """A provider of the keys in options; ``None`` where the client itself takes the right ones."""
    key, secret = config.get("aws_access_key_id"), config.get("aws_secret_access_key")
    if not key or not secret or "aws_session_token" in config:
        return None
    own = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    # The id alone is no secret: whoever knows it could have the token sent to a server of theirs.
    if (key, secret) == own or not any(map(os.environ.get, _TOKENS)):
        return None
    keys = {"access_key_id": key, "secret_access_key": secret, "token": None, "expires_at": None}
    return lambda: keys
