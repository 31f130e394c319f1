#ifndef FLOTILLA_ENVSERVER_ENVS_ATARI_H_
#define FLOTILLA_ENVSERVER_ENVS_ATARI_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envserver/environment.h"
#include "envserver/envs/area_resizer.h"
#include "envserver/envs/atari_emulator.h"
#include "flotilla/v1/config.pb.h"

namespace flotilla {

// An Atari game under the usual wrappers (Mnih et al. 2015), in CleanRL's
// order:
//
//   statistics      reward of every frame, no-ops included, over whole games
//   no-ops          1 to noop_max frames before a game begins
//   max and skip    an action lasts frame_skip frames; the last two are maxed,
//                   pixel by pixel, and rewards summed
//   episodic life   a lost life ends the episode, not the game: the next
//                   episode goes on with one action of doing nothing
//   fire            FIRE, then action 2, begin an episode where the game has
//                   FIRE
//   clip            the reward's sign
//   gray, resize    the emulator's own luminance; OpenCV's INTER_AREA
//
// Frames, seeds and actions alike, they are those of Gymnasium's
// AtariPreprocessing; the wrappers around it those of stable-baselines3.
// CleanRL resizes before it makes gray: a pixel may differ by rounding.
//
//   observation  uint8 [screen_size, screen_size], of which the learner stacks
//                frame_stack
//   action       int64 []  index into the game's own actions
class Atari final : public Environment {
 public:
  // Errors: kInvalidArgument naming the option that is out of range.
  static absl::StatusOr<std::unique_ptr<Environment>> Make(
      const std::string& env_id, const v1::AtariOptions& options,
      std::unique_ptr<AtariEmulator> emulator);

  const v1::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(uint64_t seed, Row observation) override;
  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override;
  bool GameOver(v1::EpisodeEnd* end) override;
  bool renders() const override { return true; }
  v1::Frame Render() const override;

 private:
  // What one action of frame_skip frames did.
  struct Skip {
    int reward = 0;
    bool life_lost = false;
    bool game_ended = false;  // over, or out of frames
  };

  Atari(const std::string& env_id, const v1::AtariOptions& options,
        std::unique_ptr<AtariEmulator> emulator);

  int PlayFrame(int action);
  Skip PlaySkip(int action);
  void BeginGame(uint64_t seed);
  void BeginEpisode(uint64_t seed);
  void PressFire(uint64_t seed);
  void EndGame();
  void Observe(Row observation);

  const v1::AtariOptions options_;
  const std::unique_ptr<AtariEmulator> emulator_;
  v1::EnvSpec spec_;
  AreaResizer resizer_;

  // The frame before the last one, and the last, maxed with it when observed.
  std::vector<uint8_t> previous_frame_;
  std::vector<uint8_t> frame_;

  bool playing_ = false;    // a game is going on
  bool life_lost_ = false;  // the episode ended, the game did not
  int lives_ = 0;
  int64_t decisions_ = 0;  // of the learner, in this game
  double raw_return_ = 0;
  std::optional<double> finished_return_;  // of a game not yet reported
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_ATARI_H_
