"""Encodings that other packages add under the entry points ``glaive.encodings``.

Specification: "Extension" in ``docs/format/encodings.md``; message ``Extension``. pylance refuses
such files.
"""

from __future__ import annotations

from typing import Any, ClassVar

from glaive.config import added
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.registry import value_encoding
from glaive.errors import UnsupportedFeatureError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import Where


@value_encoding
class Extension(ValueEncoding):
    """An encoding of another package: a subclass sets ``name`` and reads its own configuration.

    ``from_wire`` of a subclass gets the bytes that its :meth:`configuration` returned.
    """

    wire_name: ClassVar[str] = "extension"

    name: ClassVar[str]
    """Name of the entry point."""

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> ValueEncoding:
        """Find the encoding by its name, and have it read its configuration.

        Raises
        ------
        UnsupportedFeatureError
            The package with the encoding is missing.
        """
        known = added("encodings").get(message.name)
        if known is None:
            raise UnsupportedFeatureError(
                f"encoding {message.name!r:.80} (in {where}) belongs to another package: install "
                "the package that has it as an entry point of glaive.encodings"
            )
        encoding: ValueEncoding = known.from_wire(message.configuration, where)
        return encoding

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write the name and the configuration."""
        return pb.CompressiveEncoding(
            extension=pb.Extension(name=self.name, configuration=self.configuration())
        )

    def configuration(self) -> bytes:
        """Return the bytes that ``from_wire`` needs; empty by default."""
        return b""
