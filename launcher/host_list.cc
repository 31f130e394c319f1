#include "launcher/host_list.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr size_t kMostHosts = 65536;
constexpr size_t kMostNameBytes = 255;  // DNS allows 253
constexpr size_t kMostDigits = 20;      // of 64 bits

absl::Status Malformed(const std::string& list, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("host list \"", list, "\": ", why));
}

absl::Status TooMany(const std::string& list) {
  return Malformed(list, absl::StrCat("more than ", kMostHosts, " hosts"));
}

bool IsNumber(const std::string& text) {
  return !text.empty() && text.size() <= kMostDigits &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return std::isdigit(static_cast<unsigned char>(c));
         });
}

// "01-03,7" -> 01 02 03 7
absl::StatusOr<std::vector<std::string>> ParseRanges(const std::string& ranges,
                                                     const std::string& list) {
  std::vector<std::string> numbers;
  for (const std::string& range :
       std::vector<std::string>(absl::StrSplit(ranges, ','))) {
    const size_t dash = range.find('-');
    const std::string first = range.substr(0, dash);
    const std::string last =
        dash == range.npos ? first : range.substr(dash + 1);
    uint64_t low = 0, high = 0;
    if (!IsNumber(first) || !IsNumber(last) || !absl::SimpleAtoi(first, &low) ||
        !absl::SimpleAtoi(last, &high) || low > high ||
        high - low >= kMostHosts) {
      return Malformed(list, absl::StrCat("\"", range, "\" is no range"));
    }
    if (numbers.size() + (high - low) >= kMostHosts) return TooMany(list);
    for (uint64_t i = 0; i <= high - low; ++i) {
      std::string digits = absl::StrCat(low + i);
      if (digits.size() < first.size()) {
        digits.insert(0, first.size() - digits.size(), '0');
      }
      numbers.push_back(digits);
    }
  }
  return numbers;
}

// One element, "rack[0-1]n[1-2]": every combination of its ranges.
absl::StatusOr<std::vector<std::string>> Expand(const std::string& element,
                                                const std::string& list) {
  std::vector<std::string> hosts = {""};
  size_t at = 0;
  while (at < element.size()) {
    std::vector<std::string> pieces;
    if (element[at] == '[') {
      const size_t end = element.find(']', at);
      ASSIGN_OR_RETURN(pieces,
                       ParseRanges(element.substr(at + 1, end - at - 1), list));
      at = end + 1;
    } else {
      const size_t end = std::min(element.find('[', at), element.size());
      pieces = {element.substr(at, end - at)};
      at = end;
    }
    if (hosts.size() * pieces.size() > kMostHosts) return TooMany(list);
    if (hosts.back().size() + pieces.back().size() > kMostNameBytes) {
      return Malformed(
          list, absl::StrCat("a name of more than ", kMostNameBytes, " bytes"));
    }
    std::vector<std::string> longer;
    for (const std::string& host : hosts) {
      for (const std::string& piece : pieces) longer.push_back(host + piece);
    }
    hosts = std::move(longer);
  }
  return hosts;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseHostList(
    const std::string& list) {
  std::vector<std::string> elements = {""};
  bool inside = false;
  for (const char c : list) {
    if (c == '[' && inside) return Malformed(list, "\"[\" inside \"[\"");
    if (c == ']' && !inside) return Malformed(list, "\"]\" without \"[\"");
    if (c == '[' || c == ']') inside = c == '[';
    if (c == ',' && !inside) {
      elements.push_back("");
    } else {
      elements.back() += c;
    }
  }
  if (inside) return Malformed(list, "\"[\" without \"]\"");
  std::vector<std::string> hosts;
  for (const std::string& element : elements) {
    if (element.empty()) return Malformed(list, "an empty name");
    ASSIGN_OR_RETURN(const std::vector<std::string> expanded,
                     Expand(element, list));
    if (hosts.size() + expanded.size() > kMostHosts) return TooMany(list);
    hosts.insert(hosts.end(), expanded.begin(), expanded.end());
  }
  return hosts;
}

}  // namespace flotilla
