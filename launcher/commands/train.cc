#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "launcher/commands/command.h"
#include "launcher/env_check.h"
#include "launcher/learner_check.h"
#include "launcher/programs.h"
#include "launcher/requeue.h"
#include "launcher/resume.h"
#include "launcher/train_flags.h"
#include "launcher/train_job.h"
#include "launcher/train_place.h"
#include "launcher/train_plan.h"
#include "services/base/config.h"
#include "services/base/config_change.h"
#include "services/base/config_rules.h"
#include "services/base/config_text.h"
#include "services/base/cores.h"
#include "services/base/device_choice.h"
#include "services/base/gpus.h"
#include "services/base/kept_files.h"
#include "services/base/printable.h"
#include "services/base/run_changes.h"
#include "services/base/scratch_folder.h"
#include "services/base/shutdown.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"
#include "services/env/playable.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kLeastEnvTimeout = absl::Seconds(60);
constexpr absl::Duration kLearnerTimeout = absl::Seconds(60);

// What differs from the run that is resumed, and whose word counts.
void TellChanges(const v1::RunConfig& before, const v1::RunConfig& after,
                 const TrainFlags& flags, std::vector<std::string>* notices) {
  for (const FieldChange& change : FindChanges(before, after)) {
    const bool flagged =
        std::any_of(flags.overrides.begin(), flags.overrides.end(),
                    [&](const std::string& text) { return change.IsOf(text); });
    notices->push_back(absl::StrCat(
        "resume: ", change.path, " was ", change.was, " and is ", change.is,
        " (", flagged || !flags.config ? "the flag" : *flags.config, " wins)"));
  }
}

// What the run that goes on in its own folder was changed to in flight: that
// holds, and is changed again at the same updates, but for what the files and
// flags say otherwise by now than when the run began. Flags without a file are not
// those that it began with: what they say holds, also where it is what the run had.
absl::StatusOr<v1::Changes> KeepChanges(const TrainPlace& place,
                                        const TrainFlags& flags,
                                        const v1::RunConfig& config,
                                        std::vector<std::string>* notices) {
  const RunFolder folder(place.run_dir);
  std::error_code error;
  if (!place.GoesOnInPlace() || !fs::exists(folder.config(), error)) {
    return v1::Changes();
  }
  ASSIGN_OR_RETURN(const v1::Changes changes, ReadChanges(folder.changes()));
  ASSIGN_OR_RETURN(const v1::RunConfig began,
                   LoadRunConfig(folder.config(), {}));
  std::vector<std::string> said = ChangedPaths(began, config);
  if (!flags.config) {
    for (const std::string& text : flags.overrides) {
      said.push_back(PathOf(text));
    }
  }
  const v1::Changes kept = WithoutFields(changes, said);
  for (const v1::Change& change : kept.change()) {
    if (!change.refused().empty()) continue;
    notices->push_back(
        absl::StrCat("resume: ", absl::StrJoin(change.override(), " "),
                     " holds from update ", change.update(),
                     " on, as `flotilla set` had it"));
  }
  return kept;
}

absl::StatusOr<v1::RunConfig> LoadConfig(const TrainFlags& flags,
                                         const TrainPlace& place,
                                         v1::Changes* changes,
                                         std::vector<std::string>* notices) {
  std::vector<std::string> overrides = flags.overrides;
  if (!flags.backend.empty()) {
    overrides.push_back("distributed.backend=" + flags.backend);
  }
  absl::StatusOr<v1::RunConfig> loaded =
      LoadValidRunConfig(place.config_path, overrides);
  if (!loaded.ok()) {
    return absl::Status(
        loaded.status().code(),
        absl::StrReplaceAll(std::string(loaded.status().message()),
                            flags.typed));
  }
  v1::RunConfig config = *std::move(loaded);
  std::string before_path = RunFolder(place.run_dir).config();
  if (place.resume && *place.resume != "latest") {
    before_path = CheckpointFolder(*place.resume).config();
  }
  std::error_code error;
  if (flags.resume && fs::exists(before_path, error)) {
    ASSIGN_OR_RETURN(v1::RunConfig before, LoadRunConfig(before_path, {}));
    RETURN_IF_ERROR(KeepFiles(RunFolder(place.source_run), &before, &config));
    RETURN_IF_ERROR(CheckResumable(before, config));
    // What was chosen holds wherever the run goes on; TF32 was chosen by hand.
    const v1::Precision precision = Resolved(before).runtime().precision();
    if (Resolved(config).runtime().precision() == v1::PRECISION_AUTO &&
        precision != v1::TF32) {
      config.mutable_runtime()->set_precision(precision);
    }
    ASSIGN_OR_RETURN(*changes, KeepChanges(place, flags, config, notices));
    // A checkpoint's is what held when it was made.
    const bool of_checkpoint = place.resume && *place.resume != "latest";
    const int64_t update =
        of_checkpoint ? UpdateOf(*place.resume).value_or(0) + 1 : 0;
    TellChanges(before, ConfigAt(config, *changes, update), flags, notices);
  }
  return Resolved(config);
}

