#include "envserver/envs/ale_emulator.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/nearest_name.h"
#include "services/base/subprocess.h"
#include "services/base/user_folder.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

constexpr char kFile[] = "libflotilla_atari.so";
constexpr char kRemedy[] = "; run: flotilla install atari";

std::vector<fs::path> Places() {
  const char* named = std::getenv("FLOTILLA_ATARI_LIBRARY");
  if (named != nullptr && *named != '\0') return {named};
  const fs::path programs = ProgramFolder();
  return {programs / kFile, programs / "../lib/flotilla/atari" / kFile,
          fs::path(UserFolder()) / "atari" / kFile};
}

std::vector<fs::path> Roms(const std::string& folder) {
  std::vector<fs::path> roms;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".bin") roms.push_back(entry.path());
  }
  std::sort(roms.begin(), roms.end());
  return roms;
}

struct Emulator {
  const AtariLibrary* library;
  std::string rom_folder;
};

std::string RomFolder(const Emulator& emulator) {
  const char* folder = std::getenv("FLOTILLA_ALE_ROMS");
  return folder != nullptr ? folder : emulator.rom_folder;
}

absl::StatusOr<Emulator> Load(const fs::path& place) {
  void* file = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto* library = file == nullptr
                            ? nullptr
                            : static_cast<const AtariLibrary*>(
                                  dlsym(file, "flotilla_atari_library"));
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the emulator of Atari games, ", place.string(),
                     ", does not load (", dlerror(), ")", kRemedy));
  }
  if (library->version != kAtariLibraryVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the emulator of Atari games, ", place.string(), ", is of version ",
        library->version, ", and this Flotilla wants ", kAtariLibraryVersion,
        kRemedy));
  }
  // Those beside it came along when it was moved.
  const std::string beside = place.parent_path() / "roms";
  return Emulator{library, Roms(beside).empty() ? library->rom_folder : beside};
}

// The first that has games. If none has, what is said is about the first: what
// its remedy installs comes later, and serves then.
absl::StatusOr<Emulator> LoadFirst() {
  std::optional<absl::StatusOr<Emulator>> first;
  for (const fs::path& place : Places()) {
    std::error_code error;
    if (!fs::exists(place, error)) continue;
    absl::StatusOr<Emulator> emulator = Load(place);
    if (emulator.ok() && !Roms(RomFolder(*emulator)).empty()) return emulator;
    if (!first.has_value()) first = std::move(emulator);
  }
  if (first.has_value()) return *std::move(first);
  return absl::FailedPreconditionError(
      absl::StrCat("Atari games need the Arcade Learning Environment, which is "
                   "GPL-2.0 and does not come with Flotilla",
                   kRemedy));
}

const absl::StatusOr<Emulator>& Loaded() {
  static const auto* const emulator = new absl::StatusOr<Emulator>(LoadFirst());
  return *emulator;
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

absl::StatusOr<fs::path> FindRom(const std::string& folder,
                                 const std::string& env_id) {
  const std::vector<fs::path> roms = Roms(folder);
  if (roms.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "there are no Atari ROMs in ", folder, kRemedy,
        " (in a checkout: cmake/setup.sh), or set FLOTILLA_ALE_ROMS to "
        "a folder of game.bin files"));
  }
  for (const fs::path& rom : roms) {
    if (EnvId(rom.stem()) == env_id) return rom;
  }
  return absl::NotFoundError(absl::StrCat("there is no Atari game \"", env_id,
                                          "\" in ", folder,
                                          DidYouMean(env_id, ListAtariGames()),
                                          " (`flotilla envs` lists them all)"));
}

}  // namespace

std::vector<std::string> ListAtariGames() {
  std::vector<std::string> ids;
  if (!Loaded().ok()) return ids;
  for (const fs::path& rom : Roms(RomFolder(*Loaded()))) {
    ids.push_back(EnvId(rom.stem()));
  }
  return ids;
}

absl::StatusOr<std::unique_ptr<AtariEmulator>> OpenAleEmulator(
    const std::string& env_id, const v1::AtariOptions& options) {
  if (!Loaded().ok()) return Loaded().status();
  const Emulator& emulator = *Loaded();
  // Not ASSIGN_OR_RETURN: a path would convert to a Status.
  const absl::StatusOr<fs::path> rom = FindRom(RomFolder(emulator), env_id);
  if (!rom.ok()) return rom.status();
  return std::unique_ptr<AtariEmulator>(emulator.library->open(
      {.rom = rom->c_str(),
       .repeat_action_probability =
           static_cast<float>(options.repeat_action_probability()),
       .max_frames = static_cast<int>(options.max_frames()),
       .full_action_space = options.full_action_space()}));
}

}  // namespace flotilla
