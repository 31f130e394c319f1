#include "learner/training/recorder.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "learner/checkpoint/save_schedule.h"
#include "services/base/config.h"
#include "services/base/jsonl_sink.h"
#include "services/base/run_changes.h"
#include "services/base/run_summary.h"
#include "services/base/status_macros.h"
#include "services/base/tensorboard_sink.h"
#include "services/base/version.h"

namespace flotilla {
namespace {

// The newest update that has a line in `path`, looking back as far as matters:
// lines of evaluations, which stand between them, say no speed, and one that a
// crash cut off has no end. 0: none has.
int64_t NewestUpdate(const std::string& path) {
  constexpr std::streamoff kBack = 1 << 20;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return 0;
  in.seekg(std::max<std::streamoff>(0, in.tellg() - kBack));
  int64_t newest = 0;
  constexpr absl::string_view kKey = "\"update\":";
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find(std::string(kKey));
    if (at == std::string::npos || line.back() != '}' ||
        !absl::StrContains(line, "\"charts/SPS\":")) {
      continue;
    }
    newest = std::max<int64_t>(newest, atoll(line.c_str() + at + kKey.size()));
  }
  return newest;
}

}  // namespace

Recorder::Recorder(const v1::RunConfig& config, const std::string& run_folder)
    : config_(config),
      folder_(run_folder),
      checkpoints_(folder_.checkpoints(), NumKept(config.checkpoint())) {}

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Open(
    const v1::RunConfig& config, const std::string& run_folder,
    const std::optional<Progress>& resumed_at) {
  std::unique_ptr<Recorder> recorder(new Recorder(config, run_folder));
  const std::string metrics = recorder->folder_.metrics();
  LinesSetAside aside;
  if (absl::StatusOr<LinesSetAside> moved =
          SetAsideLinesAfter(metrics, resumed_at ? resumed_at->update : -1);
      moved.ok()) {
    aside = *std::move(moved);
  } else if (resumed_at.has_value()) {
    // Who takes over from a rank 0 that was lost may find the disk full: what has
    // been learned goes on, after the lines that are there.
    LOG(ERROR) << moved.status().message() << "; lines of updates after "
               << resumed_at->update << " that are lost stay in " << metrics;
  } else {
    return moved.status();
  }
  std::optional<int64_t> resume_step;
  if (resumed_at.has_value()) resume_step = resumed_at->global_step;
  std::error_code absent;
  if (!resumed_at.has_value() && aside.lines > 0) {
    resume_step = -1;
    recorder->started_over_ = absl::StrCat(
        "the run started over at step 0: it was lost at update ",
        aside.last_update,
        " or later, with no checkpoint to go back to; what it had recorded is "
        "in ",
        std::filesystem::path(aside.path).filename().string());
    LOG(WARNING) << recorder->started_over_;
  } else if (std::filesystem::exists(BeforeStartingOver(metrics), absent)) {
    recorder->started_over_ =
        "the run started over at step 0 before it went on from a checkpoint";
  }
  if (resumed_at.has_value()) {
    recorder->written_ = NewestUpdate(metrics);
    recorder->GoOnAt(*resumed_at);
  }
  ASSIGN_OR_RETURN(auto jsonl, JsonlSink::Open(metrics));
  recorder->sinks_.push_back(std::move(jsonl));
  if (config.metrics().tensorboard()) {
    ASSIGN_OR_RETURN(
        auto tensorboard,
        TensorboardSink::Open(recorder->folder_.tensorboard(), resume_step));
    recorder->sinks_.push_back(std::move(tensorboard));
  }
  return recorder;
}

// What is the best may have been saved after the state that the run goes on from.
void Recorder::GoOnAt(const Progress& progress) {
  checkpoints_.GoOnAt(progress.global_step);
  const auto best = SavedProgress(folder_.checkpoints() + "/best");
  if (best.ok() && best->global_step <= progress.global_step) {
    MutexLock lock(&mu_);
    best_return_ = best_written_ = best->best_return;
  }
}

Recorder::~Recorder() {
  if (saving_.valid()) saving_.wait();
}

void Recorder::WriteMetrics(const Progress& progress,
                            const std::vector<Metric>& metrics) {
  for (const auto& sink : sinks_) {
    sink->Write(progress.global_step, progress.update, progress.wall_seconds,
                metrics);
  }
}

