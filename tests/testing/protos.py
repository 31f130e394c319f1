"""The protos as Python: flotilla.v1, compiled anew and all of it imported."""

import importlib
import pathlib
import sys
import tempfile

from grpc_tools import protoc


def load(source):
    """Of the checkout `source`."""
    with tempfile.TemporaryDirectory(prefix="flotilla-protos-") as out:
        includes = [f"-I{source / 'proto'}", f"-I{pathlib.Path(protoc.__file__).parent / '_proto'}"]
        files = sorted(source.glob("proto/flotilla/v1/*.proto"))
        code = protoc.main(["protoc", *includes, f"--python_out={out}", f"--grpc_python_out={out}", *map(str, files)])
        assert code == 0, "protoc failed"
        sys.path.insert(0, out)
        for file in files:  # while they are there
            importlib.import_module(f"flotilla.v1.{file.stem}_pb2_grpc")
