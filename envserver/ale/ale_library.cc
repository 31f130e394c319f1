// libflotilla_atari.so: the Arcade Learning Environment behind AtariEmulator. Its
// licence is GPL-2.0-only, so users build it (`flotilla install atari`, or
// cmake/setup.sh in a checkout), and the env server opens it where it is.

#include <algorithm>

#include "ale/ale_interface.hpp"
#include "ale/emucore/System.hxx"
#include "envserver/envs/atari_emulator.h"
#include "envserver/envs/byte_map.h"

namespace flotilla {
namespace {

class AleEmulator final : public AtariEmulator {
 public:
  explicit AleEmulator(const AtariGame& game) {
    ale_.setFloat("repeat_action_probability", game.repeat_action_probability);
    ale_.setInt("max_num_frames_per_episode", game.max_frames);
    // Seeded again by NewGame; -1 would be the time of day.
    ale_.setInt("random_seed", 0);
    ale_.loadROM(game.rom);
    loaded_ = ale_.cloneState();
    actions_ = game.full_action_space ? ale_.getLegalActionSet()
                                      : ale_.getMinimalActionSet();
    // Odd values are the gray twins of the colours, of which 255 has none.
    uint8_t values[255];
    for (int i = 0; i < 255; ++i) values[i] = static_cast<uint8_t>(i);
    ale_.theOSystem->colourPalette().applyPaletteGrayscale(gray_, values, 255);
  }

  int height() const override {
    return static_cast<int>(ale_.getScreen().height());
  }
  int width() const override {
    return static_cast<int>(ale_.getScreen().width());
  }
  int num_actions() const override { return static_cast<int>(actions_.size()); }

  int fire_action() const override {
    const auto fire =
        std::find(actions_.begin(), actions_.end(), ale::PLAYER_A_FIRE);
    return fire == actions_.end() ? -1
                                  : static_cast<int>(fire - actions_.begin());
  }

  void NewGame(uint64_t seed) override {
    // As Gymnasium's reset(seed=...), which loads the ROM again, and much
    // faster: the console is as that leaves it, with its memory, and with the
    // generator that its timer begins by. So a game is its seed and its
    // actions, whatever was played before.
    EndFrame();
    ale_.restoreState(loaded_);
    ale_.environment->getEnvironmentRNG().seed(
        static_cast<uint32_t>(seed & 0x7fffffff));
    ale_.reset_game();
  }

  int Act(int action) override { return ale_.act(actions_[action]); }
  int lives() const override { return ale_.romSettings->lives(); }
  bool game_over() const override { return ale_.game_over(false); }
  bool out_of_frames() const override { return ale_.game_truncated(); }

  void Screen(uint8_t* gray) const override {
    const ale::ALEScreen& screen = ale_.getScreen();
    const uint8_t* pixels = screen.getArray();
    MapBytes(gray_, pixels, screen.arraySize(), gray);
  }

  void ColorScreen(uint8_t* rgb) const override {
    const ale::ALEScreen& screen = ale_.getScreen();
    ale_.theOSystem->colourPalette().applyPaletteRGB(
        rgb, const_cast<uint8_t*>(screen.getArray()), screen.arraySize());
  }

 private:
  // That the last frame was cut short, as one of very many instructions is, the
  // next one knows, and no ALEState does. It is not after what games end their
  // frames by: VSYNC, on for a line and off.
  void EndFrame() {
    constexpr uint16_t kVsync = 0x00;
    constexpr uint8_t kOn = 0x02;
    constexpr uint32_t kCyclesOfALine = 76;
    ale::stella::System& system = ale_.theOSystem->console().system();
    system.tia().poke(kVsync, kOn);
    system.incrementCycles(kCyclesOfALine);
    system.tia().poke(kVsync, 0);
  }

  ale::ALEInterface ale_;
  ale::ALEState loaded_;  // the console's, once the ROM was loaded
  ale::ActionVect actions_;
  uint8_t gray_[256] = {};
};

AtariEmulator* Open(const AtariGame& game) {
  ale::Logger::setMode(ale::Logger::Error);
  return new AleEmulator(game);
}

}  // namespace

extern "C" {
extern __attribute__((visibility("default")))
const AtariLibrary flotilla_atari_library;
const AtariLibrary flotilla_atari_library = {kAtariLibraryVersion,
                                             FLOTILLA_ALE_ROMS, &Open};
}

}  // namespace flotilla
