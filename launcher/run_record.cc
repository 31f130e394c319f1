#include "launcher/run_record.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/config_finder.h"
#include "launcher/numbers.h"
#include "launcher/resume.h"
#include "launcher/summary.h"
#include "services/base/config.h"
#include "services/base/host_name.h"
#include "services/base/kept_files.h"
#include "services/base/run_summary.h"
#include "services/base/sha256.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 6;  // folders in folders that are looked through
constexpr absl::Duration kSilent = absl::Minutes(2);

// When a file was written; nullopt if there is none.
std::optional<absl::Time> WrittenAt(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  return absl::TimeFromTimespec(info.st_mtim);
}

// What RUN/.lock says: "pid 17 on host-3".
struct Holder {
  int pid = 0;
  std::string host;
};
std::optional<Holder> LastHolder(const RunFolder& folder) {
  Holder holder;
  char host[256] = "";
  if (std::sscanf(FirstLine(folder.lock()).c_str(), "pid %d on %255s",
                  &holder.pid, host) != 2) {
    return std::nullopt;
  }
  holder.host = host;
  return holder;
}

// Whether `pid` of this host holds a lock on the file. Read from the kernel's
// list: taking the lock to see whether it is free could keep a launcher out.
bool Holds(int pid, const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return false;
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    // "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF"; where folders are laid
    // over one another, the device is another one than stat's.
    int owner = 0;
    unsigned major = 0, minor = 0;
    unsigned long inode = 0;  // NOLINT: as sscanf wants it
    if (std::sscanf(line.c_str(), "%*d: FLOCK %*s WRITE %d %x:%x:%lu", &owner,
                    &major, &minor, &inode) == 4 &&
        owner == pid && inode == info.st_ino) {
      return true;
    }
  }
  return false;
}

std::string Ago(absl::Duration since) {
  return absl::StrCat(BriefSeconds(absl::ToDoubleSeconds(since)), " ago");
}

// Fills status and status_from; `summary` is what its file says.
void FindStatus(const RunFolder& folder,
                const std::optional<v1::RunSummary>& summary, absl::Time now,
                RunRecord* run) {
  const auto set = [&](std::string status, std::string from) {
    run->status = std::move(status);
    run->status_from = std::move(from);
  };
  const auto holder = LastHolder(folder);
  const std::string who =
      holder ? absl::StrCat("pid ", holder->pid, " on ", holder->host) : "";
  const bool local = holder && holder->host == HostName();
  if (IsHeldHere(folder)) {
    return set("running", absl::StrCat(who, " holds .lock"));
  }
  if (summary && HasResult(folder)) {
    return set(
        absl::AsciiStrToLower(v1::RunSummary::Status_Name(summary->status())),
        "summary.json");
  }
  const auto written = WrittenAt(folder.metrics());
  if (holder && !local) {
    if (!written) {
      return set("unknown", absl::StrCat(who, " has written nothing yet"));
    }
    const std::string last =
        absl::StrCat(who, " wrote metrics.jsonl ", Ago(now - *written));
    return set(now - *written < kSilent ? "running" : "unknown", last);
  }
  set("unfinished",
      summary ? "nobody holds .lock, and summary.json is of before it went on"
              : "there is no summary.json, and nobody holds .lock");
}

// A file that a run keeps is another in each run's folder: what counts is what is
// in it.
void NameFilesByContent(const RunFolder& folder, v1::RunConfig* config) {
  for (const KeptFile& file : KeptFiles()) {
    if (file.get(*config).empty()) continue;
    const auto content = WholeFile(file.PathIn(folder));
    if (!content) continue;
    file.set(absl::StrCat(file.name, " ", Sha256Hex(*content).substr(0, 12)),
             config);
  }
}

std::string NearestShipped(const v1::RunConfig& config) {
  struct Candidate {
    std::string name;
    v1::RunConfig config;
  };
  static const auto& shipped = *[] {
    auto* candidates = new std::vector<Candidate>();
    const auto configs = ShippedConfigs();
    if (!configs.ok()) return candidates;
    for (const ShippedConfig& found : *configs) {
      const auto loaded = LoadRunConfig(found.path, {});
      if (loaded.ok()) candidates->push_back({found.name, *loaded});
    }
    return candidates;
  }();
  std::string nearest;
  size_t fewest = 0;
  for (const Candidate& candidate : shipped) {
    if (candidate.config.env().id() != config.env().id() ||
        AlgorithmName(candidate.config) != AlgorithmName(config)) {
      continue;
    }
    const size_t changes = FindChanges(candidate.config, config).size();
    if (!nearest.empty() && changes >= fewest) continue;
    nearest = candidate.name;
    fewest = changes;
  }
  return nearest;
}

