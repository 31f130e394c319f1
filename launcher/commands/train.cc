#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "launcher/commands/command.h"
#include "launcher/config_finder.h"
#include "launcher/env_check.h"
#include "launcher/learner_check.h"
#include "launcher/programs.h"
#include "launcher/resume.h"
#include "launcher/runs.h"
#include "launcher/train_job.h"
#include "launcher/train_plan.h"
#include "services/base/config.h"
#include "services/base/config_text.h"
#include "services/base/cores.h"
#include "services/base/device_choice.h"
#include "services/base/gpus.h"
#include "services/base/kept_files.h"
#include "services/base/printable.h"
#include "services/base/run_changes.h"
#include "services/base/run_summary.h"
#include "services/base/scratch_folder.h"
#include "services/base/shutdown.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"
#include "services/env/playable.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kEnvTimeout = absl::Seconds(60);
constexpr absl::Duration kLearnerTimeout = absl::Seconds(60);

struct TrainFlags {
  std::optional<std::string> config;
  TopologyFlags topology;
  std::string backend;
  std::optional<std::string> device_ids;
  std::optional<int> max_restarts;
  std::optional<std::string> run_dir;
  std::optional<std::string> resume;
  std::vector<std::string> overrides;
  // What was typed for an override that has a flag of its own: "--seed 5" for
  // "--set seed=5".
  std::vector<std::pair<std::string, std::string>> typed;
  bool dry_run = false;
  RpcCredentials credentials;
  std::string metrics_listen, metrics_token_file;
  std::string progress = "auto";
  std::vector<std::string> track;
  std::optional<std::string> project, group, tags;
};

// --resume takes the next argument only if it is "latest" or a folder; else
// that is the configuration.
bool IsResumeValue(const std::string& argument) {
  std::error_code error;
  return argument == "latest" || fs::is_directory(argument, error) ||
         (absl::StrContains(argument, "/") &&
          !absl::EndsWith(argument, ".textproto") && argument[0] != '-');
}

CommandLine MakeLine(TrainFlags* flags) {
  CommandLine line(
      "flotilla train CONFIG [flags]",
      "Trains as CONFIG says: a file, or a name that `flotilla configs` "
      "lists.\n"
      "With --resume, CONFIG may be left out: the run's own is used.\n"
      "Ends with 0: solved, completed or stopped; 1: failed; 2: refused;\n"
      "75: saved for SIGTERM, SIGUSR1, SIGUSR2 or SIGHUP; 130: for Ctrl-C.");
  TopologyFlags* topology = &flags->topology;
  line.Text("--nproc-per-node", "N|auto|gpu",
            "learners on this node (auto: one a GPU, else 1)",
            &topology->nproc_per_node);
  line.Text("--nnodes", "N|MIN:MAX", "nodes; a range makes the job elastic",
            &topology->nnodes);
  line.Int("--node-rank", "R", 0, "which node this is", &topology->node_rank);
  line.Text("--coordinator", "HOST:PORT",
            "where the nodes meet; node 0 starts it if nothing listens",
            &topology->coordinator);
  line.Text("--master-addr", "HOST", "as in torchrun: --coordinator's host",
            &topology->master_addr);
  line.Int("--master-port", "PORT", 0, "as in torchrun: --coordinator's port",
           &topology->master_port);
  line.Text("--rdzv-endpoint", "HOST:PORT", "as in torchrun: --coordinator",
            &topology->rdzv_endpoint);
  line.Switch("--standalone", "one node, a coordinator of its own",
              &topology->standalone);
  line.Choice("--backend", {"auto", "nccl", "gloo"},
              "gradient collectives (auto: NCCL if every rank has a GPU)",
              &flags->backend);
  line.Text("--device-ids", "0,0,1",
            "the GPU of each learner on this node; may repeat with Gloo",
            &flags->device_ids);
  line.Int("--max-restarts", "N", 0,
           "replacements of one learner in 10 minutes (default 3)",
           &flags->max_restarts);
  line.Text("--run-dir", "DIR", "the run's folder (default runs/CONFIG-TIME)",
            &flags->run_dir);
  line.OptionalText("--resume", "latest|PATH",
                    "go on from the run's newest checkpoint, or from PATH",
                    "latest", IsResumeValue, &flags->resume);
  line.List("--set", "PATH=VALUE",
            "override a field: --set optimizer.learning_rate=1e-3",
            &flags->overrides);
  const auto shortcut = [&](const std::string& name, const std::string& value,
                            const std::string& path) {
    line.Each(name, value, "short for --set " + path + "=" + value,
              [=](const std::string& text) {
                flags->overrides.push_back(absl::StrCat(path, "=", text));
                flags->typed.push_back(
                    {absl::StrCat("--set ", flags->overrides.back()),
                     absl::StrCat(name, " ", text)});
              });
  };
  shortcut("--seed", "N", "seed");
  shortcut("--steps", "N", "total_env_steps");
  shortcut("--env", "ID", "env.id");
  shortcut("--lr", "RATE", "optimizer.learning_rate");
  line.Switch("--dry-run",
              "check, ask the environment, print configuration, topology and "
              "sizes; train nothing",
              &flags->dry_run);
  AddCredentialFlags(&flags->credentials, &line);
  line.Text("--metrics-listen", "HOST:PORT",
            "have the coordinator serve /metrics there, for Prometheus; https "
            "where TLS is given",
            &flags->metrics_listen);
  line.Text("--metrics-token-file", "FILE",
            "a token that Prometheus has to show (credentials_file)",
            &flags->metrics_token_file);
  line.Choice("--progress", {"auto", "plain", "none"},
              "live progress (auto: a bar on a terminal, else lines)",
              &flags->progress);
  line.List("--track", kTrackers,
            "send the metrics there too, by a process beside the run; may be "
            "given for several (neptune: its client's offline mode; the hosted "
            "service closed on 2026-03-05)",
            &flags->track);
  line.Text("--project", "NAME", "the tracker's project (default flotilla)",
            &flags->project);
  line.Text("--group", "NAME", "the tracker's group of runs", &flags->group);
  line.Text("--tags", "A,B", "the tracker's tags", &flags->tags);
  line.Alias("--nproc", "--nproc-per-node");
  return line;
}

