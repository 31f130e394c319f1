#include "services/base/text_file.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace flotilla {

std::optional<std::string> WholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return std::nullopt;
  return std::move(text).str();
}

std::string FirstBytes(const std::string& path, size_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string text(most, '\0');
  file.read(text.data(), static_cast<std::streamsize>(most));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> LastLines(const std::string& path, size_t most) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  constexpr std::streamoff kTail = 8192;
  const std::streamoff size = file ? std::streamoff(file.tellg()) : 0;
  const std::streamoff from = std::max<std::streamoff>(0, size - kTail);
  // No further than its end as it was: who writes it may write faster than
  // this reads.
  std::string text(static_cast<size_t>(size - from), '\0');
  file.seekg(from);
  file.read(text.data(), size - from);
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  std::vector<std::string> lines =
      absl::StrSplit(absl::StripSuffix(text, "\n"), '\n');
  if (text.empty()) lines.clear();
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - most);
  return lines;
}

std::string LastLine(const std::string& path) {
  const std::vector<std::string> lines =
      LastLines(path, std::numeric_limits<size_t>::max());
  const auto last =
      std::find_if(lines.rbegin(), lines.rend(),
                   [](const auto& line) { return !line.empty(); });
  return last == lines.rend() ? "" : *last;
}

}  // namespace flotilla
