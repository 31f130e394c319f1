#ifndef FLOTILLA_SERVICES_BASE_JSON_H_
#define FLOTILLA_SERVICES_BASE_JSON_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"

// The little JSON that our own files need; services speak Protobuf.

namespace flotilla {

// `text` with its quotes and escapes. Bytes past ASCII are kept: UTF-8 stays
// so.
std::string JsonString(const std::string& text);

// The shortest decimal that reads back to the same double; null if not finite.
std::string JsonNumber(double value);

// One object, a member a line. A value that is a JSON number by itself is
// written without quotes.
std::string FormatFlatJson(const std::map<std::string, std::string>& members);

// Reads what FormatFlatJson wrote: numbers come back digit by digit.
// Errors: kInvalidArgument for anything but one object of strings and numbers.
absl::StatusOr<std::map<std::string, std::string>> ParseFlatJson(
    const std::string& json);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_JSON_H_