absl::Status CheckReachable(const TrainFlags& flags, const Topology& topology) {
  const RpcCredentials& c = flags.credentials;
  RETURN_IF_ERROR(CheckCredentials(c));
  RETURN_IF_ERROR(ReadToken(c).status());
  if (c.uses_tls()) RETURN_IF_ERROR(CheckTlsFiles(c));
  if (!flags.metrics_listen.empty() && topology.hosts_coordinator) {
    RETURN_IF_ERROR(
        CheckMetricsReaders(flags.metrics_listen, flags.metrics_token_file, c));
  }
  if (!topology.hosts_coordinator || IsLocalAddress(topology.coordinator) ||
      c.uses_tls() || c.uses_token() || c.insecure) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the coordinator at ", topology.coordinator,
      " can be reached from other hosts; give --tls-cert, --tls-key and "
      "--tls-ca, or --token-file, or --insecure on a network you trust"));
}

// Where a person changes `path`: the last flag that set it, else the line of the
// file.
std::string WhereIs(const std::string& path, const TrainFlags& flags,
                    const std::string& file) {
  std::string flag;
  for (const std::string& text : flags.overrides) {
    if (absl::StartsWith(text, path + "=")) flag = "--set " + text;
  }
  if (!flag.empty()) return absl::StrReplaceAll(flag, flags.typed);
  v1::RunConfig config;
  google::protobuf::TextFormat::ParseInfoTree locations;
  if (!ParseConfigText(WholeFile(file).value_or(""), file, &config, &locations)
           .ok()) {
    return file;  // it was changed since
  }
  const std::string location = LocationOf(path, locations);
  return location.empty() ? file : absl::StrCat(file, ":", location);
}

// The field that `message` of a server says is wrong; "env.id" if it names none.
std::string BlamedField(absl::string_view message) {
  for (const char* field : {"env.num_envs", "selfplay"}) {
    if (absl::StartsWith(message, field)) return field;
  }
  const size_t begin = message.find("env.options.");
  if (begin == message.npos) return "env.id";
  const size_t end = message.find_first_of(" :,;\"", begin);
  return std::string(message.substr(begin, end - begin));
}

void Warn(const std::string& what) {
  std::fprintf(stderr, "flotilla train: warning: %s\n",
               PrintableLine(what, 2048).c_str());
}

