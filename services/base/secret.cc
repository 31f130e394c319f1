#include "services/base/secret.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/atomic_file.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr size_t kSecretBytes = 32;

bool IsSecret(const std::string& text) {
  return text.size() == 2 * kSecretBytes &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isxdigit(c); });
}

// Whether the file system of `fd`, whose mode is `mode`, keeps modes: Windows' and SMB's
// often do not.
bool KeepsModes(int fd, mode_t mode) {
  constexpr mode_t kHarmless = 0100;
  struct stat now = {};
  if (fchmod(fd, (mode ^ kHarmless) & 07777) != 0) return true;
  const bool kept = fstat(fd, &now) == 0 && now.st_mode != mode;
  return kept && fchmod(fd, mode & 07777) == 0;
}

// Whether nobody else may read or write it, or that cannot be helped: Kubernetes gives
// the files of a volume to a pod's group (fsGroup).
bool IsClosed(const std::string& path, int fd, const struct stat& info) {
  if (info.st_uid != geteuid() && geteuid() != 0) return false;
  if ((info.st_mode & 077) == 0) return true;
  if (!KeepsModes(fd, info.st_mode)) {
    LOG(WARNING)
        << "the file system of \"" << path
        << "\" keeps no modes: whoever sees that folder can change the "
           "run";
    return true;
  }
  if ((info.st_mode & 07) != 0 || fchmod(fd, 0600) != 0) return false;
  LOG(WARNING) << "the secret \"" << path
               << "\" was open to its group, which may know it; it is no more";
  return true;
}

}  // namespace

std::string DrawSecret() {
  std::string bytes(kSecretBytes, '\0');
  size_t drawn = 0;
  while (drawn < kSecretBytes) {
    const ssize_t n = getrandom(bytes.data() + drawn, kSecretBytes - drawn, 0);
    PCHECK(n >= 0 || errno == EINTR) << "getrandom";
    if (n > 0) drawn += static_cast<size_t>(n);
  }
  return absl::BytesToHexString(bytes);
}

absl::StatusOr<std::string> ReadSecret(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("cannot read the secret \"", path, "\""));
  }
  struct stat info = {};
  absl::Status status;
  if (fstat(fd, &info) != 0) {
    status = absl::ErrnoToStatus(errno, path);
  } else if (!IsClosed(path, fd, info)) {
    status = absl::PermissionDeniedError(absl::StrFormat(
        "the secret \"%s\" is open to others (mode %04o, owner %d): chmod 600 "
        "it, or delete it and start anew",
        path, info.st_mode & 07777, info.st_uid));
  }
  char text[2 * kSecretBytes + 2];
  const ssize_t size = read(fd, text, sizeof(text));
  close(fd);
  RETURN_IF_ERROR(status);
  std::string secret(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  absl::StripAsciiWhitespace(&secret);
  if (IsSecret(secret)) return secret;
  return absl::DataLossError(
      absl::StrCat("\"", path, "\" holds no secret of ", 2 * kSecretBytes,
                   " hex digits: delete it, and start anew"));
}

absl::StatusOr<std::string> ReadOrDrawSecret(const std::string& path) {
  const auto there = ReadSecret(path);
  if (!absl::IsNotFound(there.status())) return there;
  const std::string secret = DrawSecret();
  RETURN_IF_ERROR(WriteFileAtomically(path, secret + "\n", 0600));
  return secret;
}

bool EqualInConstantTime(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = difference | static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

}  // namespace flotilla
