#ifndef FLOTILLA_ENVSERVER_ENVS_ATARI_EMULATOR_H_
#define FLOTILLA_ENVSERVER_ENVS_ATARI_EMULATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"

namespace flotilla {

// One console with one game in it: what Atari needs of an emulator, frame by
// frame.
//
// Not thread-safe, but not tied to a thread.
class AtariEmulator {
 public:
  virtual ~AtariEmulator() = default;

  virtual int height() const = 0;
  virtual int width() const = 0;
  virtual int num_actions() const = 0;
  // Index of the FIRE action; -1: the game has none. Action 0 does nothing.
  virtual int fire_action() const = 0;

  // Starts a new game.
  virtual void NewGame(uint64_t seed) = 0;
  // Plays one frame. Returns the game's own reward.
  virtual int Act(int action) = 0;

  virtual int lives() const = 0;
  virtual bool game_over() const = 0;
  virtual bool out_of_frames() const = 0;  // the frame limit was reached

  // Writes the screen in gray, [height, width].
  virtual void Screen(uint8_t* gray) const = 0;
  // The same in colours, [height, width, 3].
  virtual void ColorScreen(uint8_t* rgb) const = 0;
};

// Ids of the games whose ROM is there: "ALE/Breakout-v5". Empty if this build
// has no emulator.
std::vector<std::string> ListAtariGames();

// Opens a game in the Arcade Learning Environment.
// Errors: kNotFound if there is no such game; kFailedPrecondition, with the
// remedy, if this build has no emulator or the ROM is not there.
absl::StatusOr<std::unique_ptr<AtariEmulator>> OpenAleEmulator(
    const std::string& env_id, const v1::AtariOptions& options);

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_ATARI_EMULATOR_H_
