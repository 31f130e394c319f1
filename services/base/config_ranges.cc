#include "services/base/config_ranges.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "flotilla/v1/range.pb.h"

namespace flotilla {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// What is wrong with a field that reads `text` and is `value`; "" if nothing is.
std::string RangeProblem(double value, const std::string& text,
                         const v1::Range& range) {
  const bool finite = std::isfinite(value);
  const bool good = finite && (!range.odd() || std::fmod(value, 2) != 0) &&
                    (!range.has_min() || value >= range.min()) &&
                    (!range.has_max() || value <= range.max()) &&
                    (!range.has_above() || value > range.above()) &&
                    (!range.has_below() || value < range.below());
  if (good) return "";
  const std::string wanted = DescribeRange(range);
  return absl::StrCat("is ", text, "; it must be ", finite ? "" : "finite",
                      !finite && !wanted.empty() ? " and " : "", wanted);
}

// A number of `message`, for a comparison and as it is written. `index` is -1
// for a field that is not repeated.
std::optional<std::pair<double, std::string>> Number(
    const Message& message, const FieldDescriptor* field, int index) {
  const Reflection* reflection = message.GetReflection();
  const auto both = [](auto value) {
    return std::pair(static_cast<double>(value), absl::StrCat(value));
  };
  const bool one = index < 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return both(one ? reflection->GetInt32(message, field)
                      : reflection->GetRepeatedInt32(message, field, index));
    case FieldDescriptor::CPPTYPE_INT64:
      return both(one ? reflection->GetInt64(message, field)
                      : reflection->GetRepeatedInt64(message, field, index));
    case FieldDescriptor::CPPTYPE_UINT64:
      return both(one ? reflection->GetUInt64(message, field)
                      : reflection->GetRepeatedUInt64(message, field, index));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return both(one ? reflection->GetDouble(message, field)
                      : reflection->GetRepeatedDouble(message, field, index));
    default:
      return std::nullopt;  // config.proto has no other numbers; see its test
  }
}

void CheckSection(const Message& message, const std::string& section,
                  std::vector<ConfigProblem>* problems) {
  const Reflection* reflection = message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const std::string path = section + field->name();
    const auto check = [&](int index) {
      const auto number = Number(message, field, index);
      if (!number) return;
      const std::string problem =
          RangeProblem(number->first, number->second,
                       field->options().GetExtension(v1::range));
      if (!problem.empty()) problems->push_back({path, problem});
    };
    if (field->is_repeated()) {
      const int size = reflection->FieldSize(message, field);
      for (int index = 0; index < size; ++index) {
        if (field->message_type() == nullptr) {
          check(index);
        } else {
          CheckSection(reflection->GetRepeatedMessage(message, field, index),
                       absl::StrCat(path, "[", index, "]."), problems);
        }
      }
    } else if (field->message_type() != nullptr) {
      CheckSection(reflection->GetMessage(message, field), path + ".",
                   problems);
    } else if (field->has_default_value() ||
               reflection->HasField(message, field)) {
      check(-1);
    }
  }
}

}  // namespace

std::string DescribeRange(const v1::Range& range) {
  std::vector<std::string> wants;
  if (range.odd()) wants.push_back("odd");
  if (range.has_min() && range.has_max()) {
    wants.push_back(absl::StrCat("from ", range.min(), " to ", range.max()));
  } else if (range.has_min()) {
    wants.push_back(absl::StrCat("at least ", range.min()));
  } else if (range.has_max()) {
    wants.push_back(absl::StrCat("at most ", range.max()));
  }
  if (range.has_above()) {
    wants.push_back(absl::StrCat("above ", range.above()));
  }
  if (range.has_below()) {
    wants.push_back(absl::StrCat("below ", range.below()));
  }
  return absl::StrJoin(wants, " and ");
}

void FindOutOfRange(const Message& config,
                    std::vector<ConfigProblem>* problems) {
  CheckSection(config, "", problems);
}

}  // namespace flotilla
