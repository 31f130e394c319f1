#include "launcher/coordinator_process.h"

#include <signal.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "launcher/coordinator_calls.h"
#include "launcher/programs.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/base/text_file.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(20);
constexpr absl::Duration kStopTimeout = absl::Seconds(3);
constexpr int kMostRestarts = 10;
constexpr absl::Duration kRestartWindow = absl::Minutes(10);

std::string WithAnyPort(const std::string& address) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":0");
}

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorProcess>> CoordinatorProcess::Start(
    const CoordinatorOptions& options) {
  std::error_code ignored;
  std::filesystem::remove(options.folder.coordinator_journal(), ignored);
  std::unique_ptr<CoordinatorProcess> result(new CoordinatorProcess(options));
  const bool taken = options.any_port && SomethingListens(options.address);
  absl::Status started =
      result->Begin(taken ? WithAnyPort(options.address) : options.address);
  // Someone may have taken it just now, or listen where we cannot connect.
  if (!started.ok() && options.any_port && !taken) {
    started = result->Begin(WithAnyPort(options.address));
  }
  RETURN_IF_ERROR(started);
  return result;
}

CoordinatorProcess::CoordinatorProcess(const CoordinatorOptions& options)
    : options_(options), budget_(kMostRestarts, kRestartWindow) {}

CoordinatorProcess::~CoordinatorProcess() {
  if (process_ == nullptr) return;
  process_->Signal(SIGTERM);
  process_->Wait(kStopTimeout);
}

absl::Status CoordinatorProcess::Launch(const std::string& address) {
  SubprocessOptions program;
  ASSIGN_OR_RETURN(const std::string path, FindProgram("flotilla-coordinator"));
  program.argv = {path, "--listen=" + address,
                  "--address_file=" + options_.folder.coordinator_address(),
                  "--journal=" + options_.folder.coordinator_journal()};
  const RpcCredentials& c = options_.credentials;
  if (!c.uses_tls() && !c.uses_token()) {
    if (c.insecure) {  // an earlier start's would only mislead
      std::error_code ignored;
      std::filesystem::remove(options_.folder.token(), ignored);
    } else {
      program.argv.push_back("--run-token=" + options_.folder.token());
    }
  }
  for (const std::string& flag : options_.flags) program.argv.push_back(flag);
  for (const std::string& flag : CredentialFlags(options_.credentials)) {
    program.argv.push_back(flag);
  }
  program.log_path = options_.folder.coordinator_log();
  ASSIGN_OR_RETURN(process_, Subprocess::Start(program));
  return absl::OkStatus();
}

// For the first time: on whatever port it gets. The next ones are where it is, so
// that the file holds for them too, whether or not they can write it again.
absl::Status CoordinatorProcess::Begin(const std::string& address) {
  const std::string file = options_.folder.coordinator_address();
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  RETURN_IF_ERROR(Launch(address));
  const absl::Status started = process_->AwaitFile(file, kStartTimeout);
  address_ = FirstLine(file);
  if (started.ok()) return absl::OkStatus();
  const std::string log = options_.folder.coordinator_log();
  return absl::UnavailableError(absl::StrCat("the coordinator ",
                                             started.message(), ": ",
                                             LastLine(log), "\nlog: ", log));
}

absl::Status CoordinatorProcess::Check() {
  std::string trouble = "the coordinator ";
  if (restart_at_) {
    if (SteadyNow() < *restart_at_) return absl::OkStatus();
    restart_at_.reset();
    const absl::Status launched = Launch(address_);
    if (launched.ok()) return absl::OkStatus();
    absl::StrAppend(&trouble, "cannot be started (", launched.message(), ")");
  } else {
    const auto exit = process_->Poll();
    if (!exit) return absl::OkStatus();
    absl::StrAppend(&trouble, "died (", exit->ToString(), ")");
  }
  const auto pause = budget_.Charge(SteadyNow());
  if (!pause) {
    return absl::UnavailableError(absl::StrCat(
        trouble, " again and again; log: ", options_.folder.coordinator_log()));
  }
  options_.notice(absl::StrCat(trouble, "; starting it again",
                               AfterPause(*pause), ", training goes on"));
  restart_at_ = SteadyNow() + *pause;
  return absl::OkStatus();
}

}  // namespace flotilla
