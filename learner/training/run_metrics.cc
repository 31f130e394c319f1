#include "learner/training/run_metrics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace flotilla {
RunMetrics::RunMetrics(std::vector<std::string> episode_metrics,
                       EpisodeWindow* episodes, int agents)
    : episode_metrics_(std::move(episode_metrics)),
      window_(episodes),
      agent_return_(agents > 1 ? agents : 0) {}

void RunMetrics::Add(const Experience& experience,
                     const std::vector<Metric>& learnt, double update_seconds,
                     Agreement* agreement) {
  const CollectStats& stats = experience.stats;
  window_->Add(stats.episodes, agreement);
  learnt_.clear();
  for (const Metric& m : learnt) {
    learnt_.push_back(
        {m.name,
         agreement->AddSum(m.name, m.weight > 0 ? m.weight * m.value : 0),
         agreement->AddSum(m.name + " weight", m.weight)});
  }
  collect_seconds_ = agreement->AddMean("collect_seconds", stats.seconds);
  env_seconds_ = agreement->AddMean("env_seconds", stats.env_seconds);
  inference_seconds_ =
      agreement->AddMean("inference_seconds", stats.inference_seconds);
  update_seconds_ = agreement->AddMean("update_seconds", update_seconds);
  preempted_ = agreement->AddSum("preempted", stats.preempted);
  dropped_now_ = agreement->AddSum("dropped", experience.dropped);
  lag_ = agreement->AddPerRank("lag", experience.policy_lag);
  if (agent_return_.empty()) return;
  std::vector<double> sums(2 * agent_return_.size(), 0.0);
  for (const CollectStats::Episode& episode : stats.episodes) {
    sums[2 * episode.agent] += episode.raw_return;
    sums[2 * episode.agent + 1] += 1;
  }
  agent_returns_ = agreement->AddSums("agents", sums);
}

void RunMetrics::Take(const Agreement& agreement) {
  dropped_ += static_cast<int64_t>(agreement[dropped_now_]);
  window_->Take(agreement);
  for (size_t i = 0; i < agent_return_.size(); ++i) {
    const double count = agreement[agent_returns_][2 * i + 1];
    if (count > 0) {
      agent_return_[i] = agreement[agent_returns_][2 * i] / count;
    }
  }
}

RunMetrics::Window RunMetrics::window() const {
  Window window;
  window.episodes = window_->episodes();
  if (window.episodes == 0) return window;
  const std::vector<double> means = window_->Means();
  window.mean_return = means[0];
  window.mean_length = means[1];
  window.mean_metric.assign(means.begin() + 2, means.end());
  return window;
}

std::vector<Metric> RunMetrics::Line(const Agreement& agreement,
                                     const Progress& progress) const {
  std::vector<Metric> line;
  if (const Window newest = window(); newest.episodes > 0) {
    line.push_back({"charts/episodic_return", newest.mean_return});
    line.push_back({"charts/episodic_length", newest.mean_length});
    for (size_t i = 0; i < episode_metrics_.size(); ++i) {
      line.push_back({"metrics/" + episode_metrics_[i], newest.mean_metric[i]});
    }
  }
  double sum = 0;
  size_t slots = 0;
  for (size_t i = 0; i < agent_return_.size(); ++i) {
    if (!agent_return_[i].has_value()) continue;
    line.push_back({absl::StrCat("agents/return_", i), *agent_return_[i]});
    sum += *agent_return_[i];
    ++slots;
  }
  if (slots > 0 && slots == agent_return_.size()) {
    line.push_back({"agents/return_sum", sum});
  }
  line.push_back({"charts/SPS", StepsPerSecond(progress)});
  line.push_back({"charts/episodes", static_cast<double>(progress.episodes)});
  for (const Learnt& learnt : learnt_) {
    const double weight = agreement[learnt.weight];
    line.push_back(
        {learnt.name, weight > 0 ? agreement[learnt.sum] / weight : 0});
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
