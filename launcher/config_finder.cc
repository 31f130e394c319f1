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
  const bool is_path = absl::StrContains(config, "/");
  if (is_path) {
    return absl::NotFoundError(
        absl::StrCat("there is no configuration file ", config));
  }
  ASSIGN_OR_RETURN(const std::vector<ShippedConfig> shipped, ShippedConfigs());
  const std::string wanted = std::string(absl::StripSuffix(config, kExtension));
  std::vector<std::string> names;
  for (const ShippedConfig& candidate : shipped) {
    if (candidate.name == wanted) return candidate.path;
    names.push_back(candidate.name);
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no configuration \"", config, "\"", DidYouMean(wanted, names),
      " (`flotilla configs` lists them; a path names a file)"));
}

std::string ConfigName(const std::string& path) {
  return fs::path(path).stem().string();
}

}  // namespace flotilla