// What can be asked of the environment before anything is started: whether it
// is there, and a network and an algorithm fit it. `devices` are the learners', each of
// which plays `num_envs`.
absl::Status CheckEnvironment(const v1::RunConfig& config,
                              const std::vector<std::string>& devices,
                              int num_envs, const TrainFlags& flags,
                              const std::string& config_path,
                              std::stop_token stop) {
  if (IsPlayedElsewhere(config)) {
    if (config.evaluation().has_stop_return()) {
      Warn(absl::StrCat("evaluation.stop_return is ",
                        config.evaluation().stop_return(),
                        ", and nothing is evaluated, as all environments dial "
                        "in: the run ends with total_env_steps"));
    }
    return absl::OkStatus();
  }
  const v1::EnvConfig& env = config.env();
  const bool ours = env.server().empty();
  // Ours has to start as well.
  absl::Duration timeout = absl::Seconds(env.reset_timeout_seconds());
  if (ours) timeout = std::max(timeout, kLeastEnvTimeout);
  const auto response = AskEnvServer(env, flags.credentials, timeout, stop);
  if (stop.stop_requested()) return absl::CancelledError("told to stop");
  absl::Status status = response.status();
  // What a server refuses is wrong in the configuration; the rest is not.
  const bool refused = absl::IsNotFound(status) ||
                       absl::IsInvalidArgument(status) ||
                       (ours && !absl::IsUnavailable(status) &&
                        !absl::IsDeadlineExceeded(status));
  if (!status.ok() && !ours && !refused) {
    return absl::UnavailableError(absl::StrCat(
        WhereIs("env.server", flags, config_path), ": ", status.message()));
  }
  if (status.ok()) status = CheckPlayable(config, response->spec());
  if (!status.ok()) {
    // Names in it may be the server's.
    const std::string message =
        absl::StrCat("env.id is \"", env.id(),
                     "\": ", PrintableLine(status.message(), 2048));
    if (!refused && !response.ok()) return absl::UnavailableError(message);
    return absl::InvalidArgumentError(
        absl::StrCat(WhereIs(BlamedField(status.message()), flags, config_path),
                     ": ", message));
  }
  if (flags.dry_run && BringsCode(config)) {
    RETURN_IF_ERROR(
        AskLearner(config, response->spec(), kLearnerTimeout, stop));
  }
  if (!ours && env.retry() == v1::RETRY_RENEW &&
      !absl::StrContains(env.server(), "renew")) {
    Warn(
        "env.retry is RETRY_RENEW, of which what env.server names is not told; "
        "start that with --renew-failed");
  }
  const bool on_gpu = std::ranges::any_of(
      devices, [](const auto& device) { return device != "cpu"; });
  v1::RunConfig of_learner = config;
  of_learner.mutable_env()->set_num_envs(num_envs);
  for (const std::string& warning :
       PlayableWarnings(of_learner, response->spec(), on_gpu)) {
    Warn(warning);
  }
  return absl::OkStatus();
}

absl::Status CheckInitFrom(const v1::RunConfig& config) {
  const std::string& path = config.model().init_from();
  if (path.empty() || CheckpointFolder(path).Exists() ||
      CheckpointFolder(RunFolder(path).latest_checkpoint()).Exists()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "model.init_from is \"", path,
      "\", which is neither a checkpoint (RUN/checkpoints/step_...) nor a run "
      "folder that has one"));
}

// Has learners load what the run keeps in its folder: a change of the file that
// was named does not matter to it.
absl::Status TakeFiles(const TrainFlags& flags, const std::string& config_path,
                       TrainJob* job) {
  for (const KeptFile& file : KeptFiles()) {
    const std::string given = file.get(job->config);
    const std::string kept = file.PathIn(job->folder);
    if (given.empty()) continue;
    file.set(kept, &job->config);
    if (!job->topology.hosts_coordinator || given == kept) continue;
    std::error_code error;
    if (!fs::is_regular_file(given, error) || !std::ifstream(given)) {
      return absl::InvalidArgumentError(absl::StrCat(
          WhereIs(file.field, flags, config_path), ": ", file.field, " is \"",
          given, "\", which is no file that can be read; make it with ",
          file.made_by));
    }
    job->copies.push_back({given, kept});
  }
  return absl::OkStatus();
}

// With the files that were named, of which a dry run has no copies.
v1::RunConfig AsNamed(const TrainJob& job) {
  v1::RunConfig config = job.config;
  for (const KeptFile& file : KeptFiles()) {
    for (const TrainJob::Copy& copy : job.copies) {
      if (file.PathIn(job.folder) == copy.to) file.set(copy.from, &config);
    }
  }
  return config;
}

