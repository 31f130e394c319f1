#include "services/base/scratch_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/base/host_name.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "flotilla";
constexpr char kRandom[] = "XXXXXX";
constexpr char kLock[] = ".lock";
// The longest name that a socket has in it: "/evaluation_123456_123456".
constexpr size_t kLongestName = 26;
constexpr size_t kLongestSocket = sizeof(sockaddr_un::sun_path) - 1;

std::string Parent() {
  const char* folder = getenv("TMPDIR");
  return folder == nullptr || *folder == '\0' ? "/tmp" : folder;
}

// "flotilla_1234_a1B2c3".
bool IsScratchName(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '_');
  return parts.size() == 3 && parts[0] == kPrefix && !parts[1].empty() &&
         std::all_of(parts[1].begin(), parts[1].end(), absl::ascii_isdigit) &&
         parts[2].size() == sizeof(kRandom) - 1;
}

// What a lock says of who has it: where TMPDIR is shared, and locks hold on their own
// host alone, another's is found free.
std::string Owner() { return HostName() + "\n"; }

bool IsOurHosts(int lock) {
  const std::string ours = Owner();
  std::string owner(ours.size() + 1, '\0');
  const ssize_t size = pread(lock, owner.data(), owner.size(), 0);
  return size == 0 || (size > 0 && owner.substr(0, size) == ours);
}

// Takes the lock before it has its name, so that nobody finds it free. -1 where
// the file system has no locks.
int TakeLock(const std::string& folder) {
  const std::string nameless = absl::StrCat(folder, "/", kLock, ".new");
  const int fd = open(nameless.c_str(),
                      O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  const std::string owner = Owner();
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 &&
      write(fd, owner.data(), owner.size()) ==
          static_cast<ssize_t>(owner.size()) &&
      rename(nameless.c_str(), absl::StrCat(folder, "/", kLock).c_str()) == 0) {
    return fd;
  }
  close(fd);
  unlink(nameless.c_str());
  return -1;
}

}  // namespace

ScratchFolder::ScratchFolder() : status_(Make()) {}

absl::Status ScratchFolder::Make() {
  const std::string parent = Parent();
  std::error_code error;
  if (!fs::is_directory(parent, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat("TMPDIR is ", parent,
                     ", which is no folder; make it, or name another one"));
  }
  static const bool cleaned = [&] {
    RemoveAbandonedScratch(parent);
    return true;
  }();
  static_cast<void>(cleaned);
  std::string path =
      absl::StrCat(parent, "/", kPrefix, "_", getpid(), "_", kRandom);
  if (path.size() + kLongestName > kLongestSocket) {
    return absl::FailedPreconditionError(absl::StrCat(
        "TMPDIR is ", parent, ", too long for the unix sockets in it: it has ",
        parent.size(), " characters, a socket's path ", kLongestSocket,
        " at most; name a shorter one (TMPDIR=/tmp)"));
  }
  if (mkdtemp(path.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "cannot make a folder in TMPDIR, ", parent, ": ",
        strerrordesc_np(errno), "; free some disk, or name another one"));
  }
  path_ = path;
  lock_ = TakeLock(path_);
  return absl::OkStatus();
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

void RemoveAbandonedScratch(const std::string& parent) {
  std::error_code error;
  for (fs::directory_iterator at(parent, error), end; !error && at != end;
       at.increment(error)) {
    const std::string path = at->path();
    struct stat folder = {};
    if (!IsScratchName(at->path().filename()) ||
        lstat(path.c_str(), &folder) != 0 || !S_ISDIR(folder.st_mode) ||
        folder.st_uid != geteuid()) {
      continue;
    }
    const int lock = open(absl::StrCat(path, "/", kLock).c_str(),
                          O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (lock < 0) continue;
    std::error_code ignored;
    if (IsOurHosts(lock) && flock(lock, LOCK_EX | LOCK_NB) == 0) {
      fs::remove_all(path, ignored);
    }
    close(lock);
  }
}

}  // namespace flotilla
