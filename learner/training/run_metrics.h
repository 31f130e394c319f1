#ifndef FLOTILLA_LEARNER_TRAINING_RUN_METRICS_H_
#define FLOTILLA_LEARNER_TRAINING_RUN_METRICS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "learner/actor/collector.h"
#include "learner/actor/rollout_source.h"
#include "learner/training/agreement.h"
#include "learner/training/episode_window.h"
#include "learner/training/run_state.h"
#include "services/base/metrics.h"

namespace flotilla {

// What a run reports of its updates, of all ranks together. For each update a
// rank Adds what it has to the agreement, and reads what the ranks have:
//
//   charts/episodic_*, metrics/*   means over the newest episodes of all ranks
//   losses/*, perf/*, sync/*, ...  means over ranks
//   env/*, rollout/*, *_ranks      sums
//   agents/return_I                of several agents: the mean return of the
//                                  episodes of slot I that ended last;
//                                  agents/return_sum: of a whole environment
//
// launcher/README.md lists the names.
//
// Not thread-safe.
class RunMetrics {
 public:
  // `episode_metrics`: the environment's own, in the order of its EnvSpec.
  // `episodes` is borrowed, and taken in with the rest. `agents`: slots of one
  // environment.
  RunMetrics(std::vector<std::string> episode_metrics, EpisodeWindow* episodes,
             int agents = 1);

  // Adds this rank's part of one update: what came with its rollout, and what
  // the algorithm `learnt` from it in `update_seconds`.
  void Add(const Experience& experience, const std::vector<Metric>& learnt,
           double update_seconds, Agreement* agreement);

  // Takes in what all ranks have Added. Once, before what is below.
  void Take(const Agreement& agreement);

  // The update's metrics, the same on every rank. `progress` has committed it.
  std::vector<Metric> Line(const Agreement& agreement,
                           const Progress& progress) const;

  // The newest metrics.episode_window episodes of all ranks. No means while there
  // are no episodes.
  struct Window {
    int64_t episodes = 0;
    double mean_return = 0;
    double mean_length = 0;
    std::vector<double> mean_metric;  // in the order of episode_metrics
  };
  Window window() const;

  // Rollouts of all ranks that were too old, in this process's time.
  int64_t dropped() const { return dropped_; }

 private:
  const std::vector<std::string> episode_metrics_;
  EpisodeWindow* const window_;
  int64_t dropped_ = 0;
  // By slot, where there are several; of those that have ended once.
  std::vector<std::optional<double>> agent_return_;

  // What the last Add added.
  struct Learnt {
    std::string name;
    Agreement::Sum sum, weight;  // sum: of values by their weights
  };
  std::vector<Learnt> learnt_;
  Agreement::Mean collect_seconds_, env_seconds_, inference_seconds_,
      update_seconds_;
  Agreement::Sum preempted_, dropped_now_;
  Agreement::PerRank lag_;
  Agreement::Sums agent_returns_{};
};

// Environment steps of all ranks a second, over resumes; 0 before the clock
// runs.
double StepsPerSecond(const Progress& progress);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_RUN_METRICS_H_
