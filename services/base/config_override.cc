#include "services/base/config_override.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/reflection.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "services/base/config.h"
#include "services/base/nearest_name.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

absl::Status Invalid(const std::string& message) {
  return absl::InvalidArgumentError(message);
}

// Dotted paths of everything below `type` that can be set: fields, maps, and
// sections that are repeated, as a whole.
void CollectPaths(const Descriptor* type, const std::string& prefix,
                  std::vector<std::string>* paths) {
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    const std::string path = prefix + field->name();
    if (field->message_type() != nullptr && !field->is_repeated()) {
      CollectPaths(field->message_type(), path + ".", paths);
    } else {
      paths->push_back(path);
    }
  }
}

// What CleanRL and Stable-Baselines3 call a field, where it means the same here, and
// what its path ends in. launcher/README.md has the same table.
struct OtherName {
  const char* theirs;
  const char* ours;
};
constexpr OtherName kOtherNames[] = {
    {"autotune", "learn_temperature"},
    {"buffer_size", "replay_capacity"},
    {"clip_coef", "clip_ratio"},
    {"clip_range", "clip_ratio"},
    {"clip_range_vf", "value_clip"},
    {"end_e", "epsilon_end"},
    {"ent_coef", "entropy_cost"},
    {"exploration_final_eps", "epsilon_end"},
    {"exploration_initial_eps", "epsilon_start"},
    {"gamma", "discount"},
    {"gradient_steps", "updates_per_rollout"},
    {"lr", "optimizer.learning_rate"},
    {"n_envs", "env.num_envs"},
    {"n_epochs", "epochs"},
    {"n_steps", "n_step"},  // of DQN's returns
    {"n_steps", "rollout.length"},
    {"norm_adv", "normalize_advantages"},
    {"num_minibatches", "minibatches"},
    {"num_steps", "rollout.length"},
    {"policy_lr", "optimizer.learning_rate"},
    {"q_lr", "critic_learning_rate"},
    {"train_freq", "rollout.length"},
    {"train_frequency", "rollout.length"},
    {"update_epochs", "epochs"},
    {"vf_coef", "value_cost"},
};

bool IsAlgorithm(const std::string& section) {
  const FieldDescriptor* field =
      v1::RunConfig::descriptor()->FindFieldByName(section);
  return field != nullptr && field->containing_oneof() != nullptr;
}

// Everything that can be set, but for sections of other algorithms than
// `algorithm`; "": with those of all.
std::vector<std::string> PathsOf(const std::string& algorithm) {
  std::vector<std::string> all, own;
  CollectPaths(v1::RunConfig::descriptor(), "", &all);
  for (const std::string& path : all) {
    const std::string section = path.substr(0, path.find('.'));
    if (algorithm.empty() || section == algorithm || !IsAlgorithm(section)) {
      own.push_back(path);
    }
  }
  return own;
}

std::vector<std::string> EndingIn(const std::string& ending,
                                  const std::vector<std::string>& paths) {
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    if (path == ending || absl::EndsWith(path, "." + ending)) {
      found.push_back(path);
    }
  }
  return found;
}

// `; did you mean "ppo.epochs" or "impala.epochs"?` of one path or more.
std::string DidYouMeanOneOf(const std::vector<std::string>& paths) {
  return absl::StrCat("; did you mean \"", absl::StrJoin(paths, "\" or \""),
                      "\"?");
}

std::string LastName(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

// For a path that leads nowhere: "; did you mean "ppo.epochs"?".
std::string PathHint(const std::string& path, const v1::RunConfig& config) {
  const FieldDescriptor* chosen =
      config.GetReflection()->GetOneofFieldDescriptor(
          config, v1::RunConfig::descriptor()->oneof_decl(0));
  const std::vector<std::string> known =
      PathsOf(chosen == nullptr ? "none" : chosen->name());
  const std::vector<std::string> same = EndingIn(path, known);
  if (!same.empty()) return DidYouMeanOneOf({same[0]});
  std::string hint =
      OtherNameHint(path, chosen == nullptr ? "" : chosen->name());
  if (hint.empty()) hint = DidYouMean(path, known);
  return hint.empty() ? FieldHint(path) : hint;
}

// "1_000_000" without its underscores, which stand between digits; as it is
// where they do not.
std::string Ungrouped(const std::string& text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits.push_back(text[i]);
    } else if (i == 0 || !absl::ascii_isdigit(text[i - 1]) ||
               i + 1 == text.size() || !absl::ascii_isdigit(text[i + 1])) {
      return text;
    }
  }
  return digits;
}