// ---- Where the run lives and what it goes on from

struct Place {
  std::string run_dir;
  std::string config_path;
  std::optional<std::string> resume;  // "latest" or a checkpoint's path
  std::string source_run;  // the folder of the run that is resumed; "": none

  std::string checkpoint() const {
    return *resume == "latest" ? RunFolder(run_dir).latest_checkpoint()
                               : *resume;
  }
};

// A run folder named after the job, where several launchers have to agree.
std::string SharedRunPath(const std::string& name, const Topology& topology) {
  if (!topology.has_peers()) return "";
  if (const char* job = std::getenv("SLURM_JOB_ID")) {
    return absl::StrCat("runs/", name, "-slurm", job);
  }
  if (const char* run = std::getenv("TORCHELASTIC_RUN_ID");
      run != nullptr && std::string(run) != "none") {
    return absl::StrCat("runs/", name, "-", run);
  }
  return "";
}

absl::StatusOr<std::string> ChooseRunDir(const TrainFlags& flags,
                                         const std::string& name,
                                         const Topology& topology) {
  if (flags.run_dir) return *flags.run_dir;
  const std::string shared = SharedRunPath(name, topology);
  if (!shared.empty()) return shared;
  if (topology.has_peers()) {
    return absl::InvalidArgumentError(
        "several launchers share this run's folder: name it with --run-dir, on "
        "storage that all nodes see");
  }
  if (!flags.resume) return NewRunPath(name, absl::Now());
  if (*flags.resume != "latest") return NewRunPath(name, absl::Now());
  const std::string newest = NewestRunPath(name);
  if (newest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume: there is no run \"runs/", name,
                     "-*\" to go on with; name its folder with --run-dir"));
  }
  return newest;
}

// A PATH that is a run's folder, or a checkpoint inside one, also says where
// the run lives, unless --run-dir does.
absl::Status TakeResumePath(TrainFlags* flags) {
  if (!flags->resume || *flags->resume == "latest") return absl::OkStatus();
  const std::string path = *flags->resume;
  // A checkpoint holds a config.textproto as a run's folder does.
  if (!CheckpointFolder(path).Exists() && RunFolder(path).HoldsRun()) {
    if (!flags->run_dir) {
      flags->run_dir = path;
      flags->resume = "latest";
      return absl::OkStatus();
    }
    flags->resume = RunFolder(path).latest_checkpoint();
    if (fs::path(path) == fs::path(*flags->run_dir)) flags->resume = "latest";
    return absl::OkStatus();
  }
  if (!CheckpointFolder(path).Exists()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume ", path,
                     " is neither a run's folder nor a checkpoint (no "
                     "weights.safetensors)"));
  }
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error).lexically_normal();
  flags->resume = absolute.string();
  const fs::path run = absolute.parent_path().parent_path();
  if (!flags->run_dir && RunFolder(run).HoldsRun()) flags->run_dir = run;
  return absl::OkStatus();
}

