#ifndef FLOTILLA_LAUNCHER_CONFIG_DOCS_H_
#define FLOTILLA_LAUNCHER_CONFIG_DOCS_H_

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "launcher/config_finder.h"

// config.proto as documentation: its comments are compiled in, for they are
// written there and nowhere else.

namespace flotilla {

// The comment beside a field or above it; where there is none, that of the
// section that it is. Lines as in the file, without an end.
std::string CommentOf(const google::protobuf::FieldDescriptor* field);

// The first sentence of that, on one line.
std::string CommentInShort(const google::protobuf::FieldDescriptor* field);

// Dotted paths of all fields of RunConfig, sections too, in the file's order:
// "seed", ..., "env", "env.id", ...
std::vector<std::string> ConfigPaths();

// The field at `path`; "env.options.kwargs.NAME" is the map. Errors:
// kInvalidArgument, with the nearest paths.
absl::StatusOr<const google::protobuf::FieldDescriptor*> FindConfigField(
    const std::string& path);

// Values that a field takes where they are a fixed set, as --set takes them:
// those of an enum, true and false. Else none.
std::vector<std::string> FixedValues(
    const google::protobuf::FieldDescriptor* field);

// What a configuration says at `path`, as text; "" if it says nothing there, and
// "set" for a section that it has.
std::string SettingOf(const v1::RunConfig& config, const std::string& path);

// What there is to know of the field at `path` ("": the whole configuration),
// in lines of at most `width`: type, default, comment, values, what each of
// `configs` sets it to; of a section, its fields in short. Errors:
// FindConfigField's.
absl::StatusOr<std::string> ExplainField(
    const std::string& path, const std::vector<ShippedConfig>& configs,
    size_t width);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_CONFIG_DOCS_H_
