#ifndef FLOTILLA_ENVSERVER_ENVS_ATARI_EMULATOR_H_
#define FLOTILLA_ENVSERVER_ENVS_ATARI_EMULATOR_H_

#include <cstdint>

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

// One game, as it is to be played.
struct AtariGame {
  const char* rom;  // a file
  float repeat_action_probability;
  int max_frames;          // 0: no limit
  bool full_action_space;  // of all games, not this one's alone
};

// What a library of an emulator has under the name flotilla_atari_library. It is
// built apart from the program that opens it, perhaps by another compiler: nothing
// but what this header declares crosses between them.
struct AtariLibrary {
  int version;             // kAtariLibraryVersion of its build
  const char* rom_folder;  // of <game>.bin
  AtariEmulator* (*open)(const AtariGame& game);  // the caller's to delete
};

// Changes whenever this header does.
inline constexpr int kAtariLibraryVersion = 1;

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_ATARI_EMULATOR_H_
