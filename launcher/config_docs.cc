#include "launcher/config_docs.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/range.pb.h"
#include "glog/logging.h"
#include "launcher/text_layout.h"
#include "services/base/config.h"
#include "services/base/config_change.h"
#include "services/base/config_override.h"
#include "services/base/config_ranges.h"
#include "services/base/nearest_name.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

constexpr size_t kMostColumns = 100;  // longer lines are hard to read
constexpr size_t kHang = 4;

constexpr unsigned char kDescriptor[] = {
#include "flotilla/v1/config_descriptor.inc"
};

// The full name of what `path` of a SourceCodeInfo leads to: a message, a field,
// an enum or a value of one; "" for anything else.
std::string NameAt(const FileDescriptorProto& file,
                   const google::protobuf::RepeatedField<int>& path) {
  const std::string package = file.package() + ".";
  const bool nested = path.size() == 4 && path[2] == 2;
  if (path.size() != 2 && !nested) return "";
  if (path[0] == FileDescriptorProto::kMessageTypeFieldNumber) {
    const auto& message = file.message_type(path[1]);
    const std::string name = package + message.name();
    return nested ? absl::StrCat(name, ".", message.field(path[3]).name())
                  : name;
  }
  if (path[0] != FileDescriptorProto::kEnumTypeFieldNumber) return "";
  const auto& type = file.enum_type(path[1]);
  // A value's scope is that of its enum.
  return package + (nested ? type.value(path[3]).name() : type.name());
}

// A comment without the blank that follows each //.
std::string Clean(const std::string& comment) {
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(comment, '\n')) {
    absl::ConsumePrefix(&line, " ");
    lines.push_back(std::string(line));
  }
  return std::string(
      absl::StripTrailingAsciiWhitespace(absl::StrJoin(lines, "\n")));
}

std::map<std::string, std::string> ReadComments() {
  FileDescriptorSet set;
  CHECK(set.ParseFromArray(kDescriptor, sizeof(kDescriptor)));
  const FileDescriptorProto& file = set.file(set.file_size() - 1);
  std::map<std::string, std::string> comments;
  for (const auto& location : file.source_code_info().location()) {
    const std::string name = NameAt(file, location.path());
    if (name.empty()) continue;
    comments[name] =
        Clean(location.leading_comments() + location.trailing_comments());
  }
  return comments;
}

std::string CommentOn(const std::string& full_name) {
  static const auto& comments =
      *new std::map<std::string, std::string>(ReadComments());
  const auto found = comments.find(full_name);
  return found == comments.end() ? "" : found->second;
}

bool IsSection(const FieldDescriptor* field) {
  return field->message_type() != nullptr && !field->is_map();
}

void CollectPaths(const Descriptor* type, const std::string& prefix,
                  std::vector<std::string>* paths) {
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    paths->push_back(prefix + field->name());
    if (IsSection(field)) {
      CollectPaths(field->message_type(), paths->back() + ".", paths);
    }
  }
}

// On one line, up to its first full stop: one that a new sentence follows.
std::string FirstSentence(std::string comment) {
  std::replace(comment.begin(), comment.end(), '\n', ' ');
  for (size_t at = comment.find(". "); at != comment.npos;
       at = comment.find(". ", at + 1)) {
    if (absl::ascii_isupper(comment[at + 2])) return comment.substr(0, at + 1);
  }
  return comment;
}

std::string Kind(const FieldDescriptor* field) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
      return "integer";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return "one of the values below";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return field->is_map() ? "text by name" : "section";
    default:
      return "text";
  }
}

std::string DescribeType(const FieldDescriptor* field) {
  std::string text = Kind(field);
  if (field->is_repeated() && !field->is_map()) {
    text = absl::StrCat("list, each: ", text);
  }
  const std::string range =
      DescribeRange(field->options().GetExtension(v1::range));
  return range.empty() ? text : absl::StrCat(text, ", ", range);
}

