#include "learner/training/recorder.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "services/base/atomic_file.h"
#include "services/base/jsonl_sink.h"
#include "services/base/status_macros.h"
#include "services/base/tensorboard_sink.h"
#include "services/base/version.h"

namespace flotilla {
namespace {

google::protobuf::Value Number(double value) {
  google::protobuf::Value v;
  v.set_number_value(value);
  return v;
}

google::protobuf::Value String(const std::string& value) {
  google::protobuf::Value v;
  v.set_string_value(value);
  return v;
}

std::string AlgorithmName(const v1::RunConfig& config) {
  switch (config.algorithm_case()) {
    case v1::RunConfig::kPpo:
      return "ppo";
    case v1::RunConfig::kDqn:
      return "dqn";
    case v1::RunConfig::kImpala:
      return "impala";
    default:
      return "none";
  }
}

}  // namespace

Recorder::Recorder(const v1::RunConfig& config, const std::string& run_folder)
    : config_(config),
      run_folder_(run_folder),
      checkpoints_(run_folder + "/checkpoints", config.checkpoint().keep()) {}

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Open(
    const v1::RunConfig& config, const std::string& run_folder,
    const std::optional<Progress>& resumed_at) {
  std::unique_ptr<Recorder> recorder(new Recorder(config, run_folder));
  const std::string metrics = run_folder + "/metrics.jsonl";
  std::optional<int64_t> resume_step;
  if (resumed_at.has_value()) {
    resume_step = resumed_at->global_step;
    RETURN_IF_ERROR(SetAsideLinesAfter(metrics, resumed_at->update).status());
  }
  ASSIGN_OR_RETURN(auto jsonl, JsonlSink::Open(metrics));
  recorder->sinks_.push_back(std::move(jsonl));
  if (config.metrics().tensorboard()) {
    ASSIGN_OR_RETURN(
        auto tensorboard,
        TensorboardSink::Open(run_folder + "/tensorboard", resume_step));
    recorder->sinks_.push_back(std::move(tensorboard));
  }
  return recorder;
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

bool Recorder::saving() {
  return saving_.valid() &&
         saving_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

void Recorder::Save(Snapshot snapshot, bool best) {
  FinishSaving().IgnoreError();  // logged when it failed
  saving_ = std::async(
      std::launch::async,
      [this, best, snapshot = std::move(snapshot)]() -> absl::Status {
        absl::Status saved = checkpoints_.Save(ToCheckpoint(snapshot, config_));
        if (saved.ok() && best) {
          saved = checkpoints_.MarkBest(snapshot.progress.global_step);
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
        return saved;
      });
}

std::string Recorder::trouble() const {
  MutexLock lock(&mu_);
  return trouble_;
}

absl::Status Recorder::FinishSaving() {
  return saving_.valid() ? saving_.get() : absl::OkStatus();
}

absl::Status Recorder::WriteSummary(const Progress& progress,
                                    const Summary& summary) {
  google::protobuf::Struct json;
  auto& f = *json.mutable_fields();
  f["status"] = String(summary.status);
  f["env_id"] = String(config_.env().id());
  f["algorithm"] = String(AlgorithmName(config_));
  f["world_size"] = Number(summary.world_size);
  f["global_steps"] = Number(progress.global_step);
  f["updates"] = Number(progress.update);
  f["episodes"] = Number(progress.episodes);
  f["mean_return"] = Number(summary.mean_return);
  f["stop_update"] = Number(summary.stop_update);
  f["wall_seconds"] = Number(progress.wall_seconds);
  f["steps_per_second"] = Number(summary.steps_per_second);
  f["version"] = String(Version());
  f["seed"] = Number(config_.seed());
  if (summary.evaluation.has_value()) {
    f["eval_mean_return"] = Number(summary.evaluation->mean_return());
    f["eval_episodes"] = Number(summary.evaluation->episodes());
    f["eval_update"] = Number(summary.evaluation->update());
  } else {
    f["eval_mean_return"].set_null_value(google::protobuf::NULL_VALUE);
  }
  if (!summary.error.empty()) f["error"] = String(summary.error);
  auto& restarts = *f["restarts"].mutable_struct_value()->mutable_fields();
  restarts["learner"] = Number(summary.learner_restarts);
  restarts["env_worker"] = Number(progress.env_restarts);
  auto* digests = f["parameters_sha256"].mutable_list_value();
  for (const std::string& digest : summary.parameters_sha256) {
    *digests->add_values() = String(digest);
  }
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string text;
  const auto printed =
      google::protobuf::util::MessageToJsonString(json, &text, options);
  if (!printed.ok()) {
    return absl::InternalError(
        absl::StrCat("summary.json: ", printed.ToString()));
  }
  return WriteFileAtomically(run_folder_ + "/summary.json", text);
}

}  // namespace flotilla
