#include "learner/learner_main.h"

#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "learner/algo/algorithm.h"
#include "learner/algo/algorithm_plugin.h"
#include "learner/collective/local_address.h"
#include "learner/collective/rank_device.h"
#include "learner/evaluate_main.h"
#include "learner/torch.h"
#include "learner/training/runtime.h"
#include "learner/training/trainer.h"
#include "services/base/atomic_file.h"
#include "services/base/command_line.h"
#include "services/base/config.h"
#include "services/base/cores.h"
#include "services/base/descriptors.h"
#include "services/base/exit_codes.h"
#include "services/base/global_sizes.h"
#include "services/base/host_name.h"
#include "services/base/lifeline.h"
#include "services/base/run_folder.h"
#include "services/base/secret.h"
#include "services/base/sha256.h"
#include "services/base/status_macros.h"
#include "services/base/subprocess.h"
#include "services/base/text_file.h"
#include "services/base/version.h"
#include "services/env/spaces.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

struct Flags {
  std::string config;
  std::string run_dir;
  std::string coordinator;
  std::string member_id = "learner/0/0";
  std::string secret_file;
  int64_t incarnation = 0;
  int node_rank = 0;
  int local_rank = 0;
  int local_world_size = 1;
  int world_size = 1;
  std::string device_ids;
  std::string cores;
  bool given_rank = false;
  int requested_rank = 0;
  int64_t restarts = 0;
  std::string resume;
  std::string evaluate;
  std::string try_spec;
  int episodes = 100;
  int decisions = 0;
  std::string output;
  std::string games;
  RpcCredentials credentials;
  DeviceChooser choose_device;
};

CommandLine MakeLine(Flags* flags) {
  CommandLine line(
      "flotilla-learner [flags]",
      "One rank of training. `flotilla train` starts it with the right flags.");
  line.Text("--config", "FILE", "the resolved RunConfig, text format",
            &flags->config);
  line.Text("--run-dir", "DIR", "the run's folder", &flags->run_dir);
  line.Text("--coordinator", "HOST:PORT", "its coordinator",
            &flags->coordinator);
  line.Text("--member-id", "ID", "this learner's name", &flags->member_id);
  line.Text("--secret-file", "FILE",
            "the secret of its slot, which all its incarnations have",
            &flags->secret_file);
  line.Int("--incarnation", "N", 0, "grows with each restart of this learner",
           &flags->incarnation);
  line.Int("--node-rank", "R", 0, "this node's rank", &flags->node_rank);
  line.Int("--local-rank", "R", 0, "this learner's rank on its node",
           &flags->local_rank);
  line.Int("--local-world-size", "N", 1, "learners on this node",
           &flags->local_world_size);
  line.Int("--world-size", "N", 1, "learners of the job, if that is fixed",
           &flags->world_size);
  line.Text("--device-ids", "0,0,1", "the GPU of each learner on this node",
            &flags->device_ids);
  line.Text("--cores", "0,2,3", "those that it and its env workers run on",
            &flags->cores);
  line.Switch("--given-rank", "srun or its like may have bound a GPU",
              &flags->given_rank);
  line.Int("--requested-rank", "R", 0, "the rank to ask the coordinator for",
           &flags->requested_rank);
  line.Int("--restarts", "N", 0, "how often the launcher replaced this learner",
           &flags->restarts);
  line.Text("--resume", "latest|PATH", "the checkpoint to go on from",
            &flags->resume);
  line.Text("--evaluate", "CHECKPOINT", "evaluate it instead",
            &flags->evaluate);
  line.Int("--episodes", "N", 1, "with --evaluate: how many", &flags->episodes);
  line.Int("--decisions", "N", 1,
           "with --evaluate: instead so many decisions, which are recorded",
           &flags->decisions);
  line.Text("--try", "FILE",
            "say whether the configuration's network and algorithm fit an "
            "environment of this EnvSpec (text format) instead",
            &flags->try_spec);
  line.Text("--output", "FILE",
            "with --evaluate: the JSON file to write, or safetensors of "
            "decisions; with --try: what does not fit, or nothing",
            &flags->output);
  line.Text("--games", "FILE",
            "with --evaluate: what to write its games to, to be seen again",
            &flags->games);
  AddCredentialFlags(&flags->credentials, &line);
  return line;
}

absl::StatusOr<RankDevice> Device(const Flags& flags,
                                  const v1::RuntimeConfig& runtime) {
  DeviceRequest request;
  request.device = runtime.device();
  request.local_world_size = flags.local_world_size;
  request.given_rank = flags.given_rank;
  if (!flags.device_ids.empty()) {
    ASSIGN_OR_RETURN(request.ids, ParseDeviceIds(flags.device_ids));
  }
  return flags.choose_device(request, flags.local_rank);
}

v1::Member Self(const Flags& flags, const v1::RunConfig& config,
                const std::string& device) {
  v1::Member self;
  self.set_id(flags.member_id);
  self.set_incarnation(flags.incarnation);
  self.set_role(v1::LEARNER);
  self.set_host(HostName());
  self.set_pid(getpid());
  self.set_device(device);
  self.set_node_rank(flags.node_rank);
  self.set_local_rank(flags.local_rank);
  self.set_local_world_size(flags.local_world_size);
  self.set_requested_rank(flags.requested_rank + 1);
  self.set_version(Version());
  self.set_config_digest(ConfigDigest(config));
  self.set_restarts(flags.restarts);
  self.set_ip(IpTowards(flags.coordinator));
  self.set_network(NetworkOfThisProcess());
  return self;
}

