#ifndef FLOTILLA_SERVICES_BASE_JSON_H_
#define FLOTILLA_SERVICES_BASE_JSON_H_

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"

// JSON, for the files of a run; services speak Protobuf. Nothing here throws.

namespace flotilla {

// Any JSON value; members keep their order. Include <nlohmann/json.hpp> to use
// one.
using Json = nlohmann::ordered_json;

// One line; with `indent` a member a line. Numbers read back to the same bits,
// one that is not finite is null, bytes that are not UTF-8 are replaced.
std::string FormatJson(const Json& value, int indent = -1);

// Errors: kInvalidArgument, saying where, if `text` is not one JSON value.
absl::StatusOr<Json> ParseJson(const std::string& text);

// A message as an object: names as in its .proto, numbers as numbers (64 bits
// too), enums in lower case. Fields that are not set are left out, but for lists
// and fields without presence, which are always there. No maps and no bytes.
Json MessageToJson(const google::protobuf::Message& message);

// Fills `message` from what MessageToJson made. Members that it has no field for
// are skipped, and null is no value.
// Errors: kInvalidArgument, naming the member, if one is of another type.
absl::Status JsonToMessage(const Json& json,
                           google::protobuf::Message* message);

// One object, a member a line. A value that is a JSON number by itself is
// written without quotes.
std::string FormatFlatJson(const std::map<std::string, std::string>& members);

// Reads what FormatFlatJson wrote: integers come back digit by digit, other
// numbers as the shortest decimal of the same bits.
// Errors: kInvalidArgument for anything but one object of strings and numbers.
absl::StatusOr<std::map<std::string, std::string>> ParseFlatJson(
    const std::string& json);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_JSON_H_
