#include "services/base/env_origin.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

constexpr char kProgram[] = "exec:";
constexpr char kSocket[] = "unix:";

bool IsHostAndPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  int port = 0;
  return colon != text.npos && colon > 0 &&
         text.find_first_of(" \t\n/\"'") == text.npos &&
         absl::SimpleAtoi(text.substr(colon + 1), &port) && port > 0 &&
         port < 65536;
}

absl::Status Bad(const std::string& server, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("is \"", server, "\"", why));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SplitWords(const std::string& line) {
  std::vector<std::string> words;
  std::optional<std::string> word;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool last = i + 1 == line.size();
    if (quote == 0 && absl::ascii_isspace(c)) {
      if (word) words.push_back(*std::exchange(word, std::nullopt));
      continue;
    }
    if (!word) word.emplace();
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && !last &&
               (quote == 0 || (quote == '"' &&
                               (line[i + 1] == '"' || line[i + 1] == '\\')))) {
      word->push_back(line[++i]);
    } else {
      word->push_back(c);
    }
  }
  if (quote != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("has a ", std::string(1, quote), " that nothing closes"));
  }
  if (word) words.push_back(*std::move(word));
  return words;
}

absl::StatusOr<EnvOrigin> ParseEnvOrigin(const std::string& server) {
  EnvOrigin origin;
  if (server.empty()) return origin;
  if (absl::StartsWith(server, kProgram)) {
    origin.kind = EnvOrigin::Kind::kProgram;
    const auto words = SplitWords(server.substr(sizeof(kProgram) - 1));
    if (!words.ok()) {
      return Bad(server, absl::StrCat(", which ", words.status().message()));
    }
    if (words->empty() || words->front().empty()) {
      return Bad(server,
                 ", which names no program; want exec:COMMAND ARGS, as in "
                 "exec:python3 my_server.py");
    }
    origin.command = *words;
    return origin;
  }
  const bool socket =
      absl::StartsWith(server, kSocket) && server.size() > sizeof(kSocket) - 1;
  if (!socket && !IsHostAndPort(server)) {
    return Bad(server,
               "; want exec:COMMAND ARGS, a program that each worker starts, "
               "or where a server runs: unix:PATH or HOST:PORT");
  }
  origin.kind = EnvOrigin::Kind::kRunning;
  origin.address = server;
  return origin;
}

}  // namespace flotilla
