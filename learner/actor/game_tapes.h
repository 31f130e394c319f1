#ifndef FLOTILLA_LEARNER_ACTOR_GAME_TAPES_H_
#define FLOTILLA_LEARNER_ACTOR_GAME_TAPES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "flotilla/v1/env.pb.h"
#include "flotilla/v1/episodes.pb.h"
#include "services/env/recorded_games.h"

namespace flotilla {

// Whoever is told of games as they end. Called by the one thread that plays.
class GameSink {
 public:
  virtual ~GameSink() = default;

  // `env` counts the environments of the pool. `game` is all there but for
  // kept_as and global_step, and may be swapped for another, whose storage is then
  // written over.
  virtual void Take(int64_t env, v1::RecordedGame* game) = 0;
};

// Writes down every environment's game of an EnvPool: the seeds of its episodes,
// which follow from how they are counted (Hello.seed), and the actions sent. One
// byte or so a step and environment, and nothing else until an episode ends.
//
// What cannot be known is not recorded: games longer than `max_bytes` or their
// share of kMostBytes, and, where a
// server does not say which episode a row that failed goes on with
// (RowError.episode), that environment's until its worker is anew.
//
// Not thread-safe: the pool's.
class GameTapes {
 public:
  struct Options {
    GameSink* sink = nullptr;  // borrowed; null: games are only counted
    int64_t max_bytes = 0;     // of one game: actions, and further episodes
    int opponent_slots = 0;    // that do not learn, and do not score
  };
  // How many games of a worker that is lost are handed on, as CRASHED.
  static constexpr int kMostLost = 4;
  // Of all games being played.
  static constexpr int64_t kMostBytes = 256 << 20;

  // `slots` of `rows` each.
  GameTapes(const Options& options, const v1::EnvSpec& spec, uint64_t seed,
            int slots, int rows);

  // Who is told of games that begin from here on.
  void set_sink(GameSink* sink);

  // The slot's first batch of a worker, which is its group `group`.
  void Began(int slot, int group, uint64_t worker_id, uint64_t incarnation,
             const v1::StepBatch& batch);
  // What it was sent: per action leaf [R, ...].
  void Acted(int slot, std::span<const std::string> columns);
  // What that led to.
  void Stepped(int slot, const v1::StepBatch& batch);
  // The worker of slots [first, first + count) is gone.
  void Lost(int first, int count, absl::string_view why);

 private:
  // One environment's.
  struct Tape {
    bool plays = false;      // and which episode is known
    bool records = false;    // and the game is not too long
    uint64_t episode = 0;    // of EpisodeSeed
    int64_t begun = 0;       // the slot's `acted` when this episode began
    int64_t game_begun = 0;  // and when the game did
    int gone = 0;            // slots whose episode has ended
    bool over = false;       // the game is, with the episode
    v1::RecordedGame game;
    std::vector<std::string*> action;  // of the episode; per leaf
  };
  struct Group {
    uint64_t worker_id = 0;
    uint64_t incarnation = 0;
    int first_row = 0;  // of the worker's
    int64_t acted = 0;  // times
    bool in_flight = false;
  };

  Tape& TapeOf(int slot, int env) { return tapes_[slot * envs_ + env]; }
  void BeginGame(int slot, int env, uint64_t episode);
  void BeginEpisode(int slot, int env);
  void EndGame(int slot, int env, v1::RecordedGame::End end,
               const std::string& why);
  void CloseEpisode(int slot, Tape* tape);
  void LookHowLong(int slot);
  bool TooLong(int slot, const Tape& tape) const;

  Options options_;
  const uint64_t seed_;
  const int agents_;
  const int envs_;  // of a slot
  const int64_t max_bytes_;
  std::vector<RecordedLeaf> leaves_;
  int64_t step_bytes_ = 0;     // of one environment
  std::vector<Group> groups_;  // by slot
  std::vector<Tape> tapes_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ACTOR_GAME_TAPES_H_
