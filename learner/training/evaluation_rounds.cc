#include "learner/training/evaluation_rounds.h"

#include <utility>
#include <vector>

#include "glog/logging.h"
#include "learner/torch.h"

namespace flotilla {

EvaluationRounds::EvaluationRounds(const v1::RunConfig& config,
                                   const EnvWorkerOptions& workers,
                                   const Spaces& spaces,
                                   CoordinatorClient* coordinator,
                                   Recorder* recorder)
    : coordinator_(coordinator),
      recorder_(recorder),
      evaluator_(config, workers, spaces) {}

void EvaluationRounds::Begin(Algorithm* algorithm, Normalizer* normalizer,
                             Progress* progress) {
  TakeSnapshot(LiveState(algorithm, normalizer), *progress, &evaluated_);
  evaluator_.Begin(algorithm->Freeze(), *normalizer,
                   ++progress->evaluation_round, progress->update,
                   progress->global_step);
}

void EvaluationRounds::Take(Progress* progress) {
  const auto finished = evaluator_.Take();
  if (!finished.has_value()) return;
  if (!finished->ok()) {
    LOG(ERROR) << "an evaluation failed and was skipped: "
               << finished->status().message();
    return;
  }
  last_ = **finished;
  LOG(INFO) << "evaluation of update " << last_->update() << ": mean "
            << last_->mean_return() << " over " << last_->episodes()
            << " episodes";
  coordinator_->ReportEvaluation(*last_).IgnoreError();
  std::vector<Metric> metrics = {
      {"eval/mean_return", last_->mean_return()},
      {"eval/mean_length", last_->mean_length()},
      {"eval/update", static_cast<double>(last_->update())}};
  for (const auto& [name, mean] : last_->mean_metric()) {
    metrics.push_back({"eval/" + name, mean});
  }
  recorder_->WriteMetrics(*progress, metrics);
  if (last_->mean_return() > progress->best_return) {
    progress->best_return = last_->mean_return();
    evaluated_.progress.best_return = progress->best_return;
    recorder_->Save(std::move(evaluated_), /*best=*/true);
  }
  evaluated_ = Snapshot();
}

void EvaluationRounds::Await(Progress* progress, std::stop_token stop) {
  while (busy() && !stop.stop_requested()) {
    evaluator_.WaitFor(absl::Milliseconds(20));
    Take(progress);
  }
}

}  // namespace flotilla
