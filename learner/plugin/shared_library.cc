#include "learner/plugin/shared_library.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "learner/plugin/build_stamp.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

// The parts of "flotilla=0.1.0 torch=2.11.0", in their order.
std::vector<std::pair<std::string, std::string>> Parts(
    const std::string& stamp) {
  std::vector<std::pair<std::string, std::string>> parts;
  const std::vector<std::string> words =
      absl::StrSplit(stamp, ' ', absl::SkipEmpty());
  for (const std::string& part : words) {
    const size_t equals = std::min(part.find('='), part.size());
    parts.emplace_back(part.substr(0, equals),
                       part.substr(std::min(equals + 1, part.size())));
  }
  return parts;
}

// For people: "Flotilla's headers".
std::string PartTitle(const std::string& name) {
  if (name == "flotilla") return "Flotilla";
  if (name == "headers") return "Flotilla's headers";
  if (name == "torch") return "LibTorch";
  if (name == "abi") return "C++ ABI";
  return name;
}

// Whether all that a program header of an ELF file maps is in it: what is not would
// kill the process that loads it.
bool IsWhole(const std::string& file) {
  Elf64_Ehdr header;
  if (file.size() < sizeof(header)) return false;
  std::memcpy(&header, file.data(), sizeof(header));
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part;
    const uint64_t at = header.e_phoff + i * sizeof(part);
    if (at > file.size() || file.size() - at < sizeof(part)) return false;
    std::memcpy(&part, file.data() + at, sizeof(part));
    if (part.p_offset > file.size() ||
        file.size() - part.p_offset < part.p_filesz) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::Status CompareStamps(const std::string& theirs, const std::string& ours) {
  if (theirs == ours) return absl::OkStatus();
  std::map<std::string, std::string> here;
  for (const auto& [name, value] : Parts(ours)) here[name] = value;
  std::vector<std::string> built, running;
  for (const auto& [name, value] : Parts(theirs)) {
    const auto found = here.find(name);
    if (found != here.end() && found->second == value) continue;
    built.push_back(absl::StrCat(PartTitle(name), " ", value));
    if (found == here.end()) continue;
    running.push_back(absl::StrCat(PartTitle(name), " ", found->second));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "was built for ", absl::StrJoin(built, ", "), ", and this learner is of ",
      running.empty() ? ours : absl::StrJoin(running, ", "),
      "; build it anew with the Flotilla that is to run it"));
}

absl::StatusOr<void*> LoadFunction(const std::string& title,
                                   const std::string& path,
                                   const std::string& symbol) {
  const std::optional<std::string> file = WholeFile(path);
  if (!file) {
    return absl::InvalidArgumentError(absl::StrCat(title, " cannot be read"));
  }
  if (!absl::StartsWith(*file, "\177ELF")) {
    return absl::InvalidArgumentError(absl::StrCat(
        title,
        " is no shared library; `flotilla new network DIR` and `flotilla "
        "new algorithm DIR` write projects that build one"));
  }
  const size_t mark = file->find(FLOTILLA_STAMP_MARK);
  if (mark == file->npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(title,
                     " has no build stamp: it holds no FLOTILLA_NETWORK or "
                     "FLOTILLA_ALGORITHM"));
  }
  const size_t begin = mark + sizeof(FLOTILLA_STAMP_MARK) - 1;
  const std::string stamp =
      file->substr(begin, file->find('\0', begin) - begin);
  const absl::Status same = CompareStamps(stamp, FLOTILLA_BUILD_STAMP);
  if (!same.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(title, " ", same.message()));
  }
  if (!IsWhole(*file)) {
    return absl::InvalidArgumentError(
        absl::StrCat(title, " is cut off; build or copy it again"));
  }
  // dlopen looks for a name without a slash elsewhere.
  const std::string exact = std::filesystem::absolute(path).string();
  void* const library = dlopen(exact.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(title, " does not load: ", dlerror()));
  }
  void* const function = dlsym(library, symbol.c_str());
  if (function == nullptr) {
    const bool network = symbol == "flotilla_network";
    return absl::InvalidArgumentError(absl::StrCat(
        title, " has no ", network ? "network" : "algorithm", ": add ",
        network ? "FLOTILLA_NETWORK(Make)" : "FLOTILLA_ALGORITHM(Traits, Make)",
        " to one of its files"));
  }
  return function;
}

}  // namespace flotilla