// A run that ended before it had trained is in nobody's way.
bool HasTrained(const RunFolder& folder) {
  std::error_code error;
  for (const std::string& path : {folder.metrics(), folder.checkpoints()}) {
    if (fs::exists(path, error) && !fs::is_empty(path, error)) return true;
  }
  const auto summary = ReadRunSummary(folder.summary());
  return summary.ok() ? summary->updates() > 0
                      : !absl::IsNotFound(summary.status());
}

absl::StatusOr<Place> FindPlace(TrainFlags flags, const Topology& topology) {
  RETURN_IF_ERROR(TakeResumePath(&flags));
  Place place;
  place.resume = flags.resume;
  std::string name;
  if (flags.config) {
    ASSIGN_OR_RETURN(place.config_path, FindConfig(*flags.config));
    name = ConfigName(place.config_path);
  } else if (!flags.resume) {
    return absl::InvalidArgumentError(
        "name a configuration: `flotilla train cartpole_ppo` "
        "(`flotilla configs` lists them)");
  }
  ASSIGN_OR_RETURN(place.run_dir, ChooseRunDir(flags, name, topology));
  const RunFolder folder(place.run_dir);
  if (!flags.config) {
    place.config_path = folder.config();
    std::error_code error;
    if (!fs::exists(place.config_path, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--resume: there is no run in ", place.run_dir,
                       "; name a configuration to start one there"));
    }
  }
  // Where launchers share a folder, the one that made it may be ahead of us.
  if (topology.hosts_coordinator && HasTrained(folder) && !flags.resume &&
      !flags.dry_run) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the folder ", place.run_dir,
        " holds a run already; go on with it (--resume), or choose another "
        "--run-dir"));
  }
  if (flags.resume) {
    place.source_run =
        *flags.resume == "latest"
            ? place.run_dir
            : fs::path(*flags.resume).parent_path().parent_path().string();
  }
  // The same command line starts a job and, requeued, goes on with it.
  if (place.resume == "latest" && !folder.HasCheckpoint()) place.resume.reset();
  return place;
}

// ---- Checks before anything starts

// What differs from the run that is resumed, and whose word counts.
void TellChanges(const v1::RunConfig& before, const v1::RunConfig& after,
                 const TrainFlags& flags, std::vector<std::string>* notices) {
  for (const FieldChange& change : FindChanges(before, after)) {
    const bool flagged =
        std::any_of(flags.overrides.begin(), flags.overrides.end(),
                    [&](const std::string& text) {
                      return absl::StartsWith(text, change.path + "=");
                    });
    notices->push_back(absl::StrCat(
        "resume: ", change.path, " was ", change.was, " and is ", change.is,
        " (", flagged || !flags.config ? "the flag" : *flags.config, " wins)"));
  }
}

// What the run that goes on in its own folder was changed to in flight: that
// holds, and is changed again at the same updates, but for what the files and
// flags say otherwise by now than when the run began.
absl::StatusOr<v1::Changes> KeepChanges(const Place& place,
                                        const v1::RunConfig& config,
                                        std::vector<std::string>* notices) {
  const RunFolder folder(place.run_dir);
  std::error_code error;
  if (!fs::equivalent(place.source_run, place.run_dir, error) ||
      !fs::exists(folder.config(), error)) {
    return v1::Changes();
  }
  ASSIGN_OR_RETURN(const v1::Changes changes, ReadChanges(folder.changes()));
  ASSIGN_OR_RETURN(const v1::RunConfig began,
                   LoadRunConfig(folder.config(), {}));
  std::vector<std::string> other;
  for (const FieldChange& change : FindChanges(began, config)) {
    other.push_back(change.path);
  }
  const v1::Changes kept = WithoutFields(changes, other);
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
                                         const Place& place,
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
    ASSIGN_OR_RETURN(*changes, KeepChanges(place, config, notices));
    // A checkpoint's is what held when it was made.
    const bool of_checkpoint = place.resume && *place.resume != "latest";
    const int64_t update =
        of_checkpoint ? UpdateOf(*place.resume).value_or(0) + 1 : 0;
    TellChanges(before, ConfigAt(config, *changes, update), flags, notices);
  }
  return Resolved(config);
}

