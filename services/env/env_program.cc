#include "services/env/env_program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/printable.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/base/text_file.h"
#include "services/rpc/credentials.h"

namespace flotilla {
namespace {

// Of prints before it serves: a disk has an end.
constexpr int64_t kMaxLogBytes = 16 << 20;
constexpr size_t kMaxAddressBytes = 4096;
constexpr absl::Duration kPoll = absl::Milliseconds(2);

int64_t SizeOf(const std::string& path) {
  struct stat found;
  return !path.empty() && stat(path.c_str(), &found) == 0 ? found.st_size : 0;
}

// What the file says, once that is a whole line; "" before.
std::string SaidAddress(const std::string& path, const std::string& told) {
  if (SizeOf(path) == 0) return "";
  const std::string text = FirstBytes(path, kMaxAddressBytes);
  const size_t end = text.find('\n');
  if (end == text.npos && text != told && text.size() < kMaxAddressBytes) {
    return "";
  }
  return std::string(absl::StripAsciiWhitespace(text.substr(0, end)));
}

// Says what became of `process`.
class Report {
 public:
  Report(const EnvProgramOptions& options, pid_t pid, int64_t logged)
      : options_(options), pid_(pid), logged_(logged) {}

  // Bytes that it has printed.
  int64_t printed() const { return SizeOf(options_.log_path) - logged_; }

  absl::Status operator()(absl::StatusCode code,
                          const std::string& what) const {
    const std::string& log = options_.log_path;
    const std::string words = printed() > 0 ? PrintableLine(LastLine(log)) : "";
    return absl::Status(
        code,
        absl::StrCat(
            options_.called, " (pid ", pid_, ") ", what,
            words.empty() ? "" : "; its last words: ", words,
            options_.keeps_log && !log.empty() ? "; its log is " + log : ""));
  }

 private:
  const EnvProgramOptions& options_;
  const pid_t pid_;
  const int64_t logged_;  // by others before it
};

absl::StatusOr<std::string> AwaitAddress(
    const Report& report, const std::string& told, const std::string& file,
    absl::Duration timeout, const std::stop_token& stop, Subprocess* process) {
  const absl::Time deadline = SteadyNow() + timeout;
  for (;;) {
    const std::string said = SaidAddress(file, told);
    if (!said.empty()) {
      if (IsLocalAddress(said)) return said;
      return report(absl::StatusCode::kFailedPrecondition,
                    absl::StrCat("wrote \"", PrintableLine(said, 128),
                                 "\" as its address; want ", told,
                                 ", as --listen says, or 127.0.0.1:PORT"));
    }
    if (const auto exit = process->Wait(kPoll)) {
      return report(absl::StatusCode::kUnavailable,
                    absl::StrCat("could not start (", exit->ToString(), ")"));
    }
    if (stop.stop_requested()) return absl::CancelledError("told to stop");
    if (report.printed() > kMaxLogBytes) {
      return report(absl::StatusCode::kResourceExhausted,
                    absl::StrCat("printed more than ", kMaxLogBytes >> 20,
                                 " MiB before it served"));
    }
    if (SteadyNow() > deadline) {
      return report(
          absl::StatusCode::kDeadlineExceeded,
          absl::StrCat("has not started after ",
                       absl::FormatDuration(
                           absl::Ceil(timeout, absl::Milliseconds(100))),
                       ": it serves where --listen says, and then writes that "
                       "address, a line, to the file of --address-file"));
    }
  }
}

}  // namespace

absl::StatusOr<EnvProgram> StartEnvProgram(const EnvProgramOptions& options,
                                           absl::Duration timeout,
                                           std::stop_token stop) {
  const std::string path = FindOnPath(options.command.front());
  if (path.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        options.called, ": there is no program ", options.command.front(),
        absl::StrContains(options.command.front(), '/')
            ? "; paths are seen from where flotilla is started"
            : " on PATH"));
  }
  const std::string told = "unix:" + options.socket;
  const std::string file = options.socket + ".address";
  SubprocessOptions program;
  program.argv = options.command;
  program.argv[0] = path;
  program.argv.push_back("--listen=" + told);
  program.argv.push_back("--address-file=" + file);
  if (!options.env_id.empty()) {
    program.argv.push_back("--env=" + options.env_id);
  }
  program.log_path = options.log_path;
  program.guarded = options.foreign;
  EnvProgram started;
  const int64_t logged = SizeOf(options.log_path);
  auto process = Subprocess::Start(program);
  if (!process.ok()) {
    return absl::Status(
        process.status().code(),
        absl::StrCat(options.called, ": ", process.status().message()));
  }
  started.process = *std::move(process);
  const Report report(options, started.process->pid(), logged);
  ASSIGN_OR_RETURN(started.address, AwaitAddress(report, told, file, timeout,
                                                 stop, started.process.get()));
  unlink(file.c_str());
  return started;
}

}  // namespace flotilla