std::string ValueText(const Message& message, const FieldDescriptor* field) {
  TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  if (!field->is_repeated()) {
    printer.PrintFieldValueToString(message, field, -1, &text);
    return text;
  }
  std::vector<std::string> parts;
  const int size = message.GetReflection()->FieldSize(message, field);
  for (int i = 0; i < size; ++i) {
    printer.PrintFieldValueToString(message, field, i, &text);
    parts.push_back(std::string(absl::StripAsciiWhitespace(text)));
    if (field->message_type() != nullptr) {
      parts.back() = absl::StrCat("{", parts.back(), "}");
    }
  }
  return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
}

// "" if it has none.
std::string DefaultOf(const FieldDescriptor* field) {
  if (!field->has_default_value()) return "";
  const Message* prototype =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(
          field->containing_type());
  return ValueText(*prototype, field);
}

void AppendComment(const std::string& comment, size_t width,
                   const std::string& indent, std::string* text) {
  for (const auto& paragraph : absl::StrSplit(comment, "\n\n")) {
    AppendWrapped(indent + absl::StrReplaceAll(paragraph, {{"\n", " "}}), width,
                  indent.size(), text);
  }
}

// Cells of a name and what is said of it, the latter in a column of its own, which a
// name that is as long as a whole section's value does not push away.
using Entries = std::vector<std::pair<std::string, std::string>>;
void AppendEntries(const Entries& entries, size_t width, std::string* text) {
  size_t widest = 0;
  for (const auto& [name, about] : entries) {
    widest = std::max(widest, Characters(name));
  }
  widest = std::min(widest, width * 2 / 5);
  for (const auto& [name, about] : entries) {
    std::string line = absl::StrCat("  ", Padded(name, widest), "  ", about);
    absl::StripTrailingAsciiWhitespace(&line);
    AppendWrapped(std::move(line), width, widest + kHang, text);
  }
}

Entries FieldsInShort(const Descriptor* type) {
  Entries entries;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    const std::string value = DefaultOf(field);
    entries.push_back(
        {IsSection(field) ? field->name() + " {}" : field->name(),
         absl::StrCat(CommentInShort(field),
                      value.empty() ? "" : absl::StrCat(" [", value, "]"))});
  }
  return entries;
}

Entries ValuesOf(const EnumDescriptor* type) {
  Entries entries;
  for (int i = 0; i < type->value_count(); ++i) {
    std::string comment = CommentOn(type->value(i)->full_name());
    std::replace(comment.begin(), comment.end(), '\n', ' ');
    entries.push_back({type->value(i)->name(), comment});
  }
  return entries;
}

// What the configurations set `path` to, and which: the most frequent first.
Entries SettingsOf(const std::string& path,
                   const std::vector<ShippedConfig>& configs) {
  std::map<std::string, std::vector<std::string>> by_value;
  for (const ShippedConfig& shipped : configs) {
    const auto config = LoadRunConfig(shipped.path, {});
    const std::string value = config.ok() ? SettingOf(*config, path) : "";
    if (!value.empty()) by_value[value].push_back(shipped.name);
  }
  std::vector<std::pair<std::string, std::vector<std::string>>> settings(
      by_value.begin(), by_value.end());
  std::stable_sort(settings.begin(), settings.end(),
                   [](const auto& a, const auto& b) {
                     return a.second.size() > b.second.size();
                   });
  Entries entries;
  for (const auto& [value, names] : settings) {
    entries.push_back({value, absl::StrJoin(names, ", ")});
  }
  return entries;
}

std::string NearestPaths(const std::string& path) {
  const std::string hint = FieldHint(path);
  return hint.empty() ? "; `flotilla explain` lists the sections" : hint;
}

std::string WholeConfig(size_t width) {
  std::string text = "a configuration\n\n";
  AppendComment(CommentOn(v1::RunConfig::descriptor()->full_name()), width,
                "  ", &text);
  absl::StrAppend(&text, "\nfields [defaults]\n");
  AppendEntries(FieldsInShort(v1::RunConfig::descriptor()), width, &text);
  absl::StrAppend(&text, "\n`flotilla explain env` goes on.\n");
  return text;
}

}  // namespace

