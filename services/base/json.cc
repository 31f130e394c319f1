#include "services/base/json.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// One value of a field: element `i` of a list, or the field itself.
Json ValueToJson(const Message& message, const FieldDescriptor* field, int i) {
  const Reflection* r = message.GetReflection();
  const bool many = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return many ? r->GetRepeatedInt32(message, field, i)
                  : r->GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return many ? r->GetRepeatedInt64(message, field, i)
                  : r->GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return many ? r->GetRepeatedUInt64(message, field, i)
                  : r->GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return many ? r->GetRepeatedDouble(message, field, i)
                  : r->GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return many ? r->GetRepeatedBool(message, field, i)
                  : r->GetBool(message, field);
    case FieldDescriptor::CPPTYPE_STRING:
      return many ? r->GetRepeatedString(message, field, i)
                  : r->GetString(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return absl::AsciiStrToLower((many ? r->GetRepeatedEnum(message, field, i)
                                         : r->GetEnum(message, field))
                                       ->name());
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(many ? r->GetRepeatedMessage(message, field, i)
                                : r->GetMessage(message, field));
    default:
      LOG(FATAL) << "no JSON for the type of " << field->full_name();
  }
}

absl::Status Mismatch(const std::string& expected, const Json& json) {
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", expected, ", got ",
                   json.is_structured() ? std::string(json.type_name())
                                        : FormatJson(json).substr(0, 60)));
}

// Sets a field, or adds to it if it is a list.
template <typename T>
void Put(Message* message, const FieldDescriptor* field, T value,
         void (Reflection::*set)(Message*, const FieldDescriptor*, T) const,
         void (Reflection::*add)(Message*, const FieldDescriptor*, T) const) {
  (message->GetReflection()->*(field->is_repeated() ? add : set))(
      message, field, std::move(value));
}

absl::StatusOr<int64_t> Integer(const Json& json, int64_t low, int64_t high) {
  const bool fits = json.is_number_unsigned()
                        ? json.get<uint64_t>() <= static_cast<uint64_t>(high)
                        : json.is_number_integer() &&
                              json.get<int64_t>() >= low &&
                              json.get<int64_t>() <= high;
  if (!fits) {
    return Mismatch(absl::StrCat("an integer from ", low, " to ", high), json);
  }
  return json.get<int64_t>();
}

absl::Status PutValue(const Json& json, Message* message,
                      const FieldDescriptor* field) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      ASSIGN_OR_RETURN(const int64_t value,
                       Integer(json, std::numeric_limits<int32_t>::min(),
                               std::numeric_limits<int32_t>::max()));
      Put(message, field, static_cast<int32_t>(value), &Reflection::SetInt32,
          &Reflection::AddInt32);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      ASSIGN_OR_RETURN(const int64_t value,
                       Integer(json, std::numeric_limits<int64_t>::min(),
                               std::numeric_limits<int64_t>::max()));
      Put(message, field, value, &Reflection::SetInt64, &Reflection::AddInt64);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT64:
      if (!json.is_number_unsigned()) {
        return Mismatch("an integer that is not negative", json);
      }
      Put(message, field, json.get<uint64_t>(), &Reflection::SetUInt64,
          &Reflection::AddUInt64);
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_DOUBLE:
      if (!json.is_number()) return Mismatch("a number", json);
      Put(message, field, json.get<double>(), &Reflection::SetDouble,
          &Reflection::AddDouble);
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_BOOL:
      if (!json.is_boolean()) return Mismatch("true or false", json);
      Put(message, field, json.get<bool>(), &Reflection::SetBool,
          &Reflection::AddBool);
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_STRING:
      if (!json.is_string()) return Mismatch("a string", json);
      Put(message, field, json.get<std::string>(), &Reflection::SetString,
          &Reflection::AddString);
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumValueDescriptor* value =
          json.is_string() ? field->enum_type()->FindValueByName(
                                 absl::AsciiStrToUpper(json.get<std::string>()))
                           : nullptr;
      if (value == nullptr) {
        return Mismatch(absl::StrCat("a ", field->enum_type()->name()), json);
      }
      Put(message, field, value, &Reflection::SetEnum, &Reflection::AddEnum);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      const Reflection* r = message->GetReflection();
      return JsonToMessage(json, field->is_repeated()
                                     ? r->AddMessage(message, field)
                                     : r->MutableMessage(message, field));
    }
    default:
      LOG(FATAL) << "no JSON for the type of " << field->full_name();
  }
}

absl::Status PutMember(const Json& json, Message* message,
                       const FieldDescriptor* field) {
  if (!field->is_repeated()) return PutValue(json, message, field);
  if (!json.is_array()) return Mismatch("a list", json);
  for (const Json& element : json) {
    RETURN_IF_ERROR(PutValue(element, message, field));
  }
  return absl::OkStatus();
}

// `text` as a number, if all of it is one in JSON's own grammar.
Json NumberOr(const std::string& text, Json otherwise) {
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool bare = !text.empty() && !absl::ascii_isspace(text.front()) &&
                    !absl::ascii_isspace(text.back());
  return bare && value.is_number() ? value : otherwise;
}

}  // namespace

std::string FormatJson(const Json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false,
                    Json::error_handler_t::replace);
}

absl::StatusOr<Json> ParseJson(const std::string& text) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("not JSON: ", e.what()));
  }
}

Json MessageToJson(const Message& message) {
  Json json = Json::object();
  const Reflection* r = message.GetReflection();
  const google::protobuf::Descriptor* type = message.GetDescriptor();
  for (int f = 0; f < type->field_count(); ++f) {
    const FieldDescriptor* field = type->field(f);
    if (field->is_repeated()) {
      Json list = Json::array();
      for (int i = 0; i < r->FieldSize(message, field); ++i) {
        list.push_back(ValueToJson(message, field, i));
      }
      json[field->name()] = std::move(list);
    } else if (!field->has_presence() || r->HasField(message, field)) {
      json[field->name()] = ValueToJson(message, field, 0);
    }
  }
  return json;
}

absl::Status JsonToMessage(const Json& json, Message* message) {
  if (!json.is_object()) return Mismatch("an object", json);
  for (const auto& [name, value] : json.items()) {
    const FieldDescriptor* field =
        message->GetDescriptor()->FindFieldByName(name);
    if (field == nullptr || value.is_null()) continue;
    const absl::Status put = PutMember(value, message, field);
    if (!put.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", name, "\": ", put.message()));
    }
  }
  return absl::OkStatus();
}

std::string FormatFlatJson(const std::map<std::string, std::string>& members) {
  Json json = Json::object();
  for (const auto& [name, value] : members) {
    json[name] = NumberOr(value, value);
  }
  return FormatJson(json, /*indent=*/2) + "\n";
}

absl::StatusOr<std::map<std::string, std::string>> ParseFlatJson(
    const std::string& json) {
  const absl::Status bad = absl::InvalidArgumentError(
      "not a JSON object of strings and numbers alone");
  const absl::StatusOr<Json> parsed = ParseJson(json);
  if (!parsed.ok() || !parsed->is_object()) return bad;
  std::map<std::string, std::string> members;
  for (const auto& [name, value] : parsed->items()) {
    if (value.is_string()) {
      members[name] = value.get<std::string>();
    } else if (value.is_number()) {
      members[name] = FormatJson(value);
    } else {
      return bad;
    }
  }
  return members;
}

}  // namespace flotilla
