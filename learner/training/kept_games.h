#ifndef FLOTILLA_LEARNER_TRAINING_KEPT_GAMES_H_
#define FLOTILLA_LEARNER_TRAINING_KEPT_GAMES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "flotilla/v1/episodes.pb.h"

namespace flotilla {

// Which games of training are kept:
//
//   best, worst   of all that were over, by score; the first of equals
//   median        the game nearest to the median score of the newest kWindow
//   newest        of those that were over
//   crashed       the newest kFailed in which an environment failed
//   unusable      the newest kFailed that ended with a number nobody can learn from
//
// A game costs a comparison or two unless it is kept; no storage is allocated for
// those that replace others.
//
// Not thread-safe.
class KeptGames {
 public:
  static constexpr int kWindow = 100;
  static constexpr int kFailed = 4;

  explicit KeptGames(int newest) : newest_(newest) {}

  // May swap `game` for another.
  void Take(v1::RecordedGame* game);

  // All of them, once each, best first; kept_as says why.
  void AddTo(v1::RecordedGames* games) const;

  // Those that AddTo wrote, of a run that goes on.
  void Restore(const v1::RecordedGames& games);

 private:
  // The newest few.
  struct Ring {
    std::vector<v1::RecordedGame> game;
    size_t next = 0;

    void Take(size_t most, v1::RecordedGame* from);
    // The newest first.
    std::vector<const v1::RecordedGame*> Newest() const;
  };

  void LookForMedian(const v1::RecordedGame& game);

  const int newest_;
  std::optional<v1::RecordedGame> best_, worst_, median_;
  Ring over_, crashed_, unusable_;
  std::vector<double> scores_;  // of the newest kWindow, in no order
  std::vector<double> sorted_;
  int64_t taken_ = 0;
  int64_t over_taken_ = 0;
  double middle_ = 0;  // their median, now and then
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_KEPT_GAMES_H_
