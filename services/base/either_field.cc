#include "services/base/either_field.h"

#include <type_traits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct Either {
  const char* section;  // its path in RunConfig; "" for RunConfig itself
  const char* instead;
  const char* of;
};
constexpr Either kEithers[] = {
    {"", "total_updates", "total_env_steps"},
    {"checkpoint", "count", "every_updates"},
    {"checkpoint", "count", "every_seconds"},
    {"runtime", "bf16", "precision"},
};

// The section of `config`; null if it is not there.
template <typename M>
M* SectionOf(const Either& either, M* config) {
  if (*either.section == '\0') return config;
  const FieldDescriptor* field =
      config->GetDescriptor()->FindFieldByName(either.section);
  if (!config->GetReflection()->HasField(*config, field)) return nullptr;
  if constexpr (std::is_const_v<M>) {
    return &config->GetReflection()->GetMessage(*config, field);
  } else {
    return config->GetReflection()->MutableMessage(config, field);
  }
}

bool Has(const Message& message, const char* field) {
  return message.GetReflection()->HasField(
      message, message.GetDescriptor()->FindFieldByName(field));
}

std::string PathOf(const Either& either, const char* field) {
  return *either.section == '\0' ? field
                                 : absl::StrCat(either.section, ".", field);
}

}  // namespace

bool IsReplaced(const Message& message, const FieldDescriptor* field) {
  const auto* type = message.GetDescriptor();
  for (const Either& either : kEithers) {
    const auto* section = *either.section == '\0'
                              ? v1::RunConfig::descriptor()
                              : v1::RunConfig::descriptor()
                                    ->FindFieldByName(either.section)
                                    ->message_type();
    if (type == section && field->name() == either.of &&
        Has(message, either.instead)) {
      return true;
    }
  }
  return false;
}

void MakeWay(const std::vector<std::string>& overrides, v1::RunConfig* config) {
  const auto flagged = [&](const std::string& path) {
    for (const std::string& text : overrides) {
      if (absl::StartsWith(text, path + "=")) return true;
    }
    return false;
  };
  for (const Either& either : kEithers) {
    Message* section = SectionOf<Message>(either, config);
    if (section == nullptr) continue;
    const auto clear = [&](const char* field) {
      section->GetReflection()->ClearField(
          section, section->GetDescriptor()->FindFieldByName(field));
    };
    if (flagged(PathOf(either, either.instead))) clear(either.of);
    if (flagged(PathOf(either, either.of))) clear(either.instead);
  }
}

std::vector<ConfigProblem> FindBothSet(const v1::RunConfig& config) {
  std::vector<ConfigProblem> problems;
  for (const Either& either : kEithers) {
    const Message* section = SectionOf<const Message>(either, &config);
    if (section == nullptr || !Has(*section, either.instead) ||
        !Has(*section, either.of)) {
      continue;
    }
    problems.push_back(
        {PathOf(either, either.instead),
         absl::StrCat("is set, and so is ", PathOf(either, either.of),
                      ", instead of which it is used; set one of them")});
  }
  return problems;
}

}  // namespace flotilla
