#ifndef FLOTILLA_LAUNCHER_TEXT_LAYOUT_H_
#define FLOTILLA_LAUNCHER_TEXT_LAYOUT_H_

#include <cstdio>
#include <string>
#include <vector>

namespace flotilla {

// Text for terminals and pipes.

// The columns of a terminal; 80 for anything else.
size_t TerminalWidth(std::FILE* out);

// Appends `line`, broken between words where it is wider than `width`; what
// goes on is indented by `hang`, half the width at most. A word of that width alone
// stays whole: it is a path.
void AppendWrapped(std::string line, size_t width, size_t hang,
                   std::string* text);

// Characters, as far as UTF-8 tells.
size_t Characters(const std::string& text);

// The first `width` characters of it.
std::string Cut(const std::string& text, size_t width);

// `text` and blanks, `width` characters in all; on the right side with `right`.
std::string Padded(const std::string& text, size_t width, bool right = false);

// `word` as a shell takes it for one: in quotes where it is not plain.
std::string ShellWord(const std::string& word);

// Rows below one another, two blanks between columns, which are as wide as their
// widest cell; those in `right` are aligned to the right. A column without a
// word below its title, the first row, is left out. Lines end with "\n".
std::string Table(std::vector<std::vector<std::string>> rows,
                  const std::vector<size_t>& right);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_TEXT_LAYOUT_H_
