#include "launcher/video.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "launcher/python_program.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

constexpr absl::Duration kStartTimeout = absl::Minutes(1);
constexpr absl::Duration kEndTimeout = absl::Minutes(10);
constexpr absl::Duration kUndoTimeout = absl::Seconds(5);
constexpr absl::Duration kEncoderPoll = absl::Milliseconds(5);

// Before each frame, little-endian; 0 x 0 says that all have come.
struct Size {
  uint32_t width = 0;
  uint32_t height = 0;
};

}  // namespace

absl::Status CheckVideoPath(const std::string& path) {
  const std::filesystem::path file(path);
  const std::string extension =
      absl::AsciiStrToLower(file.extension().string());
  if (extension != ".mp4" && extension != ".webp" && extension != ".gif") {
    return absl::InvalidArgumentError(
        absl::StrCat("--video is \"", path,
                     "\"; want a name that ends in .mp4, .webp or .gif"));
  }
  const std::filesystem::path folder =
      file.has_parent_path() ? file.parent_path() : ".";
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--video is \"", path, "\", and there is no folder ", folder.string()));
}

absl::StatusOr<std::unique_ptr<VideoWriter>> VideoWriter::Open(
    const std::string& path, double frames_per_second, std::stop_token stop) {
  RETURN_IF_ERROR(CheckVideoPath(path));
  std::signal(SIGPIPE, SIG_IGN);
  std::unique_ptr<VideoWriter> writer(new VideoWriter);
  RETURN_IF_ERROR(writer->scratch_.status());
  writer->path_ = path;
  writer->stop_ = std::move(stop);
  const std::string& folder = writer->scratch_.path();
  const std::string pipe = folder + "/frames";
  if (mkfifo(pipe.c_str(), 0600) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot make a pipe ", pipe, ": ", std::strerror(errno)));
  }
  SubprocessOptions encoder;
  ASSIGN_OR_RETURN(encoder.argv,
                   VideoCommand({"--frames=" + pipe, "--out=" + path,
                                 absl::StrCat("--fps=", frames_per_second),
                                 "--error-file=" + folder + "/error"}));
  encoder.log_path = folder + "/log";
  ASSIGN_OR_RETURN(writer->encoder_, Subprocess::Start(encoder));
  const absl::Time deadline = SteadyNow() + kStartTimeout;
  for (;;) {
    // Nobody reads yet: ENXIO.
    writer->pipe_ =
        OwnedFd(open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    if (writer->pipe_.get() >= 0) break;
    if (errno != ENXIO && errno != EINTR) {
      return absl::UnavailableError(
          absl::StrCat("cannot open ", pipe, ": ", std::strerror(errno)));
    }
    if (writer->encoder_->Wait(kEncoderPoll)) return writer->Explain();
    if (writer->stop_.stop_requested()) return absl::CancelledError("stopped");
    if (SteadyNow() > deadline) {
      return absl::DeadlineExceededError("the video's encoder does not start");
    }
  }
  const int fd = writer->pipe_.get();
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return writer;
}

VideoWriter::~VideoWriter() {
  // Before it has the pipe it has made nothing.
  if (pipe_.get() < 0) return;
  pipe_ = OwnedFd();
  encoder_->Wait(kUndoTimeout);
}

absl::Status VideoWriter::Write(const v1::Frame& frame) {
  const bool drawn =
      frame.width() > 0 && frame.height() > 0 &&
      frame.rgb().size() == size_t{3} * frame.width() * frame.height();
  if (!drawn) {
    return absl::InternalError(
        absl::StrCat("a frame of ", frame.width(), " x ", frame.height(),
                     " has ", frame.rgb().size(), " bytes, want 3 a pixel"));
  }
  const Size size = {static_cast<uint32_t>(frame.width()),
                     static_cast<uint32_t>(frame.height())};
  RETURN_IF_ERROR(WriteBytes(&size, sizeof(size)));
  RETURN_IF_ERROR(WriteBytes(frame.rgb().data(), frame.rgb().size()));
  ++frames_;
  return absl::OkStatus();
}

absl::Status VideoWriter::Close() {
  const Size end;
  RETURN_IF_ERROR(WriteBytes(&end, sizeof(end)));
  const absl::Time deadline = SteadyNow() + kEndTimeout;
  std::optional<Subprocess::Exit> exit;
  while (!exit && SteadyNow() < deadline) {
    if (stop_.stop_requested()) {
      // It has all frames, and would go on without the pipe.
      encoder_->Signal(SIGINT, /*whole_group=*/true);
      return absl::CancelledError("stopped");
    }
    exit = encoder_->Wait(kEncoderPoll);
  }
  if (exit && exit->code == 0) return absl::OkStatus();
  return Explain();
}

absl::Status VideoWriter::WriteBytes(const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(pipe_.get(), at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Explain();
    at += written;
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status VideoWriter::Explain() {
  const auto exit = encoder_->Wait(absl::Seconds(5));
  const std::string why = FirstLine(scratch_.path() + "/error");
  if (!why.empty()) return absl::FailedPreconditionError(why);
  const std::string last = LastLine(scratch_.path() + "/log");
  return absl::InternalError(absl::StrCat(
      "cannot write ", path_, ": the encoder ",
      exit ? absl::StrCat("ended with ", exit->ToString()) : "does not end",
      last.empty() ? "" : ": ", last));
}

}  // namespace flotilla