// "500000", "500_000", "500k", "0.5M", "5e5".
absl::StatusOr<int64_t> ParseInteger(const std::string& text) {
  std::string number = Ungrouped(text);
  int64_t integer = 0;
  if (absl::SimpleAtoi(number, &integer)) return integer;
  double unit = 1;
  for (const auto& [letter, size] :
       {std::pair('k', 1e3), std::pair('M', 1e6), std::pair('G', 1e9)}) {
    if (number.empty() ||
        absl::ascii_tolower(number.back()) != absl::ascii_tolower(letter)) {
      continue;
    }
    number.pop_back();
    unit = size;
    break;
  }
  double real = 0;
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (!number.empty() && !absl::ascii_isspace(number.back()) &&
      absl::SimpleAtod(number, &real)) {
    real *= unit;
    if (real == std::floor(real) && std::abs(real) <= kExact) {
      return static_cast<int64_t>(real);
    }
  }
  return Invalid(absl::StrCat("expected an integer, got \"", text,
                              "\" (500000, 500_000, 500k and 5e5 are one)"));
}

absl::StatusOr<int64_t> ParseIntegerIn(const std::string& text, int64_t low,
                                       int64_t high) {
  ASSIGN_OR_RETURN(const int64_t value, ParseInteger(text));
  if (value < low || value > high) {
    return Invalid(absl::StrCat("expected an integer from ", low, " to ", high,
                                ", got \"", text, "\""));
  }
  return value;
}

absl::StatusOr<uint64_t> ParseUnsigned(const std::string& text) {
  uint64_t value = 0;
  if (absl::SimpleAtoi(Ungrouped(text), &value)) return value;
  ASSIGN_OR_RETURN(const int64_t parsed, ParseInteger(text));
  if (parsed < 0) {
    return Invalid(
        absl::StrCat("expected an integer of at least 0, got \"", text, "\""));
  }
  return static_cast<uint64_t>(parsed);
}

absl::StatusOr<double> ParseReal(const std::string& text) {
  double value = 0;
  if (absl::SimpleAtod(text, &value) && !std::isnan(value)) return value;
  return Invalid(absl::StrCat("expected a number, got \"", text, "\""));
}

absl::StatusOr<bool> ParseBool(const std::string& text) {
  bool value = false;  // true, t, yes, y, 1 and their opposites in any case
  if (absl::SimpleAtob(text, &value)) return value;
  return Invalid(absl::StrCat("expected true or false, got \"", text, "\""));
}

// Values are matched in any case, with or without the type's name in front:
// BACKEND_AUTO is also "auto".
absl::StatusOr<const EnumValueDescriptor*> ParseEnum(
    const std::string& text, const EnumDescriptor* type) {
  const std::string prefix =
      absl::StrCat(absl::AsciiStrToUpper(type->name()), "_");
  std::string wanted = absl::AsciiStrToUpper(text);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  std::vector<std::string> known;
  for (int i = 0; i < type->value_count(); ++i) {
    const EnumValueDescriptor* value = type->value(i);
    const std::string brief =
        std::string(absl::StripPrefix(value->name(), prefix));
    if (wanted == value->name() || wanted == brief) return value;
    known.push_back(brief);
  }
  return Invalid(absl::StrCat("expected one of ", absl::StrJoin(known, ", "),
                              ", got \"", text, "\"", DidYouMean(text, known)));
}

std::string Unquoted(const std::string& text) {
  const bool quoted = text.size() >= 2 && text.front() == text.back() &&
                      (text.front() == '"' || text.front() == '\'');
  return quoted ? text.substr(1, text.size() - 2) : text;
}

