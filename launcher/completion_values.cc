#include "launcher/completion_values.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/config_docs.h"
#include "launcher/config_finder.h"
#include "launcher/env_check.h"
#include "services/base/run_folder.h"

namespace flotilla {
namespace {

// People wait for it.
constexpr absl::Duration kEnvTimeout = absl::Seconds(3);

namespace fs = std::filesystem;

using google::protobuf::FieldDescriptor;

bool IsOneSection(const FieldDescriptor* field) {
  return field->message_type() != nullptr && !field->is_repeated();
}

Completion Configs() {
  Completion completion = {.words = {}, .paths = Completion::Paths::kFiles};
  for (const ShippedConfig& config :
       ShippedConfigs().value_or(std::vector<ShippedConfig>())) {
    completion.words.push_back({config.name, config.about});
  }
  return completion;
}

// Those where runs are by default, before all other folders.
Completion Runs(const std::string& typed) {
  Completion completion;
  std::error_code error;
  bool any = false;
  for (const auto& entry : fs::directory_iterator("runs", error)) {
    if (!RunFolder(entry.path()).HoldsRun()) continue;
    completion.words.push_back({entry.path()});
    any |= absl::StartsWith(completion.words.back().text, typed);
  }
  if (!any || absl::StrContains(typed, "/")) {
    completion.paths = Completion::Paths::kFolders;
  }
  return completion;
}

// The fields of the section that `typed` leads into, with what follows them:
// "." after a section and `after_field` after any other.
Completion Fields(const std::string& typed, const std::string& after_field) {
  Completion completion;
  const size_t dot = typed.rfind('.');
  const std::string section = dot == typed.npos ? "" : typed.substr(0, dot + 1);
  for (const std::string& path : ConfigPaths()) {
    if (!absl::StartsWith(path, section) ||
        path.find('.', section.size()) != path.npos) {
      continue;
    }
    const FieldDescriptor* field = *FindConfigField(path);
    const std::string about = CommentInShort(field);
    if (!IsOneSection(field) || after_field.empty()) {
      completion.words.push_back(
          {path + (field->is_map() ? "." : after_field), about});
    }
    if (IsOneSection(field)) completion.words.push_back({path + ".", about});
  }
  return completion;
}

// "ppo.epochs=", and behind it the field's values.
Completion Overrides(const std::string& typed) {
  const size_t equals = typed.find('=');
  if (equals == typed.npos) return Fields(typed, "=");
  Completion completion;
  const std::string path = typed.substr(0, equals);
  const auto field = FindConfigField(path);
  if (!field.ok()) return completion;
  for (const std::string& value : FixedValues(*field)) {
    completion.words.push_back({absl::StrCat(path, "=", value)});
  }
  return completion;
}

}  // namespace

Completion CompletionValues(const std::string& value_name,
                            const std::string& typed) {
  if (value_name == "CONFIG") return Configs();
  if (value_name == "SWEEP") {
    return {.words = {}, .paths = Completion::Paths::kFiles};
  }
  if (value_name == "RUN" || value_name == "RUN_OR_CHECKPOINT") {
    return Runs(typed);
  }
  if (value_name == "FIELD") return Fields(typed, "");
  if (value_name == "PATH=VALUE") return Overrides(typed);
  Completion completion;
  if (value_name == "ID") {
    const auto known = AskEnvServer("", v1::EnvOptions(), kEnvTimeout);
    if (!known.ok()) return completion;
    for (const std::string& id : known->env_id()) {
      completion.words.push_back({id});
    }
  }
  return completion;
}

}  // namespace flotilla
