#include "services/base/text_file.h"

#include <algorithm>
#include <deque>
#include <fstream>
#include <limits>
#include <sstream>

namespace flotilla {

std::optional<std::string> WholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return std::nullopt;
  return std::move(text).str();
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
  file.seekg(std::max<std::streamoff>(0, size - kTail));
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > most) lines.pop_front();
  }
  return {lines.begin(), lines.end()};
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
