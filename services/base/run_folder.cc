#include "services/base/run_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace flotilla {

namespace fs = std::filesystem;

fs::path WholePath(const std::string& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

std::string RunFolder::name() const { return WholePath(path_).filename(); }

std::string RunFolder::secret(const std::string& member_id) const {
  return absl::StrCat(path_, "/secrets/",
                      absl::StrReplaceAll(member_id, {{"/", "_"}}));
}

std::string RunFolder::evaluation_games(int64_t round) const {
  return absl::StrCat(episodes(), "/evaluation_",
                      absl::Dec(round, absl::kZeroPad6), ".games");
}

std::string RunFolder::rank_log(int rank) const {
  return absl::StrCat(logs(), "/rank_", rank, ".log");
}

std::string RunFolder::rank_error(int rank) const {
  return absl::StrCat(logs(), "/rank_", rank, ".error");
}

std::string RunFolder::launcher_config(int first_rank) const {
  return absl::StrCat(logs(), "/launcher_", first_rank, ".config.textproto");
}

bool RunFolder::HoldsRun() const {
  std::error_code error;
  for (const std::string& path : {config(), metrics(), checkpoints()}) {
    if (fs::exists(path, error)) return true;
  }
  return false;
}

bool RunFolder::HasCheckpoint() const {
  std::error_code error;
  return fs::exists(latest_checkpoint(), error);
}

absl::Status RunFolder::Make() const {
  std::error_code error;
  fs::create_directories(logs(), error);
  const std::string secrets = path_ + "/secrets";
  if (!error && mkdir(secrets.c_str(), 0700) != 0 && errno != EEXIST) {
    error.assign(errno, std::generic_category());
  }
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot make the run's folder ",
                                             logs(), ": ", error.message()));
}

bool CheckpointFolder::Exists() const {
  std::error_code error;
  return fs::exists(path_ + "/weights.safetensors", error);
}

}  // namespace flotilla