absl::Status CheckPrograms(const Topology& topology) {
  RETURN_IF_ERROR(FindProgram("flotilla-learner").status());
  RETURN_IF_ERROR(FindProgram("flotilla-envserver").status());
  if (!topology.hosts_coordinator) return absl::OkStatus();
  return FindProgram("flotilla-coordinator").status();
}

// The topology that the flags ask for, or, where they do not, the one that the
// resumed run had.
absl::Status SettleTopology(const TrainFlags& flags, const TrainPlace& place,
                            int gpus, TrainJob* job) {
  if (place.source_run.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto before,
                   ReadRunTopology(RunFolder(place.source_run)));
  if (!before) return absl::OkStatus();
  TopologyFlags topology = flags.topology;
  RETURN_IF_ERROR(KeepTopology(*before, job->topology, &topology));
  ASSIGN_OR_RETURN(job->topology,
                   DetectTopology(topology, CurrentEnvironment(), gpus));
  const std::string change =
      DescribeTopologyChange(*before, job->topology, job->config);
  if (!change.empty()) job->notices.push_back("resume: " + change);
  return absl::OkStatus();
}

absl::StatusOr<TrackOptions> MakeTrackOptions(const TrainFlags& flags) {
  TrackOptions options;
  ASSIGN_OR_RETURN(options.trackers, ParseTrackers(flags.track));
  if (options.trackers.empty() &&
      (flags.project || flags.group || flags.tags)) {
    return absl::InvalidArgumentError(
        "--project, --group and --tags are for a tracker; name it with "
        "--track");
  }
  options.project = flags.project.value_or(options.project);
  options.group = flags.group.value_or("");
  options.tags = flags.tags.value_or("");
  for (const auto& [flag, value] :
       {std::pair("--project", options.project), {"--group", options.group}}) {
    if (value.find_first_of("/\\\n") != value.npos || value == "..") {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " is \"", value, "\"; expected a name without /"));
    }
  }
  return options;
}

// With why there are no GPUs, if it is refused for that.
absl::Status WithReason(const absl::Status& refused, const GpuSurvey& survey) {
  if (!absl::StrContains(refused.message(), kNoGpu)) return refused;
  return absl::Status(
      refused.code(),
      absl::StrCat(refused.message(), "; ", survey.problem,
                   survey.remedy.empty() ? "" : ": ", survey.remedy));
}