absl::Status CheckReachable(const TrainFlags& flags, const Topology& topology) {
  RETURN_IF_ERROR(CheckCredentials(flags.credentials));
  const RpcCredentials& c = flags.credentials;
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

// Whether all who play are elsewhere, and they alone know what.
bool IsPlayedElsewhere(const v1::RunConfig& config) {
  const v1::EnvConfig& env = config.env();
  return !env.dial_listen().empty() &&
         env.remote_workers() == env.num_workers() &&
         config.evaluation().every_updates() == 0;
}

// What can be asked of the environment before anything is started: whether it
// is there, and a network and an algorithm fit it.
absl::Status CheckEnvironment(const v1::RunConfig& config,
                              const TrainFlags& flags,
                              const std::string& config_path,
                              std::stop_token stop) {
  if (IsPlayedElsewhere(config)) return absl::OkStatus();
  const v1::EnvConfig& env = config.env();
  const bool ours = env.server().empty();
  const auto response = AskEnvServer(
      env, flags.credentials,
      ours ? kEnvTimeout : absl::Seconds(env.reset_timeout_seconds()), stop);
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
  for (const std::string& warning :
       PlayableWarnings(config, response->spec())) {
    std::fprintf(stderr, "flotilla train: warning: %s\n",
                 PrintableLine(warning, 2048).c_str());
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
absl::Status SettleTopology(const TrainFlags& flags, const Place& place,
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

absl::StatusOr<TrainJob> MakeJob(const TrainFlags& flags,
                                 std::stop_token stop) {
  TrainJob job;
  ASSIGN_OR_RETURN(job.track, MakeTrackOptions(flags));
  const std::vector<Gpu> gpus = SurveyGpus().gpus;
  ASSIGN_OR_RETURN(job.topology,
                   DetectTopology(flags.topology, CurrentEnvironment(),
                                  static_cast<int>(gpus.size())));
  ASSIGN_OR_RETURN(const Place place, FindPlace(flags, job.topology));
  ASSIGN_OR_RETURN(job.config,
                   LoadConfig(flags, place, &job.changes, &job.notices));
  RETURN_IF_ERROR(
      SettleTopology(flags, place, static_cast<int>(gpus.size()), &job));
  if (flags.device_ids) {
    ASSIGN_OR_RETURN(job.device_ids, ParseDeviceIds(*flags.device_ids));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> devices,
                   PlanDevices(job.config, job.topology, job.device_ids, gpus));
  ASSIGN_OR_RETURN(const v1::Precision precision,
                   PlanPrecision(job.config, devices, gpus));
  job.config.mutable_runtime()->set_precision(precision);
  ASSIGN_OR_RETURN(const v1::RunConfig of_learner,
                   PlanSizes(job.config, job.topology));
  ASSIGN_OR_RETURN(job.cores,
                   PlanCores(of_learner, job.topology, devices, UsableCores()));
  RETURN_IF_ERROR(CheckReachable(flags, job.topology));
  job.folder = RunFolder(place.run_dir);
  job.resume = place.resume;
  job.max_restarts = flags.max_restarts.value_or(3);
  job.credentials = flags.credentials;
  job.progress = flags.progress;
  job.metrics_listen = flags.metrics_listen;
  job.metrics_token_file = flags.metrics_token_file;
  RETURN_IF_ERROR(TakeFiles(flags, place.config_path, &job));
  if (place.resume && place.source_run == place.run_dir) {
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
    RETURN_IF_ERROR(
        CheckEnvironment(AsNamed(job), flags, place.config_path, stop));
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
  CommandLine line = MakeLine(&flags);
  const ParsedLine parsed = ParseLine("train", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (!parsed.positional.empty()) flags.config = parsed.positional[0];

  const auto signals = ShutdownSignals::Install();
  if (!signals.ok()) return Report("train", signals.status());
  std::signal(SIGPIPE, SIG_IGN);  // nobody reading us is no reason to end a run
  auto job = MakeJob(flags, (*signals)->Stop());
  if (absl::IsCancelled(job.status())) {
    std::fprintf(stderr, "flotilla train: told to stop before the run began\n");
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
