#include "launcher/config_finder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "services/base/config.h"
#include "services/base/nearest_name.h"
#include "services/base/status_macros.h"
#include "services/base/subprocess.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

constexpr char kExtension[] = ".textproto";

std::vector<fs::path> CandidateFolders() {
  if (const char* folder = std::getenv("FLOTILLA_CONFIG_DIR")) {
    return {folder};
  }
  const fs::path bin = ProgramFolder();
  return {bin / "../share/flotilla/configs", bin / "../../deploy/configs",
          bin / "../deploy/configs"};
}

// Up to the first full stop of the comment at the top.
std::string About(const fs::path& path) {
  std::ifstream file(path);
  std::string text;
  for (std::string line;
       std::getline(file, line) && !line.empty() && line[0] == '#';) {
    absl::StrAppend(&text, text.empty() ? "" : " ",
                    absl::StripAsciiWhitespace(line.substr(1)));
  }
  const size_t stop = text.find(". ");
  std::string sentence = stop == text.npos ? text : text.substr(0, stop);
  return std::string(absl::StripSuffix(sentence, "."));
}

// "CartPole-v1", "ALE/Pong-v5", "gym:Taxi-v4": as Gymnasium names environments.
bool EndsInVersion(absl::string_view word) {
  const size_t at = word.rfind("-v");
  return at != word.npos && at > 0 && at + 2 < word.size() &&
         std::all_of(word.begin() + at + 2, word.end(), absl::ascii_isdigit);
}

// Whether `word` is `id`, or is it in another case or without "gym:" or "ALE/".
// Without a version, only as it is: "pong" rather is part of a configuration's name.
bool Means(const std::string& word, const std::string& id) {
  if (word == id) return true;
  return EndsInVersion(word) &&
         (absl::EqualsIgnoreCase(id, word) ||
          absl::EndsWithIgnoreCase(id, absl::StrCat(":", word)) ||
          absl::EndsWithIgnoreCase(id, absl::StrCat("/", word)));
}

// `"a", "b", ...`: five of them at most.
std::string Some(const std::vector<std::string>& names) {
  constexpr size_t kMost = 5;
  const auto end = names.begin() + std::min(kMost, names.size());
  return absl::StrCat("\"", absl::StrJoin(names.begin(), end, "\", \""), "\"",
                      names.size() > kMost ? ", ..." : "");
}

// For a word that names no configuration.
std::string Hint(const std::string& word,
                 const std::vector<ShippedConfig>& shipped) {
  const std::string folded = absl::AsciiStrToLower(word);
  std::string id;
  std::vector<std::string> names, containing, made_for_it;
  for (const ShippedConfig& candidate : shipped) {
    names.push_back(candidate.name);
    if (folded.size() >= 3 &&
        absl::StrContains(absl::AsciiStrToLower(candidate.name), folded)) {
      containing.push_back(candidate.name);
    }
    const auto config = LoadRunConfig(candidate.path, {});
    if (!config.ok() || !Means(word, config->env().id())) continue;
    id = config->env().id();
    made_for_it.push_back(candidate.name);
  }
  if (!id.empty()) {
    return absl::StrCat(
        "; that is an environment: `flotilla train CONFIG "
        "--env ",
        id, "`, where CONFIG may be ", Some(made_for_it));
  }
  if (EndsInVersion(word)) {
    return absl::StrCat(
        "; that looks like an environment: `flotilla train "
        "CONFIG --env ",
        word, "`");
  }
  if (containing.empty()) return DidYouMean(word, names);
  return absl::StrCat("; did you mean ", Some(containing), "?");
}

}  // namespace

absl::StatusOr<std::vector<ShippedConfig>> ShippedConfigs() {
  std::vector<std::string> looked;
  for (const fs::path& folder : CandidateFolders()) {
    std::error_code error;
    const fs::path clean = fs::weakly_canonical(folder, error);
    looked.push_back(clean.string());
    if (!fs::is_directory(folder, error)) continue;
    std::vector<ShippedConfig> configs;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() != kExtension) continue;
      configs.push_back({entry.path().stem(), clean / entry.path().filename(),
                         About(entry.path())});
    }
    std::sort(configs.begin(), configs.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return configs;
  }
  return absl::NotFoundError(
      absl::StrCat("there is no folder of shipped configurations (looked for ",
                   absl::StrJoin(looked, ", "),
                   "): was this program copied? Use it where it was built, set "
                   "FLOTILLA_CONFIG_DIR, or give a file"));
}

absl::StatusOr<std::string> FindConfig(const std::string& config) {
  std::error_code error;
  if (fs::is_regular_file(config, error)) return config;
  if (fs::is_directory(config, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", config, "\" is a folder; expected a configuration file or name",
        fs::exists(fs::path(config) / "config.textproto", error)
            ? absl::StrCat(" (to go on with that run: --resume --run-dir ",
                           config, ")")
            : ""));
  }
  const fs::path folder = fs::path(config).parent_path();
  // "ALE/Pong-v5" is none.
  const bool is_path = absl::StrContains(config, "/") &&
                       (!EndsInVersion(config) || config[0] == '.' ||
                        fs::exists(folder, error) || folder.is_absolute());
  if (is_path) {
    return absl::NotFoundError(
        absl::StrCat("there is no configuration file ", config));
  }
  ASSIGN_OR_RETURN(const std::vector<ShippedConfig> shipped, ShippedConfigs());
  const std::string wanted = std::string(absl::StripSuffix(config, kExtension));
  for (const ShippedConfig& candidate : shipped) {
    if (candidate.name == wanted) return candidate.path;
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no configuration \"", config, "\"", Hint(wanted, shipped),
      " (`flotilla configs` lists them; a path names a file)"));
}

std::string ConfigName(const std::string& path) {
  return fs::path(path).stem().string();
}

}  // namespace flotilla
