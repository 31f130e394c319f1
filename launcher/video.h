#ifndef FLOTILLA_LAUNCHER_VIDEO_H_
#define FLOTILLA_LAUNCHER_VIDEO_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/env.pb.h"
#include "services/base/owned_fd.h"
#include "services/base/scratch_folder.h"
#include "services/base/subprocess.h"

namespace flotilla {

// Errors: kInvalidArgument unless `path` ends in .mp4, .webp or .gif, and its folder
// is there.
absl::Status CheckVideoPath(const std::string& path);

// A file of frames, as its name says: .mp4 (H.264), .webp or .gif. Encoded by a
// library of Python's (launcher/python/flotilla_video) as frames come, through a
// pipe.
//
// Not thread-safe.
class VideoWriter {
 public:
  // Blocks until the encoder is there. Ignores SIGPIPE from here on.
  // Errors: those of CheckVideoPath; kFailedPrecondition, with the remedy, if Python
  // or its packages are not there; kCancelled, here and by Close, once `stop` is asked
  // for.
  static absl::StatusOr<std::unique_ptr<VideoWriter>> Open(
      const std::string& path, double frames_per_second, std::stop_token stop);

  // Without Close there will be no file. Gives the encoder a second to remove
  // what it has of one.
  ~VideoWriter();

  // Blocks while the encoder is behind. Errors: the encoder's, which ended.
  absl::Status Write(const v1::Frame& frame);

  // Blocks until the file is there, whole.
  absl::Status Close();

  int64_t frames() const { return frames_; }

 private:
  VideoWriter() = default;
  absl::Status WriteBytes(const void* data, size_t size);
  absl::Status Explain();

  std::string path_;
  std::stop_token stop_;
  ScratchFolder scratch_;
  std::unique_ptr<Subprocess> encoder_;
  OwnedFd pipe_;
  int64_t frames_ = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_VIDEO_H_
