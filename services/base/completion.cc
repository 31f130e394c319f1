#include "services/base/completion.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace flotilla {
namespace {

bool IsFlagWord(const std::string& word) {
  return word.size() > 1 && word[0] == '-';
}

// Whether it is a word to type, and not the name of a value.
bool IsLiteral(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_islower(c) || c == '-' || c == '_';
  });
}

bool IsName(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isupper(c) || absl::ascii_isdigit(c) ||
           absl::StrContains("_:=", std::string(1, c));
  });
}

// The names of a program's arguments: "CONFIG" of "flotilla train CONFIG
// [flags]". The last is marked by "..." if it may be given many times.
std::vector<std::string> ArgumentNames(const std::string& usage) {
  std::vector<std::string> names;
  for (const auto& piece : absl::StrSplit(usage, ' ', absl::SkipEmpty())) {
    const std::string word = absl::StrReplaceAll(piece, {{"[", ""}, {"]", ""}});
    if (absl::StrContains(word, "-") || absl::StartsWith(word, "(")) break;
    const std::string bare(absl::StripSuffix(word, "..."));
    const std::vector<std::string> parts = absl::StrSplit(bare, '|');
    if (parts.size() > 1 || IsName(bare)) names.push_back(word);
  }
  return names;
}

void Append(Completion more, Completion* completion) {
  completion->words.insert(completion->words.end(), more.words.begin(),
                           more.words.end());
  completion->paths = std::max(completion->paths, more.paths);
}

void AppendValues(const std::string& value_name, const std::string& typed,
                  const ValueSource& source, Completion* completion) {
  std::string names = absl::StrReplaceAll(value_name, {{"[", ""}, {"]", ""}});
  names = std::string(absl::StripSuffix(names, "..."));
  for (const auto& part : absl::StrSplit(names, '|')) {
    const std::string name(part);
    if (IsLiteral(name)) {
      completion->words.push_back({name});
    } else if (name == "FILE" || name == "PATH") {
      completion->paths = Completion::Paths::kFiles;
    } else if (name == "DIR") {
      completion->paths =
          std::max(completion->paths, Completion::Paths::kFolders);
    } else if (source) {
      Append(source(name, typed), completion);
    }
  }
}

void AppendFlags(const CommandLine& line, Completion* completion) {
  for (const CommandLine::Flag& flag : line.flags()) {
    completion->words.push_back({flag.name, flag.help});
  }
  completion->words.push_back({"--help", "what there is"});
}

}  // namespace

Completion Complete(const CommandLine& line,
                    const std::vector<std::string>& words,
                    const ValueSource& source) {
  Completion completion;
  if (words.empty()) return completion;
  const std::string& typed = words.back();
  const CommandLine::Flag* open = nullptr;  // its value may be `typed`
  size_t arguments = 0;
  bool flags_over = false;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    open = nullptr;
    if (flags_over || !IsFlagWord(words[i])) {
      ++arguments;
      continue;
    }
    flags_over = words[i] == "--";
    const CommandLine::Flag* flag = line.Find(words[i]);
    if (flag == nullptr || flag->value_name.empty()) continue;
    open = flag;
    const bool takes =
        flag->is_value == nullptr || flag->is_value(words[i + 1]);
    if (takes && i + 2 < words.size()) {
      ++i;
      open = nullptr;
    }
  }
  const size_t equals = typed.find('=');
  if (open != nullptr && open->is_value == nullptr) {
    AppendValues(open->value_name, typed, source, &completion);
    return completion;
  }
  if (IsFlagWord(typed) && !flags_over && equals == typed.npos) {
    AppendFlags(line, &completion);
    return completion;
  }
  if (IsFlagWord(typed) && !flags_over) {
    const CommandLine::Flag* flag = line.Find(typed.substr(0, equals));
    if (flag == nullptr) return completion;
    AppendValues(flag->value_name, typed.substr(equals + 1), source,
                 &completion);
    for (Completion::Word& word : completion.words) {
      word.text = typed.substr(0, equals + 1) + word.text;
    }
    return completion;
  }
  if (open != nullptr) {
    AppendValues(open->value_name, typed, source, &completion);
  }
  const std::vector<std::string> names = ArgumentNames(line.usage());
  if (arguments < names.size()) {
    AppendValues(names[arguments], typed, source, &completion);
  } else if (!names.empty() && absl::StrContains(names.back(), "...")) {
    AppendValues(names.back(), typed, source, &completion);
  }
  return completion;
}

std::string FormatCompletion(const Completion& completion,
                             const std::string& typed) {
  std::string text;
  for (const Completion::Word& word : completion.words) {
    if (!absl::StartsWith(word.text, typed)) continue;
    absl::StrAppend(&text, word.text, word.about.empty() ? "" : "\t",
                    word.about, "\n");
  }
  const bool folders = completion.paths == Completion::Paths::kFolders;
  const bool none = completion.paths == Completion::Paths::kNone;
  return absl::StrCat(text,
                      none      ? ":words"
                      : folders ? ":folders"
                                : ":files",
                      "\n");
}

std::optional<std::string> AnswerCompletion(
    const CommandLine& line, const std::vector<std::string>& arguments,
    const ValueSource& source) {
  if (arguments.empty() || arguments[0] != kCompleteWord) return std::nullopt;
  const std::vector<std::string> words(arguments.begin() + 1, arguments.end());
  return FormatCompletion(Complete(line, words, source),
                          words.empty() ? "" : words.back());
}

}  // namespace flotilla