void TakeSummary(const v1::RunSummary& summary, RunRecord* run) {
  if (summary.has_eval_mean_return()) {
    run->eval_return = summary.eval_mean_return();
  }
  if (summary.has_mean_return()) run->mean_return = summary.mean_return();
  if (summary.has_global_steps()) run->steps = summary.global_steps();
  if (summary.has_wall_seconds()) run->wall_seconds = summary.wall_seconds();
  if (summary.has_world_size()) run->learners = summary.world_size();
}

// Whether there may be an evaluation among its metrics: it has them now, or may have
// been told to in flight. One that was resumed without them is not searched.
bool MayEvaluate(const RunFolder& folder, const v1::RunConfig& config) {
  return config.evaluation().every_updates() > 0 || WrittenAt(folder.changes());
}

void TakeMetrics(const RunFolder& folder, RunRecord* run) {
  const std::string path = folder.metrics();
  const NewestMetrics metrics = ReadNewestMetrics(path);
  const auto take = [&](const char* name, auto* out) {
    const auto found = metrics.find(name);
    if (found != metrics.end()) *out = found->second;
  };
  take("eval/mean_return", &run->eval_return);
  // There may be many updates since.
  if (!run->eval_return && MayEvaluate(folder, run->config)) {
    run->eval_return = FindNewestMetric(path, "eval/mean_return");
  }
  take("charts/episodic_return", &run->mean_return);
  take("wall_seconds", &run->wall_seconds);
  std::optional<double> steps;
  take("global_step", &steps);
  if (steps) run->steps = static_cast<int64_t>(*steps);
}

// Whether its last line ends in mid-word: whoever wrote it was killed.
bool IsCutOff(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

void AddRunFolders(const fs::path& folder, int depth,
                   std::vector<std::string>* runs) {
  // A checkpoint has a configuration too.
  if (RunFolder(folder).HoldsRun() && !CheckpointFolder(folder).Exists()) {
    runs->push_back(folder);
    return;
  }
  if (depth == kDeepest) return;
  std::error_code error;
  std::vector<fs::path> folders, links;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::error_code ignored;
    if (!entry.is_directory(ignored)) continue;
    (entry.is_symlink(ignored) ? links : folders).push_back(entry.path());
  }
  // What is behind a link is rather called by a name of its own.
  folders.insert(folders.end(), links.begin(), links.end());
  for (const fs::path& inner : folders) AddRunFolders(inner, depth + 1, runs);
}

// Runs that can be compared field by field.
std::string FamilyOf(const RunRecord& run) {
  return absl::StrCat(run.config.env().id(), " ", AlgorithmName(run.config));
}

}  // namespace

bool IsHeldHere(const RunFolder& folder) {
  const auto holder = LastHolder(folder);
  return holder && holder->host == HostName() &&
         Holds(holder->pid, folder.lock());
}

bool HasResult(const RunFolder& folder) {
  const auto summed_up = WrittenAt(folder.summary());
  const auto summary = ReadRunSummary(folder.summary());
  if (!summed_up || !summary.ok()) return false;
  const auto is_newer = [&](const std::string& path) {
    const auto written = WrittenAt(path);
    return written && *written > *summed_up;
  };
  if (is_newer(folder.metrics())) return false;
  const auto holder = LastHolder(folder);
  if (!holder) return true;
  // Whoever takes the lock writes it, before the run goes on.
  if (holder->host != HostName()) return !is_newer(folder.lock());
  if (!IsHeldHere(folder)) return true;
  // A learner that failed may yet be replaced.
  return !is_newer(folder.lock()) &&
         summary->status() != v1::RunSummary::FAILED;
}