// Sets a field, or adds to it if it is a list.
template <typename T>
void Put(Message* message, const FieldDescriptor* field, T value,
         void (Reflection::*set)(Message*, const FieldDescriptor*, T) const,
         void (Reflection::*add)(Message*, const FieldDescriptor*, T) const) {
  const Reflection* reflection = message->GetReflection();
  (reflection->*(field->is_repeated() ? add : set))(message, field,
                                                    std::move(value));
}

absl::Status PutText(const std::string& text, Message* message,
                     const FieldDescriptor* field) {
  constexpr int64_t kLow32 = std::numeric_limits<int32_t>::min();
  constexpr int64_t kHigh32 = std::numeric_limits<int32_t>::max();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      ASSIGN_OR_RETURN(const int64_t value,
                       ParseIntegerIn(text, kLow32, kHigh32));
      Put(message, field, static_cast<int32_t>(value), &Reflection::SetInt32,
          &Reflection::AddInt32);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      ASSIGN_OR_RETURN(const int64_t value, ParseInteger(text));
      Put(message, field, value, &Reflection::SetInt64, &Reflection::AddInt64);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      ASSIGN_OR_RETURN(const uint64_t value, ParseUnsigned(text));
      Put(message, field, value, &Reflection::SetUInt64,
          &Reflection::AddUInt64);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      ASSIGN_OR_RETURN(const double value, ParseReal(text));
      Put(message, field, value, &Reflection::SetDouble,
          &Reflection::AddDouble);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      ASSIGN_OR_RETURN(const bool value, ParseBool(text));
      Put(message, field, value, &Reflection::SetBool, &Reflection::AddBool);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      ASSIGN_OR_RETURN(const EnumValueDescriptor* value,
                       ParseEnum(text, field->enum_type()));
      Put(message, field, value, &Reflection::SetEnum, &Reflection::AddEnum);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_STRING:
      Put(message, field, Unquoted(text), &Reflection::SetString,
          &Reflection::AddString);
      return absl::OkStatus();
    default:
      return absl::InternalError(
          absl::StrCat("no --set for the type of ", field->full_name()));
  }
}

// "[64,64]", "64" or "[]".
absl::Status PutList(const std::string& text, Message* message,
                     const FieldDescriptor* field) {
  absl::string_view inside = text;
  if (absl::ConsumePrefix(&inside, "[") && !absl::ConsumeSuffix(&inside, "]")) {
    return Invalid(
        absl::StrCat("expected a list such as [64,64], got \"", text, "\""));
  }
  message->GetReflection()->ClearField(message, field);
  for (absl::string_view item :
       absl::StrSplit(inside, ',', absl::SkipWhitespace())) {
    RETURN_IF_ERROR(
        PutText(std::string(absl::StripAsciiWhitespace(item)), message, field));
  }
  return absl::OkStatus();
}

// One entry of a map from strings to strings.
absl::Status PutEntry(const std::string& key, const std::string& value,
                      Message* message, const FieldDescriptor* field) {
  const Reflection* reflection = message->GetReflection();
  const FieldDescriptor* key_field = field->message_type()->map_key();
  const FieldDescriptor* value_field = field->message_type()->map_value();
  const int size = reflection->FieldSize(*message, field);
  Message* entry = nullptr;
  for (int i = 0; i < size && entry == nullptr; ++i) {
    Message* existing = reflection->MutableRepeatedMessage(message, field, i);
    if (existing->GetReflection()->GetString(*existing, key_field) == key) {
      entry = existing;
    }
  }
  if (entry == nullptr) entry = reflection->AddMessage(message, field);
  entry->GetReflection()->SetString(entry, key_field, key);
  entry->GetReflection()->SetString(entry, value_field, value);
  return absl::OkStatus();
}

// Fields of a section, for an error that asks for one of them.
std::string SomeFields(const Descriptor* type) {
  std::vector<std::string> names;
  for (int i = 0; i < type->field_count(); ++i) {
    names.push_back(type->field(i)->name());
  }
  return absl::StrJoin(names, ", ");
}

