#include "services/base/config.h"

#include <errno.h>
#include <google/protobuf/reflection.h>
#include <google/protobuf/text_format.h>
#include <string.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/algorithms/algorithm_traits.h"
#include "services/base/config_rules.h"
#include "services/base/config_text.h"
#include "services/base/either_field.h"
#include "services/base/sha256.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(
        absl::StrCat("there is no configuration file ", path));
  }
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is a folder; expected a configuration file"));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    return absl::PermissionDeniedError(absl::StrCat(
        "cannot read the configuration ", path, ": ", strerrordesc_np(errno)));
  }
  return text.str();
}

// What fields were called before, by their new names. Where both are set, and say
// different things, they stay for FindBothSet to say so.
void TakeOldNames(v1::RunConfig* config) {
  if (!config->runtime().has_bf16()) return;
  v1::RuntimeConfig* runtime = config->mutable_runtime();
  if (runtime->bf16()) {
    if (runtime->has_precision() && runtime->precision() != v1::BF16) return;
    runtime->set_precision(v1::BF16);
  }
  runtime->clear_bf16();
}

absl::Status LoadText(const std::string& path,
                      const std::vector<std::string>& overrides,
                      v1::RunConfig* config,
                      TextFormat::ParseInfoTree* locations) {
  ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  RETURN_IF_ERROR(ParseConfigText(text, path, config, locations));
  MakeWay(overrides, config);
  for (const std::string& override_text : overrides) {
    RETURN_IF_ERROR(ApplyOverride(override_text, config));
  }
  TakeOldNames(config);
  return absl::OkStatus();
}

absl::Status AsStatus(const std::vector<std::string>& lines) {
  if (lines.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

// Where a person changes `path`: the last flag that set it, else the file.
std::string WhereIs(const std::string& path, const std::string& file,
                    const std::vector<std::string>& overrides,
                    const TextFormat::ParseInfoTree& locations) {
  std::string where;
  for (const std::string& text : overrides) {
    if (absl::StartsWith(text, path + "=")) where = "--set " + text;
  }
  if (!where.empty()) return where;
  const std::string location = LocationOf(path, locations);
  return location.empty() ? file : absl::StrCat(file, ":", location);
}

// Widths of layers where the encoder is certain; a list has no default that the
// schema could declare.
void ResolveWidths(v1::RunConfig* config) {
  v1::ModelConfig* model = config->mutable_model();
  const v1::EnvConfig& env = config->env();
  const bool automatic = model->encoder() == v1::ENCODER_AUTO;
  const bool nature_cnn = model->encoder() == v1::NATURE_CNN ||
                          (automatic && EnvOptionsPart(env) == "atari");
  if (nature_cnn && model->conv_channels_size() == 0) {
    for (int width : {32, 64, 64}) model->add_conv_channels(width);
  }
  if (model->hidden_size() > 0) return;
  if (nature_cnn) {
    model->add_hidden(512);
  } else if (model->encoder() == v1::MLP ||
             (automatic && env.server().empty() &&
              (env.id() == "CartPole-v1" || env.id() == "Pendulum-v1"))) {
    model->add_hidden(64);
    model->add_hidden(64);
  }
}

// What is read (see TakeOldNames) and never written.
bool IsOldName(const FieldDescriptor* field) {
  return field->containing_type() == v1::RuntimeConfig::descriptor() &&
         field->name() == "bf16";
}

// Whether a section that is not there belongs in the resolved configuration:
// not another algorithm, not options that the environment does not read, and not
// what is asked for by being there.
bool Belongs(const FieldDescriptor* field, const v1::EnvConfig& env) {
  if (field->real_containing_oneof() != nullptr) return false;
  if (field->message_type() == v1::SelfPlayConfig::descriptor()) return false;
  return field->containing_type() != v1::EnvOptions::descriptor() ||
         field->name() == EnvOptionsPart(env);
}

void WriteDefaults(const v1::EnvConfig& env, Message* message) {
  const Reflection* reflection = message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->field(i);
    if (field->is_repeated()) continue;
    const bool present = reflection->HasField(*message, field);
    if (field->message_type() != nullptr) {
      if (present || Belongs(field, env)) {
        WriteDefaults(env, reflection->MutableMessage(message, field));
      }
      continue;
    }
    // Without a declared default, unset has a meaning of its own.
    if (present || !field->has_default_value()) continue;
    if (IsReplaced(*message, field) || IsOldName(field)) continue;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        reflection->SetInt32(message, field, field->default_value_int32());
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        reflection->SetInt64(message, field, field->default_value_int64());
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        reflection->SetUInt64(message, field, field->default_value_uint64());
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflection->SetDouble(message, field, field->default_value_double());
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection->SetBool(message, field, field->default_value_bool());
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        reflection->SetEnum(message, field, field->default_value_enum());
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        reflection->SetString(message, field, field->default_value_string());
        break;
      default:
        break;  // config.proto uses no other type; its test would fail
    }
  }
}

}  // namespace

absl::StatusOr<v1::RunConfig> LoadRunConfig(
    const std::string& path, const std::vector<std::string>& overrides) {
  v1::RunConfig config;
  TextFormat::ParseInfoTree locations;
  RETURN_IF_ERROR(LoadText(path, overrides, &config, &locations));
  return config;
}

absl::StatusOr<v1::RunConfig> LoadValidRunConfig(
    const std::string& path, const std::vector<std::string>& overrides) {
  v1::RunConfig config;
  TextFormat::ParseInfoTree locations;
  RETURN_IF_ERROR(LoadText(path, overrides, &config, &locations));
  std::vector<std::string> lines;
  for (const ConfigProblem& problem : FindProblems(config)) {
    lines.push_back(
        absl::StrCat(WhereIs(problem.path, path, overrides, locations), ": ",
                     problem.path, " ", problem.message));
  }
  RETURN_IF_ERROR(AsStatus(lines));
  return config;
}

absl::Status Validate(const v1::RunConfig& config) {
  std::vector<std::string> lines;
  for (const ConfigProblem& problem : FindProblems(config)) {
    lines.push_back(absl::StrCat(problem.path, " ", problem.message));
  }
  return AsStatus(lines);
}

v1::RunConfig Resolved(const v1::RunConfig& config) {
  v1::RunConfig resolved = config;
  WriteDefaults(config.env(), &resolved);
  ResolveWidths(&resolved);
  return resolved;
}

std::string FormatResolved(const v1::RunConfig& config) {
  TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  std::string text;
  printer.PrintToString(Resolved(config), &text);
  return text;
}

Collection CollectionOf(const v1::RunConfig& config) {
  return config.rollout().overlap_one_update()
             ? Collection::kOneAhead
             : TraitsOf(config).CollectionOf(config);
}

std::string AlgorithmName(const v1::RunConfig& config) {
  const auto* field = config.GetReflection()->GetOneofFieldDescriptor(
      config, v1::RunConfig::descriptor()->FindOneofByName("algorithm"));
  return field == nullptr ? "none" : field->name();
}

std::string OwnNetworkField(const v1::ModelConfig& model) {
  if (!model.torchscript().empty()) return "model.torchscript";
  return model.plugin().empty() ? "" : "model.plugin";
}

double Discount(const v1::RunConfig& config) {
  return TraitsOf(config).Discount(config);
}

std::string ConfigDigest(const v1::RunConfig& config) {
  return Sha256Hex(FormatResolved(config));
}

}  // namespace flotilla
