#ifndef FLOTILLA_SERVICES_BASE_COMPLETION_H_
#define FLOTILLA_SERVICES_BASE_COMPLETION_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "services/base/command_line.h"

// What a shell offers when someone presses the tabulator. The shells' scripts
// know nothing: they ask the program (`flotilla __complete train --pro`), and it
// answers from the flags that it parses by.

namespace flotilla {

// A first argument that makes of the rest a question; the last is what is being
// typed, "" if nothing has been yet.
inline constexpr char kCompleteWord[] = "__complete";

struct Completion {
  struct Word {
    std::string text;
    std::string about = "";
  };
  std::vector<Word> words;
  // Offered beside them by the shell.
  enum class Paths { kNone, kFolders, kFiles };
  Paths paths = Paths::kNone;
};

// What may stand for a value, by the name that help has for it ("CONFIG"), while
// `typed` of it has been typed.
using ValueSource = std::function<Completion(const std::string& value_name,
                                             const std::string& typed)>;

// What may stand where the last of `words` is. Of "auto|N", auto is a word and N
// the name of a value; the program's arguments are those that its usage names in
// capitals. FILE, PATH and DIR are known, all else `source` is asked (may be
// null).
Completion Complete(const CommandLine& line,
                    const std::vector<std::string>& words,
                    const ValueSource& source);

// The shells' scripts read it: "text<TAB>about" in lines, of what begins as
// `typed`, and a last one of ":words", ":folders" or ":files".
std::string FormatCompletion(const Completion& completion,
                             const std::string& typed);

// The answer, if `arguments` are a question.
std::optional<std::string> AnswerCompletion(
    const CommandLine& line, const std::vector<std::string>& arguments,
    const ValueSource& source);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_COMPLETION_H_