absl::StatusOr<TrainJob> MakeJob(const TrainFlags& flags,
                                 std::stop_token stop) {
  TrainJob job;
  ASSIGN_OR_RETURN(job.track, MakeTrackOptions(flags));
  const GpuSurvey survey = SurveyGpus();
  const std::vector<Gpu>& gpus = survey.gpus;
  absl::StatusOr<Topology> detected = DetectTopology(
      flags.topology, CurrentEnvironment(), static_cast<int>(gpus.size()));
  if (!detected.ok()) return WithReason(detected.status(), survey);
  job.topology = *std::move(detected);
  ASSIGN_OR_RETURN(const TrainPlace place, FindTrainPlace(flags, job.topology));
  if (!place.notice.empty()) job.notices.push_back(place.notice);
  ASSIGN_OR_RETURN(job.config,
                   LoadConfig(flags, place, &job.changes, &job.notices));
  RETURN_IF_ERROR(
      SettleTopology(flags, place, static_cast<int>(gpus.size()), &job));
  if (flags.device_ids) {
    ASSIGN_OR_RETURN(job.device_ids, ParseDeviceIds(*flags.device_ids));
  }
  const absl::StatusOr<std::vector<std::string>> planned =
      PlanDevices(job.config, job.topology, job.device_ids, gpus);
  if (!planned.ok()) return WithReason(planned.status(), survey);
  const std::vector<std::string>& devices = *planned;
  ASSIGN_OR_RETURN(const v1::Precision precision,
                   PlanPrecision(job.config, devices, gpus));
  job.config.mutable_runtime()->set_precision(precision);
  ASSIGN_OR_RETURN(const v1::RunConfig of_learner,
                   PlanSizes(job.config, job.topology));
  ASSIGN_OR_RETURN(job.cores, PlanCores(of_learner, job.topology, devices,
                                        UsableCores(), CoresAround()));
  RETURN_IF_ERROR(CheckReachable(flags, job.topology));
  job.folder = RunFolder(place.run_dir);
  RETURN_IF_ERROR(job.folder.MayBeMade());
  job.claims_folder = place.is_named_here;
  job.resume = place.resume;
  job.max_restarts = flags.max_restarts.value_or(3);
  job.credentials = flags.credentials;
  job.progress = flags.progress;
  job.metrics_listen = flags.metrics_listen;
  job.metrics_token_file = flags.metrics_token_file;
  RETURN_IF_ERROR(TakeFiles(flags, place.config_path, &job));
  if (place.resume && place.GoesOnInPlace()) {
    const int64_t update = UpdateOf(place.checkpoint()).value_or(0);
    job.nothing_left =
        NothingLeft(job.folder, place.checkpoint(),
                    ConfigAt(job.config, job.changes, update + 1));
  }
  if (job.nothing_left.empty()) {
    RETURN_IF_ERROR(CheckPrograms(job.topology));
    if (place.source_run.empty()) RETURN_IF_ERROR(CheckInitFrom(job.config));
    RETURN_IF_ERROR(ScratchFolder().status());
    if (job.topology.hosts_coordinator) {
      RETURN_IF_ERROR(CheckTrackers(job.track, stop));
    }
    RETURN_IF_ERROR(CheckEnvironment(AsNamed(job), devices,
                                     of_learner.env().num_envs(), flags,
                                     place.config_path, stop));
    const std::string length = LengthWarning(job.config, job.topology);
    if (!length.empty() && job.topology.hosts_coordinator) Warn(length);
  }
  if (flags.dry_run) {
    std::printf("# %s\n%s\n%s\n  %-18s %s\n  %-18s %s\n",
                place.config_path.c_str(), FormatResolved(job.config).c_str(),
                absl::StrCat(DescribePlan(of_learner, job.topology, devices),
                             DescribeCores(job.cores, job.topology))
                    .c_str(),
                "run folder", place.run_dir.c_str(), "resume from",
                job.resume.value_or("nothing: a new run").c_str());
    for (const std::string& line : job.notices) {
      std::printf("%s\n", line.c_str());
    }
  }
  return job;
}

}  // namespace

int RunTrain(const Arguments& arguments) {
  TrainFlags flags;
  CommandLine line = TrainLine(&flags);
  const ParsedLine parsed = ParseLine("train", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (!parsed.positional.empty()) flags.config = parsed.positional[0];

  const auto signals = ShutdownSignals::Install();
  if (!signals.ok()) return Report("train", signals.status());
  std::signal(SIGPIPE, SIG_IGN);  // nobody reading us is no reason to end a run
  auto job = MakeJob(flags, (*signals)->Stop());
  // Who was started in the same second may have been faster.
  while (job.ok() && job->claims_folder && !flags.dry_run &&
         !ClaimRunPath(job->folder.path())) {
    job = MakeJob(flags, (*signals)->Stop());
  }
  if (absl::IsCancelled(job.status())) {
    std::fprintf(stderr, "flotilla train: told to stop before the run began\n");
    // Of several launchers the first, which has the coordinator.
    const char* place = std::getenv("SLURM_PROCID");
    if (place != nullptr && std::string(place) == "0") {
      RequeueIfWarned(**signals);
    }
    return ExitCodeOf((*signals)->first_signal());
  }
  if (!job.ok()) return Report("train", job.status());
  if (!job->nothing_left.empty()) {
    std::printf("%s\n  %s\n", job->nothing_left.c_str(),
                job->folder.path().c_str());
    return kExitDone;
  }
  if (flags.dry_run) return kExitDone;
  if (const absl::Status made = job->folder.Make(); !made.ok()) {
    return Report("train", made);
  }
  if (!job->topology.hosts_coordinator) return RunTrainJob(*job, **signals);
  auto lock = RunLock::Take(job->folder);
  if (!lock.ok()) return Report("train", lock.status());
  job->lock = &*lock;
  return RunTrainJob(*job, **signals);
}

}  // namespace flotilla
