// Plays games of ROMS for a while, by an emulator that counts which ways are taken:
// emulator.sh builds it anew by that.
//
//   profiled_games ROMS

#include <filesystem>
#include <string>

#include "ale/ale_interface.hpp"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  // Unlike each other in what they draw and how often.
  for (const char* game :
       {"pong", "breakout", "beam_rider", "space_invaders", "seaquest", "qbert",
        "enduro", "ms_pacman", "montezuma_revenge", "asteroids", "boxing",
        "freeway"}) {
    ale::ALEInterface emulator;
    emulator.setFloat("repeat_action_probability", 0);
    emulator.setInt("random_seed", 1);
    emulator.loadROM(std::filesystem::path(argv[1]) /
                     (std::string(game) + ".bin"));
    const ale::ActionVect actions = emulator.getMinimalActionSet();
    constexpr unsigned kFrames = 2000, kSkip = 4;
    for (unsigned frame = 0; frame < kFrames; ++frame) {
      // Knuth's multiplicative hash: any action, the same each time.
      const unsigned at = (frame / kSkip * 2654435761u >> 8) % actions.size();
      emulator.act(actions[at]);
      if (emulator.game_over()) emulator.reset_game();
    }
  }
  return 0;
}
