"""Generate ``glaive.format.pb`` from ``src/glaive/format/protos``.

Needs grpcio-tools 1.76.0 and mypy-protobuf 5.1.0, so that the output is the same everywhere:
the generated files are checked in, and generating them again must leave no difference.

The sources are shown to protoc under the path of the generated package: the modules then
import each other from where they lie, and no other package has descriptors of these names.
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
    """Run protoc; returns its exit code."""
    # protoc looks for the type stub plugin beside the interpreter that runs this.
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
