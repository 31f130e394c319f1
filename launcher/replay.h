#ifndef FLOTILLA_LAUNCHER_REPLAY_H_
#define FLOTILLA_LAUNCHER_REPLAY_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/env.pb.h"
#include "flotilla/v1/episodes.pb.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// The games of a run that can be seen again: those of training, then those of its
// evaluations, the newest first.
class GameAlbum {
 public:
  // Errors: kInvalidArgument if `path` is no run's folder, there is nothing in it to
  // see again, or a file of it cannot be read; which, and why.
  static absl::StatusOr<GameAlbum> Read(const std::string& path);

  // Of one file alone.
  static GameAlbum Of(v1::RecordedGames games);

  // Where a game is: numbered from 1, as people are shown them.
  struct Place {
    const v1::RecordedGames* games = nullptr;
    const v1::RecordedGame* game = nullptr;
    int number = 0;

    // "best", "newest", "evaluation 3"
    std::string Title() const;
  };
  std::vector<Place> All() const;

  // The game that `which` means: best, worst, median, newest, crashed or unusable,
  // of training (the newest, where there are several); evaluation, the best of the
  // newest one, or evaluation:ROUND; or a number.
  // Errors: kInvalidArgument, with what there is.
  absl::StatusOr<Place> Find(const std::string& which) const;

 private:
  std::string path_;
  std::vector<v1::RecordedGames> files_;
};

// What became of a game that was played again.
struct ReplayOutcome {
  int64_t steps = 0;       // answered
  std::string difference;  // in what it was another game; "" if in nothing
};

// Plays a game again on an env server of its own, started as training starts one
// (or on that of env.server that runs already, with `credentials`), and compares
// returns, lengths and ends. `on_frame`, unless empty, gets each frame in order, and
// ends it by an error. Blocks.
// Errors: the server's, by name; on_frame's; kCancelled at `stop`.
absl::StatusOr<ReplayOutcome> PlayGameAgain(
    const GameAlbum::Place& place, const RpcCredentials& credentials,
    const std::function<absl::Status(const v1::Frame&)>& on_frame,
    std::stop_token stop);

// Compares answers with what was recorded, one by one.
class ReplayCheck {
 public:
  ReplayCheck(const v1::RecordedGames& games, const v1::RecordedGame& game)
      : games_(games), game_(game) {}

  // Errors: kInternal for an answer that breaks the protocol.
  absl::Status Take(const v1::ReplayStep& step);

  // After the last answer; `lost`: the server was, instead of it.
  ReplayOutcome Finish(bool lost = false);

 private:
  const v1::RecordedGames& games_;
  const v1::RecordedGame& game_;
  int episode_ = 0;
  int64_t at_ = -1;  // the step that was answered last
  int64_t steps_ = 0;
  std::vector<bool> gone_;
  std::vector<v1::GameSlot> slot_;
  std::string error_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_REPLAY_H_
