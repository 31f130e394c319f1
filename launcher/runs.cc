#include "launcher/runs.h"

#include <errno.h>
#include <fcntl.h>
#include <google/protobuf/util/message_differencer.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/config.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;
using google::protobuf::util::MessageDifferencer;

constexpr char kRuns[] = "runs";

absl::Status Cannot(const std::string& what, const std::string& path,
                    const std::string& why) {
  return absl::UnavailableError(
      absl::StrCat("cannot ", what, " ", path, ": ", why));
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

absl::StatusOr<RunLock> RunLock::Take(const RunFolder& folder) {
  const std::string path = folder.lock();
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return Cannot("open", path, strerrordesc_np(errno));
  RunLock lock(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    char holder[256] = "";
    const ssize_t size = read(fd, holder, sizeof(holder) - 1);
    std::string who(holder, size > 0 ? static_cast<size_t>(size) : 0);
    while (!who.empty() && who.back() == '\n') who.pop_back();
    return absl::FailedPreconditionError(
        absl::StrCat("the run's folder ", folder.path(), " is in use by ",
                     who.empty() ? "another launcher" : who,
                     "; wait for it, stop it (flotilla stop --run-dir ",
                     folder.path(), "), or choose another --run-dir"));
  }
  const std::string self =
      absl::StrCat("pid ", getpid(), " on ", HostName(), "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, self.data(), self.size(), 0) < 0) {
    return Cannot("write", path, strerrordesc_np(errno));
  }
  return lock;
}

RunLock::RunLock(RunLock&& other) : fd_(std::exchange(other.fd_, -1)) {}

RunLock::~RunLock() {
  if (fd_ >= 0) close(fd_);
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

std::string NewestRunPath(const std::string& config_name) {
  std::string newest;
  fs::file_time_type newest_time = fs::file_time_type::min();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kRuns, error)) {
    const std::string name = entry.path().filename();
    if (!config_name.empty() && !absl::StartsWith(name, config_name + "-")) {
      continue;
    }
    const RunFolder folder(entry.path());
    std::error_code absent;
    const auto written = fs::last_write_time(folder.config(), absent);
    if (absent || written < newest_time) continue;
    newest_time = written;
    newest = folder.path();
  }
  return newest;
}

absl::Status CheckResumable(const v1::RunConfig& before,
                            const v1::RunConfig& after) {
  const auto differs = [](const std::string& what, const std::string& was,
                          const std::string& is) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot resume: ", what, " was ", was, " and would be ",
                     is, "; leave it as it was, or start another run"));
  };
  if (before.env().id() != after.env().id()) {
    return differs("env.id", before.env().id(), after.env().id());
  }
  if (before.algorithm_case() != after.algorithm_case()) {
    return differs("the algorithm", AlgorithmName(before),
                   AlgorithmName(after));
  }
  const v1::RunConfig a = Resolved(before), b = Resolved(after);
  if (!MessageDifferencer::Equals(a.model(), b.model())) {
    return differs("model",
                   absl::StrCat("{ ", a.model().ShortDebugString(), " }"),
                   absl::StrCat("{ ", b.model().ShortDebugString(), " }"));
  }
  return absl::OkStatus();
}

}  // namespace flotilla
