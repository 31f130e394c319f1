#include "launcher/text_layout.h"

#include <sys/ioctl.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace flotilla {

size_t TerminalWidth(std::FILE* out) {
  winsize size = {};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

void AppendWrapped(std::string line, size_t width, size_t hang,
                   std::string* text) {
  hang = std::min(hang, width / 2);
  while (line.size() > width) {
    const size_t first = line.find_first_not_of(' ');
    size_t end = line.rfind(' ', width);
    if (end == line.npos || first >= end) {
      // Not among the blanks that the line begins with: they would come again.
      end = line.find(' ', std::max(width, first));
      if (end == line.npos) break;
    }
    const size_t next = line.find_first_not_of(' ', end);
    if (next == line.npos) break;
    const size_t last = line.find_last_not_of(' ', end);
    absl::StrAppend(text, line.substr(0, last + 1), "\n");
    line = std::string(hang, ' ') + line.substr(next);
  }
  absl::StrAppend(text, line, "\n");
}

size_t Characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (c & 0xC0) != 0x80; });
}

std::string Cut(const std::string& text, size_t width) {
  if (Characters(text) <= width) return text;
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    const bool begins = (text[end] & 0xC0) != 0x80;
    if (begins && seen++ == width) break;
  }
  return text.substr(0, end);
}

std::string Padded(const std::string& text, size_t width, bool right) {
  const size_t length = Characters(text);
  const std::string blanks(width > length ? width - length : 0, ' ');
  return right ? blanks + text : text + blanks;
}

std::string ShellWord(const std::string& word) {
  const bool plain =
      !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
        return absl::ascii_isalnum(c) || absl::StrContains("%+,-./:=@_", c);
      });
  return plain ? word
               : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}),
                              "'");
}

std::string Table(std::vector<std::vector<std::string>> rows,
                  const std::vector<size_t>& right) {
  std::vector<size_t> widths(rows.empty() ? 0 : rows[0].size());
  for (size_t column = 0; column < widths.size(); ++column) {
    for (size_t row = 1; row < rows.size(); ++row) {
      widths[column] = std::max(widths[column], Characters(rows[row][column]));
    }
    if (widths[column] > 0) {
      widths[column] = std::max(widths[column], Characters(rows[0][column]));
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t column = 0; column < widths.size(); ++column) {
      if (widths[column] == 0) continue;
      const bool on_right = std::count(right.begin(), right.end(), column) > 0;
      absl::StrAppend(&line, line.empty() ? "" : "  ",
                      Padded(row[column], widths[column], on_right));
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace flotilla
