"""The 2.x container and the profiles of its versions."""

from __future__ import annotations
