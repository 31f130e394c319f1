#include "services/base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// JSON's grammar for numbers: -?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?
bool IsJsonNumber(const std::string& text) {
  size_t at = 0;
  const auto next_is = [&](char c) {
    return at < text.size() && text[at] == c;
  };
  const auto digits = [&] {
    const size_t begin = at;
    while (at < text.size() && IsDigit(text[at])) ++at;
    return at > begin;
  };
  if (next_is('-')) ++at;
  if (next_is('0')) {
    ++at;
  } else if (!digits()) {
    return false;
  }
  if (next_is('.')) {
    ++at;
    if (!digits()) return false;
  }
  if (next_is('e') || next_is('E')) {
    ++at;
    if (next_is('+') || next_is('-')) ++at;
    if (!digits()) return false;
  }
  return at == text.size();
}

// Reads JSON from left to right. Every method skips white space first.
class Reader {
 public:
  explicit Reader(const std::string& json) : json_(json) {}

  bool Take(char c) {
    SkipSpace();
    if (at_ == json_.size() || json_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool AtEnd() {
    SkipSpace();
    return at_ == json_.size();
  }

  std::optional<std::string> TakeString() {
    if (!Take('"')) return std::nullopt;
    std::string text;
    while (at_ < json_.size() && json_[at_] != '"') {
      if (json_[at_] != '\\') {
        text.push_back(json_[at_++]);
      } else if (!TakeEscape(&text)) {
        return std::nullopt;
      }
    }
    return Take('"') ? std::optional(text) : std::nullopt;
  }

  std::optional<std::string> TakeNumber() {
    SkipSpace();
    const size_t begin = at_;
    while (at_ < json_.size() &&
           (absl::ascii_isalnum(json_[at_]) || json_[at_] == '-' ||
            json_[at_] == '+' || json_[at_] == '.')) {
      ++at_;
    }
    std::string number = json_.substr(begin, at_ - begin);
    return IsJsonNumber(number) ? std::optional(number) : std::nullopt;
  }

 private:
  void SkipSpace() {
    while (at_ < json_.size() && absl::ascii_isspace(json_[at_])) ++at_;
  }

  // The escapes that JsonString writes.
  bool TakeEscape(std::string* text) {
    const std::string code = json_.substr(at_ + 1, 1);
    if (code == "\"" || code == "\\") {
      text->append(code);
      at_ += 2;
      return true;
    }
    if (code != "u") return false;
    const std::string digits = json_.substr(at_ + 2, 4);
    int value = 0;
    if (digits.size() != 4 ||
        !std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit) ||
        !absl::SimpleHexAtoi(digits, &value) || value >= 0x20) {
      return false;
    }
    text->push_back(static_cast<char>(value));
    at_ += 6;
    return true;
  }

  const std::string& json_;
  size_t at_ = 0;
};

}  // namespace

std::string JsonString(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json.push_back('\\');
      json.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      json.append(escaped);
    } else {
      json.push_back(c);
    }
  }
  json.push_back('"');
  return json;
}

std::string JsonNumber(double value) {
  if (!std::isfinite(value)) return "null";
  char digits[32];
  return std::string(digits,
                     std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

std::string FormatFlatJson(const std::map<std::string, std::string>& members) {
  std::string json = "{";
  const char* separator = "\n";
  for (const auto& [name, value] : members) {
    absl::StrAppend(&json, separator, "  ", JsonString(name), ": ",
                    IsJsonNumber(value) ? value : JsonString(value));
    separator = ",\n";
  }
  json.append("\n}\n");
  return json;
}

absl::StatusOr<std::map<std::string, std::string>> ParseFlatJson(
    const std::string& json) {
  const absl::Status bad = absl::InvalidArgumentError(
      "not a JSON object of strings and numbers alone");
  Reader reader(json);
  std::map<std::string, std::string> members;
  if (!reader.Take('{')) return bad;
  if (!reader.Take('}')) {
    do {
      const auto name = reader.TakeString();
      if (!name.has_value() || !reader.Take(':')) return bad;
      auto value = reader.TakeString();
      if (!value.has_value()) value = reader.TakeNumber();
      if (!value.has_value()) return bad;
      members[*name] = *value;
    } while (reader.Take(','));
    if (!reader.Take('}')) return bad;
  }
  if (!reader.AtEnd()) return bad;
  return members;
}

}  // namespace flotilla
