#include "services/base/config_text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <compare>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "services/base/config_override.h"
#include "services/base/nearest_name.h"

namespace flotilla {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;
using google::protobuf::io::ArrayInputStream;
using google::protobuf::io::ErrorCollector;
using google::protobuf::io::Tokenizer;

// Keeps the first error: the ones after it are its consequences.
class FirstError : public ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!message_.empty()) return;
    line_ = line;
    column_ = column;
    message_ = message;
  }
  int line() const { return line_; }  // from 0; -1: the text as a whole
  int column() const { return column_; }
  const std::string& message() const { return message_; }

 private:
  int line_ = -1;
  int column_ = 0;
  std::string message_;
};

struct Place {
  int line = 0, column = 0;  // from 0
  std::string path;          // dotted, of the field being set there
};

// The place the parser complained about. It looks one token ahead: of a name or
// a value that it does not know (`look_back`), it names what comes after.
Place FindPlace(const std::string& text, int line, int column, bool look_back) {
  ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  FirstError ignored;
  Tokenizer tokenizer(&input, &ignored);
  tokenizer.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
  Place place = {.line = line, .column = column, .path = ""};
  std::vector<std::string> sections;
  std::string name, previous;
  while (tokenizer.Next()) {
    const Tokenizer::Token& token = tokenizer.current();
    const bool closes = token.text == "}" || token.text == ">";
    const auto order =
        std::pair(token.line, token.column) <=> std::pair(line, column);
    if (order > 0 || (order == 0 && (look_back || closes))) break;
    if (look_back) {
      place.line = token.line;
      place.column = token.column;
    }
    if (token.text == "{" || token.text == "<") {
      sections.push_back(std::exchange(name, ""));
    } else if (closes) {
      if (!sections.empty()) sections.pop_back();
    } else if (token.type == Tokenizer::TYPE_IDENTIFIER && previous != ":" &&
               previous != "[" && previous != ",") {
      name = token.text;
    }
    previous = token.text;
  }
  if (!name.empty()) sections.push_back(name);
  place.path = absl::StrJoin(sections, ".");
  return place;
}

// The text between the n-th pair of quotes, from 0.
std::string Quoted(const std::string& message, size_t n) {
  const std::vector<std::string> parts = absl::StrSplit(message, '"');
  return parts.size() > 2 * n + 1 ? parts[2 * n + 1] : "";
}

void CollectEnums(const Descriptor* message, const std::string& field,
                  std::set<const Descriptor*>* seen,
                  std::vector<std::string>* values) {
  if (!seen->insert(message).second) return;
  for (int i = 0; i < message->field_count(); ++i) {
    const FieldDescriptor* f = message->field(i);
    if (f->message_type() != nullptr) {
      CollectEnums(f->message_type(), field, seen, values);
    }
    if (f->name() != field || f->enum_type() == nullptr) continue;
    for (int k = 0; k < f->enum_type()->value_count(); ++k) {
      values->push_back(f->enum_type()->value(k)->name());
    }
  }
}

// The dotted path of `name` in a section of this type.
std::string PathIn(const Descriptor* type, const std::string& name) {
  const Descriptor* whole = v1::RunConfig::descriptor();
  for (int i = 0; type != nullptr && i < whole->field_count(); ++i) {
    if (whole->field(i)->message_type() == type) {
      return absl::StrCat(whole->field(i)->name(), ".", name);
    }
  }
  return name;
}

bool IsUnknownField(const std::string& message) {
  return absl::StrContains(message, "has no field named");
}

bool IsUnknownValue(const std::string& message) {
  return absl::StartsWith(message, "Unknown enumeration value");
}

// The parser's message in our words, with the nearest name where one would
// help.
std::string Explain(const std::string& message, const Descriptor* config) {
  if (IsUnknownField(message)) {
    const Descriptor* type =
        config->file()->pool()->FindMessageTypeByName(Quoted(message, 0));
    const std::string name = Quoted(message, 1);
    std::vector<std::string> known;
    for (int i = 0; type != nullptr && i < type->field_count(); ++i) {
      known.push_back(type->field(i)->name());
    }
    std::string hint = DidYouMean(name, known);
    if (hint.empty()) hint = OtherNameHint(PathIn(type, name), "");
    return absl::StrCat("there is no field \"", name, "\"", hint);
  }
  if (IsUnknownValue(message)) {
    std::vector<std::string> known;
    std::set<const Descriptor*> seen;
    CollectEnums(config, Quoted(message, 1), &seen, &known);
    return absl::StrCat("there is no value \"", Quoted(message, 0), "\"",
                        DidYouMean(Quoted(message, 0), known), " (one of ",
                        absl::StrJoin(known, ", "), ")");
  }
  if (absl::StrContains(message, "another member of oneof \"algorithm\"")) {
    return absl::StrCat("\"", Quoted(message, 0), "\" is given beside \"",
                        Quoted(message, 1),
                        "\"; a run has one algorithm: remove the other");
  }
  return message;
}

}  // namespace

absl::Status ParseConfigText(const std::string& text, const std::string& file,
                             google::protobuf::Message* config,
                             TextFormat::ParseInfoTree* locations) {
  FirstError error;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(locations);
  if (parser.ParseFromString(text, config)) return absl::OkStatus();
  const Place place = FindPlace(
      text, error.line(), error.column(),
      IsUnknownField(error.message()) || IsUnknownValue(error.message()));
  return absl::InvalidArgumentError(
      absl::StrCat(file, ":", place.line + 1, ":", place.column + 1, ": ",
                   place.path, place.path.empty() ? "" : ": ",
                   Explain(error.message(), config->GetDescriptor())));
}

std::string LocationOf(const std::string& path,
                       const TextFormat::ParseInfoTree& locations) {
  const TextFormat::ParseInfoTree* tree = &locations;
  const Descriptor* type = v1::RunConfig::descriptor();
  std::string found;
  for (const std::string& name :
       std::vector<std::string>(absl::StrSplit(path, '.'))) {
    const FieldDescriptor* field =
        type == nullptr ? nullptr : type->FindFieldByName(name);
    if (field == nullptr || tree == nullptr) break;
    const int index = field->is_repeated() ? 0 : -1;
    const auto location = tree->GetLocation(field, index);
    if (location.line >= 0) {
      found = absl::StrCat(location.line + 1, ":", location.column + 1);
    }
    type = field->message_type();
    tree = type == nullptr ? nullptr : tree->GetTreeForNested(field, index);
  }
  return found;
}

}  // namespace flotilla
