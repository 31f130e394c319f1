#ifndef FLOTILLA_ENVSERVER_ENVS_ALE_EMULATOR_H_
#define FLOTILLA_ENVSERVER_ENVS_ALE_EMULATOR_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "envserver/envs/atari_emulator.h"
#include "flotilla/v1/config.pb.h"

namespace flotilla {

// Ids of the games whose ROM is there: "ALE/Breakout-v5". Empty where there is no
// emulator.
std::vector<std::string> ListAtariGames();

// Opens a game in the Arcade Learning Environment: envserver/ale's library, which
// FLOTILLA_ATARI_LIBRARY names, or else the first that has games of those beside the
// programs, in the installation, and where `flotilla install atari` puts it
// (UserFolder()). Its games are what FLOTILLA_ALE_ROMS names, or else roms/ beside it,
// or where its build had them. Opened once.
// Errors: kNotFound if there is no such game; kFailedPrecondition, with the
// remedy, if there is no emulator or no ROM.
absl::StatusOr<std::unique_ptr<AtariEmulator>> OpenAleEmulator(
    const std::string& env_id, const v1::AtariOptions& options);

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_ALE_EMULATOR_H_
