#ifndef FLOTILLA_LEARNER_TRAINING_SELF_PLAY_H_
#define FLOTILLA_LEARNER_TRAINING_SELF_PLAY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "flotilla/v1/config.pb.h"
#include "learner/actor/opponents.h"
#include "learner/algo/algorithm.h"
#include "learner/torch.h"
#include "learner/training/agreement.h"
#include "services/base/metrics.h"

namespace flotilla {

// The pool of earlier selves that a run plays against, and everybody's rating:
// fictitious self-play (Heinrich et al. 2015) with the choice of opponents of
// Vinyals et al. 2019 (RATED is their f_hard). The same on every rank: snapshots
// are taken after the same updates, and ratings follow from games of all ranks.
// Committed, lost and saved with the rest of a run's state.
//
// Ratings are Elo's: a learner rated 400 above is expected to win 10 of 11. The
// newest weights begin at 1000, and a snapshot with what they have by then.
//
// Observations of snapshots are scaled as those of the newest weights are.
//
// Not thread-safe. Blocks for nobody.
class SelfPlay {
 public:
  // `algorithm` is borrowed and must outlive this.
  SelfPlay(const v1::SelfPlayConfig& config, Algorithm* algorithm);

  // Who plays the other slots from now on; the same until the pool or a rating
  // changes. Between updates.
  std::shared_ptr<const Opponents> Now();
  // The same, each snapshot as often, with policies that nobody else has: for
  // evaluations.
  std::shared_ptr<const Opponents> ForEvaluation();

  // What this rank's games came to, and what all did.
  void Add(const std::vector<GameResult>& games, Agreement* agreement);
  void Take(const Agreement& agreement);

  // Update `update` is committed (0: the run begins): takes a snapshot if one is
  // due.
  void Committed(int64_t update);

  // charts/elo, selfplay/win_rate (against the pool, of the last update with
  // games), selfplay/games (of all ranks, in all), selfplay/snapshots.
  void AppendTo(std::vector<Metric>* line) const;

  // Live views, as Algorithm::State. Call StateWasReplaced after those were
  // copied into.
  std::vector<NamedTensor> State() const;
  void StateWasReplaced() {
    now_ = nullptr;
    policies_.clear();  // another may have the same id, of an update made anew
  }

  int64_t snapshots() const;

 private:
  // Rows of `numbers_`: of each place of the pool, then of the newest weights.
  enum Column { kId, kRating, kGames, kScore, kColumns };
  double& At(int64_t place, Column column) const;
  int64_t pool_size() const { return weights_.size(0); }
  std::vector<double> Shares(v1::Opponents mode) const;
  std::shared_ptr<const Opponents> Make(
      v1::Opponents mode, double latest_share,
      std::map<int64_t, std::shared_ptr<Policy>>* policies);
  std::shared_ptr<Policy> PolicyOf(int64_t place);

  const v1::SelfPlayConfig config_;
  Algorithm* const algorithm_;
  // [pool_size, bytes of all weights] uint8; the oldest first, and as many as
  // have an id.
  torch::Tensor weights_;
  // [pool_size + 1, kColumns] float64. Ids are updates; -1: no snapshot. Games
  // and scores are against this snapshot; in the last row those of all since the
  // newest one.
  torch::Tensor numbers_;
  torch::Tensor games_;  // [1] float64

  std::map<int64_t, std::shared_ptr<Policy>> policies_;  // by id
  std::shared_ptr<const Opponents> now_;
  double win_rate_ = 0;
  bool has_win_rate_ = false;
  Agreement::Sums results_{};
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_SELF_PLAY_H_
