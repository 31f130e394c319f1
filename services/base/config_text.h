#ifndef FLOTILLA_SERVICES_BASE_CONFIG_TEXT_H_
#define FLOTILLA_SERVICES_BASE_CONFIG_TEXT_H_

#include <google/protobuf/text_format.h>

#include <string>

#include "absl/status/status.h"
#include "flotilla/v1/config.pb.h"

// Reading a configuration's text with errors that a person can act on, and
// overriding one field of it. The parts of config.h that parse.

namespace flotilla {

// Parses `text`, which came from `file`, into an empty `config`: a RunConfig, or
// another message that people write in text format. Where each field stands goes to
// `locations`.
// Errors: kInvalidArgument, "file:line:column: path: what is wrong; remedy".
absl::Status ParseConfigText(
    const std::string& text, const std::string& file,
    google::protobuf::Message* config,
    google::protobuf::TextFormat::ParseInfoTree* locations);

// "line:column" of the field at the dotted `path`, or of the nearest section
// around it that the text has; "" if it has neither.
std::string LocationOf(
    const std::string& path,
    const google::protobuf::TextFormat::ParseInfoTree& locations);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_CONFIG_TEXT_H_
