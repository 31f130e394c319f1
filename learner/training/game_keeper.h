#ifndef FLOTILLA_LEARNER_TRAINING_GAME_KEEPER_H_
#define FLOTILLA_LEARNER_TRAINING_GAME_KEEPER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "flotilla/v1/episodes.pb.h"
#include "learner/actor/game_tapes.h"
#include "learner/training/kept_games.h"
#include "services/base/mutex.h"

namespace flotilla {

// Rank 0's album: the games of its environments that are worth seeing again, in
// RUN/episodes/training.games. Written on a thread of its own, while there is
// something new, every few seconds, or as seldom as writing takes a hundredth of
// that thread's time. Where it fails that is logged, once until it works
// again, and the run goes on.
//
// Thread-safe.
class GameKeeper final : public GameSink {
 public:
  // `games` says what is played; see GamesOf. What a run that goes on has kept of
  // the same is kept on; else the file is begun anew.
  GameKeeper(const std::string& path, v1::RecordedGames games, int newest);
  // Writes what is left.
  ~GameKeeper() override;

  void Take(int64_t env, v1::RecordedGame* game) override;

  // The run's global_step, for games that end from here on.
  void Passed(int64_t global_step) { global_step_ = global_step; }

 private:
  void ThreadMain();
  bool Write();

  const std::string path_;
  const v1::RecordedGames empty_;
  std::atomic<int64_t> global_step_ = 0;
  bool complained_ = false;  // the thread's

  Mutex mu_;
  std::condition_variable over_;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool changed_ ABSL_GUARDED_BY(mu_) = false;
  KeptGames kept_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_TRAINING_GAME_KEEPER_H_