// The first thing that is wrong with a text, and nothing on stderr.
class FirstProblem : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string& message) override {
    if (text_.empty()) text_ = message;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// `encoder: resnet` as `encoder: RESNET`, for every enum of `type` in a text: in
// any case, as outside of sections. What is quoted stays.
absl::StatusOr<std::string> WithEnumNames(const Descriptor* type,
                                          absl::string_view text) {
  const auto in_word = [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-';
  };
  std::string out;
  const EnumDescriptor* expected = nullptr;  // of the value that comes next
  const FieldDescriptor* field = nullptr;    // the last word, if it is one
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char c = text[i];
    if (c == '"' || c == '\'') {
      for (++i; i < text.size() && text[i] != c; ++i) {
        if (text[i] == '\\') ++i;
      }
      i = std::min(text.size(), i + 1);
    } else if (in_word(c)) {
      while (i < text.size() && in_word(text[i])) ++i;
      std::string word(text.substr(begin, i - begin));
      if (expected != nullptr) {
        ASSIGN_OR_RETURN(const EnumValueDescriptor* value,
                         ParseEnum(word, expected));
        word = value->name();
      }
      out += word;
      field = expected == nullptr ? type->FindFieldByName(word) : nullptr;
      expected = nullptr;
      continue;
    } else {
      ++i;
      if (c == ':' && field != nullptr) expected = field->enum_type();
    }
    if (!absl::ascii_isspace(c)) {
      field = nullptr;
      if (c != ':') expected = nullptr;
    }
    out.append(text.data() + begin, i - begin);
  }
  return out;
}

// `{path: "rgb" encoder: RESNET}`: one of a repeated section, in place of the one
// that has the same path.
absl::Status PutSection(const std::string& path, const std::string& text,
                        Message* message, const FieldDescriptor* field) {
  const Reflection* reflection = message->GetReflection();
  absl::string_view inside = text;
  if (!absl::ConsumePrefix(&inside, "{") ||
      !absl::ConsumeSuffix(&inside, "}")) {
    return Invalid(absl::StrCat("expected ", path, "={NAME: VALUE ...} of ",
                                SomeFields(field->message_type()), ", got \"",
                                text, "\""));
  }
  std::unique_ptr<Message> section(reflection->GetMessageFactory()
                                       ->GetPrototype(field->message_type())
                                       ->New());
  FirstProblem problem;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&problem);
  ASSIGN_OR_RETURN(const std::string named,
                   WithEnumNames(field->message_type(), inside));
  if (!parser.ParseFromString(named, section.get())) {
    return Invalid(absl::StrCat(problem.text(), "; its fields are ",
                                SomeFields(field->message_type())));
  }
  const FieldDescriptor* key = field->message_type()->FindFieldByName("path");
  for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
    Message* other = reflection->MutableRepeatedMessage(message, field, i);
    const Reflection* own = section->GetReflection();
    if (key == nullptr ||
        own->GetString(*other, key) != own->GetString(*section, key)) {
      continue;
    }
    other->CopyFrom(*section);
    return absl::OkStatus();
  }
  reflection->AddMessage(message, field)->CopyFrom(*section);
  return absl::OkStatus();
}

// Refuses to make an algorithm that the configuration did not choose.
absl::Status CheckChosen(const Message& message, const FieldDescriptor* field) {
  const OneofDescriptor* oneof = field->real_containing_oneof();
  if (oneof == nullptr || message.GetReflection()->HasField(message, field)) {
    return absl::OkStatus();
  }
  const FieldDescriptor* chosen =
      message.GetReflection()->GetOneofFieldDescriptor(message, oneof);
  if (chosen == nullptr) {
    return Invalid(absl::StrCat("the configuration chooses no ", oneof->name(),
                                "; add \"", field->name(), " {}\" to it"));
  }
  return Invalid(absl::StrCat("the configuration's ", oneof->name(), " is ",
                              chosen->name(), ", not ", field->name(),
                              "; start from a configuration of ", field->name(),
                              " (`flotilla configs`)"));
}