void Recorder::WriteUpdate(const Progress& progress,
                           const std::vector<Metric>& metrics) {
  if (progress.update <= written_) return;
  written_ = progress.update;
  WriteMetrics(progress, metrics);
}

void Recorder::WriteChanges(const Progress& progress) {
  std::string changes = progress.changes.SerializeAsString();
  if (changes == changes_) return;
  const absl::Status written =
      flotilla::WriteChanges(folder_.changes(), progress.changes);
  LOG_IF(ERROR, !written.ok()) << written.message();
  if (written.ok()) changes_ = std::move(changes);
}

bool Recorder::saving() {
  return saving_.valid() &&
         saving_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

void Recorder::Save(Snapshot snapshot, bool best,
                    std::shared_future<void> after) {
  FinishSaving().IgnoreError();  // logged when it failed
  const auto began = std::chrono::steady_clock::now();
  if (best) {
    MutexLock lock(&mu_);
    best_return_ = snapshot.progress.best_return;
  }
  saving_ = std::async(
      std::launch::async,
      [this, best, began, after = std::move(after),
       snapshot = std::move(snapshot)]() -> absl::Status {
        if (after.valid()) after.wait();
        const Progress& at = snapshot.progress;
        // What the next update is made with, as a resumed run begins with it.
        const v1::RunConfig config =
            ConfigAt(config_, at.changes, at.update + 1);
        checkpoints_.set_keep(NumKept(config.checkpoint()));
        absl::Status saved;
        try {
          const CheckpointData data = ToCheckpoint(snapshot, config);
          saved = best ? checkpoints_.SaveBest(data) : checkpoints_.Save(data);
        } catch (const std::exception& e) {  // no memory for it
          saved = absl::InternalError(e.what());
        }
        const std::string trouble =
            saved.ok() ? ""
                       : absl::StrCat("checkpoint of update ",
                                      snapshot.progress.update,
                                      " was not written: ", saved.message(),
                                      "; the one before still stands");
        LOG_IF(ERROR, !saved.ok()) << trouble;
        MutexLock lock(&mu_);
        trouble_ = trouble;
        if (saved.ok()) {
          best_written_ = best_return_;
        } else {
          best_return_ = best_written_;
        }
        save_seconds_ = std::chrono::duration<double>(
                            std::chrono::steady_clock::now() - began)
                            .count();
        return saved;
      });
}

double Recorder::best_return() const {
  MutexLock lock(&mu_);
  return best_return_;
}

bool Recorder::IsBest(double mean_return) {
  {
    MutexLock lock(&mu_);
    if (mean_return > best_return_) return true;
    if (!(mean_return > best_written_)) return false;  // nor is a NaN
  }
  if (saving_.valid()) saving_.wait();
  return mean_return > best_return();
}

double Recorder::save_seconds() const {
  MutexLock lock(&mu_);
  return save_seconds_;
}

std::string Recorder::trouble() const {
  MutexLock lock(&mu_);
  return trouble_;
}

absl::Status Recorder::FinishSaving() {
  return saving_.valid() ? saving_.get() : absl::OkStatus();
}

absl::Status Recorder::WriteSummary(const Progress& progress,
                                    v1::RunSummary summary) {
  summary.set_env_id(config_.env().id());
  summary.set_algorithm(AlgorithmName(config_));
  summary.set_seed(config_.seed());
  summary.set_version(Version());
  summary.set_global_steps(progress.global_step);
  summary.set_updates(progress.update);
  summary.set_stop_update(progress.update);
  summary.set_episodes(progress.episodes);
  summary.set_wall_seconds(progress.wall_seconds);
  summary.mutable_restarts()->set_learner(progress.learner_restarts);
  summary.mutable_restarts()->set_env_worker(progress.env_restarts);
  summary.set_failed_rows(progress.failed_rows);
  for (const v1::Change& change : progress.changes.change()) {
    if (!change.refused().empty() || change.update() > progress.update) {
      continue;
    }
    v1::RunSummary::Change* made = summary.add_change();
    made->set_update(change.update());
    *made->mutable_set() = change.override();
  }
  if (!started_over_.empty()) summary.set_started_over(started_over_);
  return WriteRunSummary(folder_.summary(), summary);
}

}  // namespace flotilla
