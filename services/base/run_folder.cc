#include "services/base/run_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace flotilla {

namespace fs = std::filesystem;

namespace {

// Of a disk that is full, or away, another time may see it made.
absl::Status CannotMake(const std::string& path, const std::error_code& error) {
  const std::string message = absl::StrCat("cannot make the run's folder ",
                                           path, ": ", error.message());
  for (const int never :
       {EACCES, ENOENT, ENOTDIR, EEXIST, EROFS, ENAMETOOLONG}) {
    if (error.value() == never) {
      return absl::InvalidArgumentError(message + "; choose another --run-dir");
    }
  }
  return absl::UnavailableError(message);
}

}  // namespace

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
  return error ? CannotMake(path_, error) : absl::OkStatus();
}

absl::Status RunFolder::MayBeMade() const {
  fs::path at = fs::absolute(path_);
  struct stat there = {};
  while (stat(at.c_str(), &there) != 0) {
    if (errno != ENOENT || !at.has_relative_path()) {
      return CannotMake(path_, {errno, std::generic_category()});
    }
    at = at.parent_path();
  }
  const int problem = !S_ISDIR(there.st_mode)                ? ENOTDIR
                      : access(at.c_str(), W_OK | X_OK) != 0 ? errno
                                                             : 0;
  if (problem == 0) return absl::OkStatus();
  return CannotMake(path_, {problem, std::generic_category()});
}

bool CheckpointFolder::Exists() const {
  std::error_code error;
  return fs::exists(path_ + "/weights.safetensors", error);
}

}  // namespace flotilla
