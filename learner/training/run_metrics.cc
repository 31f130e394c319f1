#include "learner/training/run_metrics.h"

#include <algorithm>
#include <utility>

namespace flotilla {
namespace {

// Of a window of `size` episodes, what `rank` keeps: together they keep `size`.
size_t ShareOf(int64_t size, int rank, int world_size) {
  return size / world_size + (rank < size % world_size ? 1 : 0);
}

}  // namespace

RunMetrics::RunMetrics(const v1::RunConfig& config,
                       std::vector<std::string> episode_metrics)
    : window_size_(config.metrics().episode_window()),
      episode_metrics_(std::move(episode_metrics)) {}

void RunMetrics::Keep(const std::vector<CollectStats::Episode>& episodes,
                      size_t share) {
  newest_.insert(newest_.end(), episodes.begin(), episodes.end());
  while (newest_.size() > share) newest_.pop_front();
}

void RunMetrics::Add(const Experience& experience,
                     const std::vector<Metric>& learnt, double update_seconds,
                     Agreement* agreement) {
  const CollectStats& stats = experience.stats;
  Keep(stats.episodes,
       ShareOf(window_size_, agreement->rank(), agreement->world_size()));
  std::vector<double> sums(3 + episode_metrics_.size(), 0.0);
  sums[0] = newest_.size();
  for (const CollectStats::Episode& e : newest_) {
    sums[1] += e.raw_return;
    sums[2] += e.length;
    for (size_t i = 0; i < e.metrics.size(); ++i) sums[3 + i] += e.metrics[i];
  }
  episodes_ = agreement->AddSums("episode_window", sums);
  learnt_names_.clear();
  learnt_.clear();
  for (const Metric& metric : learnt) {
    learnt_names_.push_back(metric.name);
    learnt_.push_back(agreement->AddMean(metric.name, metric.value));
  }
  collect_seconds_ = agreement->AddMean("collect_seconds", stats.seconds);
  env_seconds_ = agreement->AddMean("env_seconds", stats.env_seconds);
  inference_seconds_ =
      agreement->AddMean("inference_seconds", stats.inference_seconds);
  update_seconds_ = agreement->AddMean("update_seconds", update_seconds);
  preempted_ = agreement->AddSum("preempted", stats.preempted);
  dropped_now_ = agreement->AddSum("dropped", experience.dropped);
  lag_ = agreement->AddPerRank("lag", experience.policy_lag);
}

void RunMetrics::Take(const Agreement& agreement) {
  dropped_ += static_cast<int64_t>(agreement[dropped_now_]);
  const std::span<const double> sums = agreement[episodes_];
  window_.episodes = static_cast<int64_t>(sums[0]);
  if (window_.episodes == 0) return;
  window_.mean_return = sums[1] / window_.episodes;
  window_.mean_length = sums[2] / window_.episodes;
  window_.mean_metric.clear();
  for (const double sum : sums.subspan(3)) {
    window_.mean_metric.push_back(sum / window_.episodes);
  }
}

std::vector<Metric> RunMetrics::Line(const Agreement& agreement,
                                     const Progress& progress) const {
  std::vector<Metric> line;
  if (window_.episodes > 0) {
    line.push_back({"charts/episodic_return", window_.mean_return});
    line.push_back({"charts/episodic_length", window_.mean_length});
    for (size_t i = 0; i < episode_metrics_.size(); ++i) {
      line.push_back(
          {"metrics/" + episode_metrics_[i], window_.mean_metric[i]});
    }
  }
  line.push_back({"charts/SPS", StepsPerSecond(progress)});
  line.push_back({"charts/episodes", static_cast<double>(progress.episodes)});
  for (size_t i = 0; i < learnt_.size(); ++i) {
    line.push_back({learnt_names_[i], agreement[learnt_[i]]});
  }
  const double update = agreement[update_seconds_];
  const double total = std::max(1e-9, agreement[collect_seconds_] + update);
  line.push_back({"perf/env_wait_fraction", agreement[env_seconds_] / total});
  line.push_back(
      {"perf/inference_fraction", agreement[inference_seconds_] / total});
  line.push_back({"perf/update_fraction", update / total});
  line.push_back({"sync/preempted_ranks", agreement[preempted_]});
  line.push_back({"env/restarts", static_cast<double>(progress.env_restarts)});
  line.push_back(
      {"env/failed_rows", static_cast<double>(progress.failed_rows)});
  line.push_back({"policy/lag_mean", agreement[lag_].mean()});
  line.push_back({"policy/lag_max", agreement[lag_].max()});
  line.push_back({"rollout/dropped", static_cast<double>(dropped_)});
  return line;
}

double StepsPerSecond(const Progress& progress) {
  if (progress.wall_seconds <= 0) return 0;
  return progress.global_step / progress.wall_seconds;
}

}  // namespace flotilla
