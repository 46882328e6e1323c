"""Generate ``glaive.format.pb`` from ``src/glaive/format/protos``.

Needs grpcio-tools 1.76.0 and mypy-protobuf 5.1.0 for reproducible output. The generated files are
checked in; generating them again must reproduce them.

protoc gets the sources under the path of the generated package. So the modules import each other
from that package, and their descriptors have unique names.
"""

from __future__ import annotations

import os
import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "glaive" / "format" / "protos"
PACKAGE = "glaive/format/pb"


def main() -> int:
    """Run protoc and return its exit code."""
    # protoc finds the plugin for type stubs in the folder of this interpreter.
    tools = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([tools, os.environ.get("PATH", "")])
    well_known = resources.files("grpc_tools") / "_proto"
    names = sorted(f"{PACKAGE}/{path.name}" for path in SOURCES.glob("*.proto"))
    code: int = protoc.main(
        [
            "protoc",
            f"--proto_path={PACKAGE}={SOURCES}",
            f"--proto_path={well_known}",
            f"--python_out={ROOT / 'src'}",
            f"--mypy_out=quiet:{ROOT / 'src'}",
            *names,
        ]
    )
    return code


if __name__ == "__main__":
    raise SystemExit(main())