// The launcher reads the earliest of these as the job's root cause.
void WriteLastWords(const Flags& flags, const absl::Status& status) {
  std::fprintf(stderr, "flotilla-learner: %s\n", status.ToString().c_str());
  if (flags.run_dir.empty()) return;
  const RunFolder folder(flags.run_dir);
  std::ofstream(folder.rank_error(flags.requested_rank))
      << status.message() << "\n";
}

absl::StatusOr<RunOutcome> RunTraining(const Flags& flags,
                                       const ShutdownSignals& signals) {
  ASSIGN_OR_RETURN(const v1::RunConfig config, LoadRunConfig(flags.config, {}));
  RETURN_IF_ERROR(LoadCustomAlgorithm(config));
  RETURN_IF_ERROR(Validate(config));
  TrainerOptions options;
  options.run_config = Resolved(config);
  ASSIGN_OR_RETURN(options.config,
                   SizesOfLearner(options.run_config, flags.world_size));
  options.run_folder = flags.run_dir;
  options.member_id = flags.member_id;
  options.first_rank = flags.requested_rank;
  options.incarnation = flags.incarnation;
  options.resume = flags.resume;
  if (options.resume == "latest") {
    options.resume = RunFolder(options.run_folder).latest_checkpoint();
  }
  options.coordinator = flags.coordinator;
  options.credentials = flags.credentials;
  ASSIGN_OR_RETURN(const RankDevice device, Device(flags, config.runtime()));
  options.device = device.device;
  options.local_world_size = flags.local_world_size;
  options.give_up = [&flags](const absl::Status& status) {
    WriteLastWords(flags, status);
    _exit(kExitFailed);
  };
  std::string secret;
  if (!flags.secret_file.empty()) {
    ASSIGN_OR_RETURN(secret, ReadSecret(flags.secret_file));
  }
  auto joined = JoinRun(flags.coordinator, Self(flags, config, device.name),
                        options.credentials, absl::Seconds(60), secret);
  if (absl::IsUnauthenticated(joined.status()) ||
      absl::IsPermissionDenied(joined.status())) {  // the next would be, too
    return absl::FailedPreconditionError(joined.status().message());
  }
  if (absl::IsAborted(joined.status())) {  // the others have finished the run
    LOG(INFO) << "nothing is left to do: " << joined.status().message();
    return RunOutcome::kCompleted;
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<CoordinatorClient> coordinator,
                   std::move(joined));
  absl::StatusOr<RunOutcome> outcome =
      Train(options, coordinator.get(), signals);
  coordinator
      ->Leave(outcome.ok() ? OutcomeName(*outcome)
                           : std::string(outcome.status().message()))
      .IgnoreError();
  return outcome;
}

// What can be known of a run without playing: for `flotilla train --dry-run`.
absl::Status TryConfiguration(const Flags& flags) {
  ASSIGN_OR_RETURN(const v1::RunConfig config, LoadRunConfig(flags.config, {}));
  RETURN_IF_ERROR(LoadCustomAlgorithm(config));
  RETURN_IF_ERROR(Validate(config));
  v1::EnvSpec spec;
  if (!google::protobuf::TextFormat::ParseFromString(
          WholeFile(flags.try_spec).value_or(""), &spec)) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.try_spec, " holds no EnvSpec"));
  }
  ASSIGN_OR_RETURN(const Spaces spaces, DescribeSpaces(spec, config.model()));
  return MakeAlgorithm(config, spaces, torch::kCPU).status();
}

absl::Status WriteVerdict(const Flags& flags) {
  absl::Status tried;
  try {
    tried = TryConfiguration(flags);
  } catch (const std::exception& e) {  // Torch throws
    tried = absl::InternalError(e.what());
  }
  return WriteFileAtomically(flags.output, std::string(tried.message()) + "\n");
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

// Before there are other threads.
void PinToCores(const std::string& list) {
  std::vector<int> cores;
  for (const absl::string_view core :
       absl::StrSplit(list, ',', absl::SkipEmpty())) {
    int number = 0;
    if (absl::SimpleAtoi(core, &number)) cores.push_back(number);
  }
  if (cores.empty() || PinTo(cores)) return;
  std::fprintf(stderr, "flotilla-learner: cannot run on cores %s alone: %s\n",
               list.c_str(), std::strerror(errno));
}

int Main(const Flags& flags) {
  KeepMemory();
  PinToCores(flags.cores);
  StartLifelineWatch();
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
    if (!flags.try_spec.empty()) {
      const absl::Status written = WriteVerdict(flags);
      if (!written.ok()) outcome = written;
    } else if (!flags.evaluate.empty()) {
      const absl::Status evaluated = EvaluateCheckpoint(
          flags.evaluate, flags.episodes, flags.decisions, flags.output,
          flags.games, flags.credentials, flags.choose_device, signals->Stop());
      if (!evaluated.ok()) outcome = evaluated;
    } else {
      outcome = RunTraining(flags, *signals);
    }
  } catch (const std::system_error& e) {
    outcome = absl::ResourceExhaustedError(
        e.code() == std::errc::resource_unavailable_try_again
            ? absl::StrCat("cannot start a thread: ", ProcessLimitHint())
            : std::string(e.what()));
  } catch (const std::exception& e) {  // Torch throws
    outcome = absl::InternalError(e.what());
  }
  if (!outcome.ok()) {
    WriteLastWords(flags, outcome.status());
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

int LearnerMain(int argc, char** argv, DeviceChooser choose_device) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  RaiseDescriptorLimit();
  Flags flags;
  flags.choose_device = std::move(choose_device);
  CommandLine line = MakeLine(&flags);
  const auto exit_code = ParseFlags("flotilla-learner", argc, argv, &line);
  return exit_code ? *exit_code : Main(flags);
}

}  // namespace flotilla
