"""The configuration's reference, as Markdown: config.proto's comments, which are written there and nowhere else."""

import pathlib
import tempfile

import grpc_tools
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

FILE = "flotilla/v1/config.proto"
LABEL_REPEATED = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
TYPES = {"double": "number", "float": "number", "int32": "whole number", "int64": "whole number", "uint32": "whole number", "uint64": "whole number",
         "bool": "true or false", "string": "text"}  # fmt: skip


def _descriptor(protos):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "set"
        known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
        if protoc.main(["protoc", f"-I{protos}", f"-I{known}", "--include_source_info", f"--descriptor_set_out={out}", FILE]):
            raise SystemExit(f"site: {FILE} does not compile")
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[-1]


class Reference:
    def __init__(self, protos):
        self.file = _descriptor(protos)
        self.comments = {tuple(place.path): place for place in self.file.source_code_info.location}
        self.messages = {message.name: (i, message) for i, message in enumerate(self.file.message_type)}
        self.enums = {enum.name: (i, enum) for i, enum in enumerate(self.file.enum_type)}
        self.lines = []

    def comment(self, *path):
        place = self.comments.get(path)
        said = "" if place is None else f"{place.leading_comments} {place.trailing_comments}"
        return " ".join(said.split()).replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")

    def values(self, at, enum):
        """A list for a cell: what an enum's values are called and do."""
        lines = [f"<br>`{value.name}`" + (f" {said}" if (said := self.comment(5, at, 2, i)) else "") for i, value in enumerate(enum.value)]
        return "".join(lines)

    def section(self, title, name):
        """A message's fields as a table, and then the sections that are among them."""
        at, message = self.messages[name]
        self.lines += [f"## {title}" if title else "## The run", "", self.comment(4, at), "", "| field | type | default | |", "| --- | --- | --- | --- |"]
        inner = []
        for i, field in enumerate(message.field):
            kind = field.type_name.rpartition(".")[2]
            path = f"{title}.{field.name}" if title else field.name
            if kind in self.messages:
                many = field.label == LABEL_REPEATED
                inner.append((path + ("[i]" if many else ""), kind))
                anchor = "".join(c for c in inner[-1][0] if c.isalnum() or c == "_")
                what = f"[{'sections' if many else 'section'}](#{anchor})"
            elif kind in self.enums:
                what = "one of these"
            elif kind:  # a map
                what = "names and values"
            else:
                what = TYPES[descriptor_pb2.FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()]
                what += ", any number of them" if field.label == LABEL_REPEATED else ""
            said = self.comment(4, at, 2, i) or (self.comment(4, self.messages[kind][0]) if kind in self.messages else "")
            if kind in self.enums:
                said += self.values(*self.enums[kind])
            default = f"`{field.default_value}`" if field.HasField("default_value") else ""
            self.lines.append(f"| `{field.name}` | {what} | {default} | {said} |")
        self.lines.append("")
        for path, kind in inner:
            self.section(path, kind)

    def page(self):
        self.lines = ["# Configuration", "", "Every field of a run's configuration: `--set path=value` sets one, `flotilla explain PATH` tells", "of one in a terminal, with what comes with Flotilla sets it to.", ""]
        self.section("", "RunConfig")
        return "\n".join(self.lines)


def page(protos):
    return Reference(protos).page()