RunRecord ReadRunRecord(const std::string& path, absl::Time now) {
  const RunFolder folder(path);
  RunRecord run;
  run.path = path;
  run.started = WrittenAt(folder.config()).value_or(absl::InfinitePast());
  const auto config = LoadRunConfig(folder.config(), {});
  if (config.ok()) {
    run.config = *config;
    NameFilesByContent(folder, &run.config);
    run.config_name = NearestShipped(run.config);
  } else {
    run.notes.push_back(std::string(config.status().message()));
  }
  std::optional<v1::RunSummary> summary;
  const auto read = ReadRunSummary(folder.summary());
  if (read.ok()) {
    summary = *read;
  } else if (!absl::IsNotFound(read.status())) {
    run.notes.push_back(std::string(read.status().message()));
  }
  FindStatus(folder, summary, now, &run);
  if (const auto topology = ReadRunTopology(folder);
      topology.ok() && *topology) {
    run.learners = (*topology)->min_learners();
  }
  if (summary && run.status_from == "summary.json") {
    TakeSummary(*summary, &run);
  } else {
    TakeMetrics(folder, &run);
  }
  if (run.status != "running" && IsCutOff(folder.metrics())) {
    run.notes.push_back(absl::StrCat(
        folder.metrics(),
        " ends in the middle of a line, which is left out: its writer was "
        "killed, or the disk was full"));
  }
  if (!config.ok()) {
    run.status = "unreadable";
    run.status_from = "config.textproto";
  }
  return run;
}

absl::StatusOr<std::vector<std::string>> FindRunFolders(
    const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) {
    return absl::NotFoundError(absl::StrCat("there is no folder ", folder));
  }
  if (!fs::is_directory(folder, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder, " is a file; expected a run's folder or one that holds runs"));
  }
  std::vector<std::string> runs;
  AddRunFolders(folder, 0, &runs);
  KeepEachRunOnce(&runs);
  std::sort(runs.begin(), runs.end());
  return runs;
}

void KeepEachRunOnce(std::vector<std::string>* paths) {
  std::set<std::string> seen;
  std::erase_if(*paths, [&](const std::string& path) {
    std::error_code error;
    const std::string whole = fs::canonical(path, error);
    return !seen.insert(error ? path : whole).second;
  });
}

std::vector<RunDifferences> FindDifferences(
    const std::vector<RunRecord>& runs) {
  std::vector<RunDifferences> differences(runs.size());
  std::map<std::string, size_t> first;  // of each family
  std::map<std::string, RunDifferences>
      common;  // the first's, where any differs
  const auto differ = [&](size_t run, const std::string& path,
                          const std::string& was, const std::string& is) {
    differences[run][path] = is;
    common[FamilyOf(runs[run])].insert({path, was});
  };
  const auto count = [](const RunRecord& run) {
    return run.learners ? absl::StrCat(*run.learners) : "unknown";
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].readable()) continue;
    const auto [at, is_first] = first.insert({FamilyOf(runs[i]), i});
    if (is_first) continue;
    const RunRecord& before = runs[at->second];
    for (const FieldChange& change :
         FindChanges(before.config, runs[i].config)) {
      if (change.path != "seed") differ(i, change.path, change.was, change.is);
    }
    if (count(before) != count(runs[i])) {
      differ(i, "learners", count(before), count(runs[i]));
    }
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].readable()) continue;
    const RunDifferences& of_first = common[FamilyOf(runs[i])];
    differences[i].insert(of_first.begin(), of_first.end());
  }
  return differences;
}

std::string DescribeDifferences(const RunDifferences& differences) {
  return absl::StrJoin(differences, " ", absl::PairFormatter("="));
}

absl::StatusOr<std::vector<RunRecord>> ReadRunRecords(
    const std::vector<std::string>& folders, absl::Time now) {
  std::vector<std::string> paths;
  for (const std::string& folder : folders) {
    ASSIGN_OR_RETURN(const auto found, FindRunFolders(folder));
    if (found.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no run in ", folder));
    }
    paths.insert(paths.end(), found.begin(), found.end());
  }
  KeepEachRunOnce(&paths);
  std::vector<RunRecord> runs;
  for (const std::string& path : paths) {
    runs.push_back(ReadRunRecord(path, now));
  }
  return runs;
}

}  // namespace flotilla
