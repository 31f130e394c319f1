// The Arcade Learning Environment behind AtariEmulator. Its licence is
// GPL-2.0-only, so it is optional: nothing else includes or links it.

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "envserver/envs/atari_emulator.h"
#include "envserver/envs/byte_map.h"
#include "services/base/nearest_name.h"

#ifdef FLOTILLA_HAS_ALE
#include "ale/ale_interface.hpp"
#endif

namespace flotilla {

#ifdef FLOTILLA_HAS_ALE
namespace {

namespace fs = std::filesystem;

std::string RomFolder() {
  const char* folder = std::getenv("FLOTILLA_ALE_ROMS");
  return folder != nullptr ? folder : FLOTILLA_ALE_ROMS;
}

// "tic_tac_toe_3d" -> "ALE/TicTacToe3D-v5", as ale_py names them.
std::string EnvId(const std::string& rom) {
  std::string name;
  bool capital = true;
  for (const unsigned char c : rom) {
    if (c != '_') name += static_cast<char>(capital ? std::toupper(c) : c);
    capital = !std::isalpha(c);
  }
  return absl::StrCat("ALE/", name, "-v5");
}

std::vector<fs::path> Roms() {
  std::vector<fs::path> roms;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(RomFolder(), error)) {
    if (entry.path().extension() == ".bin") roms.push_back(entry.path());
  }
  std::sort(roms.begin(), roms.end());
  return roms;
}

absl::StatusOr<fs::path> FindRom(const std::string& env_id) {
  const std::vector<fs::path> roms = Roms();
  if (roms.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "there are no Atari ROMs in ", RomFolder(),
        "; run cmake/setup.sh, or set FLOTILLA_ALE_ROMS to a folder of "
        "game.bin files"));
  }
  for (const fs::path& rom : roms) {
    if (EnvId(rom.stem()) == env_id) return rom;
  }
  return absl::NotFoundError(absl::StrCat("there is no Atari game \"", env_id,
                                          "\" in ", RomFolder(),
                                          DidYouMean(env_id, ListAtariGames()),
                                          " (`flotilla envs` lists them all)"));
}

class AleEmulator final : public AtariEmulator {
 public:
  AleEmulator(const fs::path& rom, const v1::AtariOptions& options) {
    ale_.setFloat("repeat_action_probability",
                  static_cast<float>(options.repeat_action_probability()));
    ale_.setInt("max_num_frames_per_episode",
                static_cast<int>(options.max_frames()));
    // Seeded again by NewGame; -1 would be the time of day.
    ale_.setInt("random_seed", 0);
    ale_.loadROM(rom);
    actions_ = options.full_action_space() ? ale_.getLegalActionSet()
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
    // All that ALE seeds when it loads a ROM, and much faster. The console's
    // own state goes on from the last game's, as it does under Gymnasium.
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
  ale::ALEInterface ale_;
  ale::ActionVect actions_;
  uint8_t gray_[256] = {};
};

}  // namespace

std::vector<std::string> ListAtariGames() {
  std::vector<std::string> ids;
  for (const fs::path& rom : Roms()) ids.push_back(EnvId(rom.stem()));
  return ids;
}

absl::StatusOr<std::unique_ptr<AtariEmulator>> OpenAleEmulator(
    const std::string& env_id, const v1::AtariOptions& options) {
  // Not ASSIGN_OR_RETURN: a path would convert to a Status.
  absl::StatusOr<fs::path> rom = FindRom(env_id);
  if (!rom.ok()) return rom.status();
  ale::Logger::setMode(ale::Logger::Error);
  return std::make_unique<AleEmulator>(*rom, options);
}

#else  // FLOTILLA_HAS_ALE

std::vector<std::string> ListAtariGames() { return {}; }

absl::StatusOr<std::unique_ptr<AtariEmulator>> OpenAleEmulator(
    const std::string& env_id, const v1::AtariOptions& /*options*/) {
  return absl::FailedPreconditionError(
      absl::StrCat(env_id,
                   " needs the Arcade Learning Environment, which this build "
                   "leaves out; run "
                   "cmake/setup.sh and build with -DFLOTILLA_ATARI=ON"));
}

#endif  // FLOTILLA_HAS_ALE

}  // namespace flotilla