absl::Status Apply(const std::string& path, const std::string& value,
                   v1::RunConfig* config) {
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  Message* message = config;
  for (size_t i = 0; i < names.size(); ++i) {
    const FieldDescriptor* field =
        message->GetDescriptor()->FindFieldByName(names[i]);
    if (field == nullptr) {
      return Invalid(absl::StrCat("there is no field \"", path, "\"",
                                  PathHint(path, *config)));
    }
    RETURN_IF_ERROR(CheckChosen(*message, field));
    const std::vector<std::string> rest(names.begin() + i + 1, names.end());
    if (field->is_map()) {
      if (rest.empty()) {
        return Invalid(absl::StrCat("name an entry: ", path, ".NAME=VALUE"));
      }
      return PutEntry(absl::StrJoin(rest, "."), value, message, field);
    }
    if (field->message_type() != nullptr && field->is_repeated()) {
      return rest.empty()
                 ? PutSection(path, value, message, field)
                 : Invalid(absl::StrCat(
                       "\"", names[i], "\" is a list; add to it with ",
                       absl::StrJoin(names.begin(), names.begin() + i + 1, "."),
                       "={", rest[0], ": ...}"));
    }
    if (field->message_type() != nullptr) {
      if (rest.empty()) {
        return Invalid(absl::StrCat("\"", path,
                                    "\" is a section; name a field in it: ",
                                    SomeFields(field->message_type())));
      }
      message = message->GetReflection()->MutableMessage(message, field);
      continue;
    }
    if (!rest.empty()) {
      return Invalid(absl::StrCat("\"", names[i], "\" has no fields in it"));
    }
    return field->is_repeated() ? PutList(value, message, field)
                                : PutText(value, message, field);
  }
  return absl::OkStatus();
}

}  // namespace

std::string OtherNameHint(const std::string& path,
                          const std::string& algorithm) {
  const std::string section = path.substr(0, path.find('.'));
  const std::string of = IsAlgorithm(section) ? section : algorithm;
  const std::vector<std::string> known = PathsOf(of);
  const std::string name = LastName(path);
  std::vector<std::string> meant;
  for (const OtherName& other : kOtherNames) {
    if (name != other.theirs) continue;
    const std::vector<std::string> found = EndingIn(other.ours, known);
    meant.insert(meant.end(), found.begin(), found.end());
  }
  if (!meant.empty()) return DidYouMeanOneOf(meant);
  // No field, but what others make of it follows from three.
  if ((name == "batch_size" || name == "minibatch_size") && !of.empty() &&
      EndingIn("batch_size", known).empty()) {
    const std::vector<std::string> parts = EndingIn("minibatches", known);
    if (!parts.empty()) {
      return absl::StrCat("; a minibatch has rollout.length * env.num_envs / ",
                          parts[0], " steps");
    }
  }
  return "";
}

std::string FieldHint(const std::string& path) {
  const std::vector<std::string> all = PathsOf("");
  const std::vector<std::string> same = EndingIn(path, all);
  if (!same.empty()) return DidYouMeanOneOf(same);
  std::string hint = OtherNameHint(path, "");
  if (hint.empty()) hint = DidYouMean(path, all);
  if (!hint.empty()) return hint;
  std::vector<std::string> names;
  for (const std::string& known : all) names.push_back(LastName(known));
  const std::string nearest = NearestName(path, names);
  return nearest.empty() ? "" : DidYouMeanOneOf(EndingIn(nearest, all));
}

absl::Status ApplyOverride(const std::string& override_text,
                           v1::RunConfig* config) {
  const size_t equals = override_text.find('=');
  absl::Status applied;
  if (equals == override_text.npos || equals == 0) {
    applied = Invalid(
        "expected path=value, as in --set optimizer.learning_rate=1e-3");
  } else {
    v1::RunConfig changed = *config;  // an error changes nothing
    const absl::string_view text = override_text;
    applied =
        Apply(std::string(absl::StripAsciiWhitespace(text.substr(0, equals))),
              std::string(absl::StripAsciiWhitespace(text.substr(equals + 1))),
              &changed);
    if (applied.ok()) config->Swap(&changed);
  }
  if (applied.ok()) return applied;
  return absl::Status(applied.code(), absl::StrCat("--set ", override_text,
                                                   ": ", applied.message()));
}

}  // namespace flotilla