std::string CommentOf(const FieldDescriptor* field) {
  const std::string own = CommentOn(field->full_name());
  if (!own.empty() || !IsSection(field)) return own;
  return CommentOn(field->message_type()->full_name());
}

std::string CommentInShort(const FieldDescriptor* field) {
  return FirstSentence(CommentOf(field));
}

std::vector<std::string> ConfigPaths() {
  std::vector<std::string> paths;
  CollectPaths(v1::RunConfig::descriptor(), "", &paths);
  return paths;
}

absl::StatusOr<const FieldDescriptor*> FindConfigField(
    const std::string& path) {
  const Descriptor* type = v1::RunConfig::descriptor();
  const FieldDescriptor* field = nullptr;
  for (const auto& name : absl::StrSplit(path, '.')) {
    if (field != nullptr && field->is_map()) break;  // its entries' names
    field =
        type == nullptr ? nullptr : type->FindFieldByName(std::string(name));
    if (field == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no field \"", path, "\"", NearestPaths(path)));
    }
    type = field->message_type();
  }
  return field;
}

std::vector<std::string> FixedValues(const FieldDescriptor* field) {
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
    return {"true", "false"};
  }
  std::vector<std::string> values;
  const EnumDescriptor* type = field->enum_type();
  for (int i = 0; type != nullptr && i < type->value_count(); ++i) {
    values.push_back(type->value(i)->name());
  }
  return values;
}

std::string SettingOf(const v1::RunConfig& config, const std::string& path) {
  const Message* message = &config;
  for (const auto& name : absl::StrSplit(path, '.')) {
    const FieldDescriptor* field =
        message->GetDescriptor()->FindFieldByName(std::string(name));
    const Reflection* reflection = message->GetReflection();
    if (field == nullptr) return "";
    const bool set = field->is_repeated()
                         ? reflection->FieldSize(*message, field) > 0
                         : reflection->HasField(*message, field);
    if (!set) return "";
    if (field->is_repeated() || field->message_type() == nullptr) {
      return ValueText(*message, field);
    }
    message = &reflection->GetMessage(*message, field);
  }
  return "set";
}

absl::StatusOr<std::string> ExplainField(
    const std::string& path, const std::vector<ShippedConfig>& configs,
    size_t width) {
  width = std::min(width, kMostColumns);
  if (path.empty()) return WholeConfig(width);
  ASSIGN_OR_RETURN(const FieldDescriptor* field, FindConfigField(path));
  std::string text = absl::StrCat(path, "\n");
  Entries facts = {{"type", DescribeType(field)}};
  const std::string value = DefaultOf(field);
  if (!value.empty()) {
    facts.push_back({"default", value});
  } else if (!IsSection(field)) {
    facts.push_back({"default", "none"});
  }
  if (!IsSection(field)) {
    const std::string fixed = WhyFixed(path);
    facts.push_back(
        {"in flight",
         fixed.empty()
             ? absl::StrCat("can change: `flotilla set RUN ", path, "=VALUE`")
             : fixed});
  }
  AppendEntries(facts, width, &text);
  absl::StrAppend(&text, "\n");
  AppendComment(CommentOf(field), width, "  ", &text);
  if (field->enum_type() != nullptr) {
    absl::StrAppend(&text, "\nvalues\n");
    AppendEntries(ValuesOf(field->enum_type()), width, &text);
  }
  if (IsSection(field)) {
    absl::StrAppend(&text, "\nfields [defaults]\n");
    AppendEntries(FieldsInShort(field->message_type()), width, &text);
  }
  const Entries settings = SettingsOf(path, configs);
  if (!settings.empty()) {
    absl::StrAppend(&text, "\nin the configurations that come with Flotilla\n");
    AppendEntries(settings, width, &text);
  }
  return text;
}

}  // namespace flotilla
