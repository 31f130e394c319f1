#include "services/base/append_file.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

constexpr size_t kMostPending = 16 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<AppendFile>> AppendFile::Open(
    const std::string& path, int flags) {
  const int fd = ::open(
      path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0644);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  }
  return std::unique_ptr<AppendFile>(new AppendFile(path, fd));
}

AppendFile::~AppendFile() {
  Append("");
  if (!pending_.empty()) {
    LOG(ERROR) << "the last " << pending_.size() << " bytes of " << path_
               << " are lost";
  }
  ::close(fd_);
}

void AppendFile::Append(std::string_view record) {
  if (pending_.size() + record.size() <= kMostPending) {
    pending_.append(record);
  } else if (!lossy_) {
    LOG(ERROR) << path_ << " loses records: " << pending_.size()
               << " bytes wait for room on the disk already";
    lossy_ = true;
  }
  while (!pending_.empty()) {
    const ssize_t written = ::write(fd_, pending_.data(), pending_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      LOG_IF(WARNING, !waits_)
          << "cannot write " << path_ << " now: " << std::strerror(errno)
          << "; it is written when there is room";
      waits_ = true;
      return;
    }
    pending_.erase(0, written);
  }
  LOG_IF(INFO, waits_) << path_ << " is being written again";
  waits_ = lossy_ = false;
}

}  // namespace flotilla
