// flotilla-learner: one rank of training, or the player behind
// `flotilla evaluate`. Started by the launcher; see launcher/.

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "learner/evaluate_main.h"
#include "learner/torch.h"
#include "learner/training/runtime.h"
#include "learner/training/trainer.h"
#include "services/base/config.h"
#include "services/base/exit_codes.h"
#include "services/base/lifeline.h"
#include "services/base/run_folder.h"
#include "services/base/sha256.h"
#include "services/base/status_macros.h"
#include "services/base/version.h"

ABSL_FLAG(std::string, config, "", "the resolved RunConfig, text format");
ABSL_FLAG(std::string, run_dir, "", "the run's folder");
ABSL_FLAG(std::string, coordinator, "", "HOST:PORT of the coordinator");
ABSL_FLAG(std::string, member_id, "learner/0/0", "this learner's name");
ABSL_FLAG(int64_t, incarnation, 0, "grows with each restart of this learner");
ABSL_FLAG(int, node_rank, 0, "this node's rank");
ABSL_FLAG(int, local_rank, 0, "this learner's rank on its node");
ABSL_FLAG(int, local_world_size, 1, "learners on this node");
ABSL_FLAG(int, requested_rank, 0, "the rank to ask the coordinator for");
ABSL_FLAG(int64_t, restarts, 0, "how often the launcher replaced this learner");
ABSL_FLAG(std::string, resume, "", "a checkpoint, or \"latest\" of the run");
ABSL_FLAG(std::string, evaluate, "", "evaluate this checkpoint instead");
ABSL_FLAG(int, episodes, 100, "with --evaluate: how many");
ABSL_FLAG(std::string, output, "", "with --evaluate: the JSON file to write");
ABSL_FLAG(std::string, tls_cert, "", "PEM certificate of this process");
ABSL_FLAG(std::string, tls_key, "", "PEM key of this process");
ABSL_FLAG(std::string, tls_ca, "", "PEM certificate authority of all peers");
ABSL_FLAG(std::string, token_file, "", "file with the shared token");
ABSL_FLAG(bool, insecure, false, "allow plaintext to other hosts");

namespace flotilla {
namespace {

RpcCredentials Credentials() {
  RpcCredentials c;
  c.tls_cert = absl::GetFlag(FLAGS_tls_cert);
  c.tls_key = absl::GetFlag(FLAGS_tls_key);
  c.tls_ca = absl::GetFlag(FLAGS_tls_ca);
  c.token_file = absl::GetFlag(FLAGS_token_file);
  c.insecure = absl::GetFlag(FLAGS_insecure);
  return c;
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

v1::Member Self(const v1::RunConfig& config) {
  v1::Member self;
  self.set_id(absl::GetFlag(FLAGS_member_id));
  self.set_incarnation(absl::GetFlag(FLAGS_incarnation));
  self.set_role(v1::LEARNER);
  self.set_host(HostName());
  self.set_pid(getpid());
  self.set_device(config.runtime().device());
  self.set_node_rank(absl::GetFlag(FLAGS_node_rank));
  self.set_local_rank(absl::GetFlag(FLAGS_local_rank));
  self.set_local_world_size(absl::GetFlag(FLAGS_local_world_size));
  self.set_requested_rank(absl::GetFlag(FLAGS_requested_rank) + 1);
  self.set_version(Version());
  self.set_config_digest(ConfigDigest(config));
  self.set_restarts(absl::GetFlag(FLAGS_restarts));
  return self;
}

// The launcher reads the earliest of these as the job's root cause.
void WriteLastWords(const absl::Status& status) {
  std::fprintf(stderr, "flotilla-learner: %s\n", status.ToString().c_str());
  if (absl::GetFlag(FLAGS_run_dir).empty()) return;
  const RunFolder folder(absl::GetFlag(FLAGS_run_dir));
  std::ofstream(folder.rank_error(absl::GetFlag(FLAGS_requested_rank)))
      << status.message() << "\n";
}

absl::StatusOr<RunOutcome> RunTraining(const ShutdownSignals& signals) {
  ASSIGN_OR_RETURN(const v1::RunConfig config,
                   LoadRunConfig(absl::GetFlag(FLAGS_config), {}));
  RETURN_IF_ERROR(Validate(config));
  TrainerOptions options;
  options.config = Resolved(config);
  options.run_folder = absl::GetFlag(FLAGS_run_dir);
  options.member_id = absl::GetFlag(FLAGS_member_id);
  options.first_rank = absl::GetFlag(FLAGS_requested_rank);
  options.incarnation = absl::GetFlag(FLAGS_incarnation);
  options.resume = absl::GetFlag(FLAGS_resume);
  if (options.resume == "latest") {
    options.resume = RunFolder(options.run_folder).latest_checkpoint();
  }
  options.credentials = Credentials();
  options.local_rank = absl::GetFlag(FLAGS_local_rank);
  options.local_world_size = absl::GetFlag(FLAGS_local_world_size);
  options.give_up = [](const absl::Status& status) {
    WriteLastWords(status);
    _exit(kExitFailed);
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<CoordinatorClient> coordinator,
                   JoinRun(absl::GetFlag(FLAGS_coordinator), Self(config),
                           options.credentials, absl::Seconds(60)));
  absl::StatusOr<RunOutcome> outcome =
      Train(options, coordinator.get(), signals);
  coordinator
      ->Leave(outcome.ok() ? OutcomeName(*outcome)
                           : std::string(outcome.status().message()))
      .IgnoreError();
  return outcome;
}

int CodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
      return kExitUsage;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kResourceExhausted:
      return kExitHopeless;
    default:
      return kExitFailed;
  }
}

int Main() {
  KeepMemory();
  auto installed = ShutdownSignals::Install();
  if (!installed.ok()) {
    std::fprintf(stderr, "%s\n", installed.status().ToString().c_str());
    return kExitFailed;
  }
  // Never destroyed: a signal that comes when all is saved must not turn the
  // exit code into a death.
  const ShutdownSignals* const signals = installed->release();
  absl::StatusOr<RunOutcome> outcome = RunOutcome::kCompleted;
  try {
    if (!absl::GetFlag(FLAGS_evaluate).empty()) {
      const absl::Status evaluated = EvaluateCheckpoint(
          absl::GetFlag(FLAGS_evaluate), absl::GetFlag(FLAGS_episodes),
          absl::GetFlag(FLAGS_output), signals->Stop());
      if (!evaluated.ok()) outcome = evaluated;
    } else {
      outcome = RunTraining(*signals);
    }
  } catch (const std::exception& e) {  // Torch throws
    outcome = absl::InternalError(e.what());
  }
  if (!outcome.ok()) {
    WriteLastWords(outcome.status());
    return CodeFor(outcome.status());
  }
  switch (*outcome) {
    case RunOutcome::kPreempted:
      return kExitPreempted;
    case RunOutcome::kInterrupted:
      return kExitInterrupted;
    default:
      return kExitDone;
  }
}

}  // namespace
}  // namespace flotilla

int main(int argc, char** argv) {
  flotilla::StartLifelineWatch();
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  absl::SetProgramUsageMessage(
      "One rank of training. `flotilla train` starts it with the right flags.");
  absl::ParseCommandLine(argc, argv);
  return flotilla::Main();
}
