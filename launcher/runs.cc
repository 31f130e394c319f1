#include "launcher/runs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <regex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/host_name.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

constexpr char kRuns[] = "runs";

absl::Status Cannot(const std::string& what, const std::string& path,
                    const std::string& why) {
  return absl::UnavailableError(
      absl::StrCat("cannot ", what, " ", path, ": ", why));
}

// Whether the caller is the only one who holds `fd` now; true, too, where the
// file system knows no locks for it (NFS: for folders).
bool LockIsOurs(int fd) {
  return flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

// Whether `path` leads to something else than `fd`, or to nothing, by now. A file system
// that cannot say (a server that is away for a moment) has not said so.
bool IsElsewhere(int fd, const std::string& path) {
  struct stat ours = {}, there = {};
  if (stat(path.c_str(), &there) != 0) {
    return errno == ENOENT || errno == ENOTDIR;
  }
  return fstat(fd, &ours) == 0 &&
         (ours.st_dev != there.st_dev || ours.st_ino != there.st_ino);
}

absl::Status InUse(const RunFolder& folder) {
  const std::string who = FirstLine(folder.lock());
  return absl::FailedPreconditionError(
      absl::StrCat("the run's folder ", folder.path(), " is in use by ",
                   who.empty() ? "another launcher" : who,
                   "; wait for it, stop it (flotilla stop --run-dir ",
                   folder.path(), "), or choose another --run-dir"));
}

// Whether `name` is NewRunPath's, or a Slurm job's, of that configuration: that of
// "ppo-large" begins with "ppo-" too.
bool IsRunOf(const std::string& name, const std::string& config_name) {
  static const std::regex kEnd("-([0-9]{8}-[0-9]{6}(-[0-9]+)?|slurm[0-9]+)");
  return absl::StartsWith(name, config_name) &&
         std::regex_match(name.substr(config_name.size()), kEnd);
}

}  // namespace

absl::StatusOr<RunLock> RunLock::Take(const RunFolder& folder) {
  RunLock lock(folder);
  lock.folder_fd_ =
      open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock.folder_fd_ < 0) {
    return Cannot("open", folder.path(), strerrordesc_np(errno));
  }
  if (!LockIsOurs(lock.folder_fd_)) return InUse(folder);
  if (absl::Status taken = lock.TakeFile(); !taken.ok()) return taken;
  return lock;
}

absl::Status RunLock::TakeFile() {
  const std::string path = folder_.lock();
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return Cannot("open", path, strerrordesc_np(errno));
  if (file_fd_ >= 0) close(file_fd_);
  file_fd_ = fd;
  if (!LockIsOurs(fd)) return InUse(folder_);
  const std::string self =
      absl::StrCat("pid ", getpid(), " on ", HostName(), "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, self.data(), self.size(), 0) < 0) {
    return Cannot("write", path, strerrordesc_np(errno));
  }
  return absl::OkStatus();
}

absl::Status RunLock::Keep() {
  if (IsElsewhere(folder_fd_, folder_.path())) {
    return absl::NotFoundError(absl::StrCat(
        "the run's folder ", folder_.path(),
        " was removed or renamed while the run was going on, and nothing of it "
        "can be saved there any more: the run ends. If it was renamed, go on "
        "with --resume --run-dir NEW_NAME from its newest checkpoint"));
  }
  if (!IsElsewhere(file_fd_, folder_.lock())) return absl::OkStatus();
  const absl::Status taken = TakeFile();
  // A disk that takes nothing now may do so in a second.
  return absl::IsUnavailable(taken) ? absl::OkStatus() : taken;
}

RunLock::RunLock(RunLock&& other)
    : folder_(other.folder_),
      folder_fd_(std::exchange(other.folder_fd_, -1)),
      file_fd_(std::exchange(other.file_fd_, -1)) {}

RunLock::~RunLock() {
  if (file_fd_ >= 0) close(file_fd_);
  if (folder_fd_ >= 0) close(folder_fd_);
}

std::string NewRunPath(const std::string& config_name, absl::Time now) {
  const std::string base = absl::StrCat(
      kRuns, "/", config_name, "-",
      absl::FormatTime("%Y%m%d-%H%M%S", now, absl::LocalTimeZone()));
  std::string path = base;
  std::error_code error;
  for (int i = 2; fs::exists(path, error); ++i) {
    path = absl::StrCat(base, "-", i);
  }
  return path;
}

bool ClaimRunPath(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  // Of any other error RunFolder::Make speaks.
  return mkdir(path.c_str(), 0777) == 0 || errno != EEXIST;
}

std::string NewestRunPath(const std::string& config_name) {
  std::string newest;
  fs::file_time_type newest_time = fs::file_time_type::min();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kRuns, error)) {
    const std::string name = entry.path().filename();
    if (!config_name.empty() && !IsRunOf(name, config_name)) continue;
    const RunFolder folder(entry.path());
    std::error_code absent;
    const auto written = fs::last_write_time(folder.config(), absent);
    if (absent || written < newest_time) continue;
    newest_time = written;
    newest = folder.path();
  }
  return newest;
}

}  // namespace flotilla
