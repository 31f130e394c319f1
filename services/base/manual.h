#ifndef FLOTILLA_SERVICES_BASE_MANUAL_H_
#define FLOTILLA_SERVICES_BASE_MANUAL_H_

#include <optional>
#include <string>
#include <vector>

#include "services/base/command_line.h"

// Manual pages (man(7)), from the flags that programs parse by.

namespace flotilla {

// A first argument that asks for a program's part of the manual.
inline constexpr char kManualWord[] = "__manual";

// `text` as it is to be read: nothing in it is a request or an escape.
std::string Roff(const std::string& text);

// A subsection: usage, what the program does, its flags.
std::string ManualPart(const CommandLine& line);

// The answer, if `arguments` ask for it.
std::optional<std::string> AnswerManual(
    const CommandLine& line, const std::vector<std::string>& arguments);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_MANUAL_H_
