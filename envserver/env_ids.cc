#include "envserver/env_ids.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/base/config_rules.h"
#include "services/base/nearest_name.h"

namespace flotilla {
namespace {

constexpr char kAtariPrefix[] = "ALE/";
constexpr char kAtariSuffix[] = "-v5";

bool IsAtariName(const std::string& name) {
  return !name.empty() && absl::ascii_isupper(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isalnum(c); });
}

// Atari ids of older Gym versions: BreakoutNoFrameskip-v4, Breakout-v5.
std::string AtariGuess(const std::string& env_id) {
  const std::string name = env_id.substr(0, env_id.find('-'));
  const std::string game = name.substr(0, name.find("NoFrameskip"));
  const bool versioned =
      absl::EndsWith(env_id, "-v4") || absl::EndsWith(env_id, "-v5");
  if (!versioned || !IsAtariName(game)) return "";
  return absl::StrCat(kAtariPrefix, game, kAtariSuffix);
}

}  // namespace

bool IsAtari(const std::string& env_id) {
  return absl::StartsWith(env_id, kAtariPrefix);
}

absl::Status CheckEnvId(const std::string& env_id) {
  if (IsAtari(env_id)) {
    const std::string rest = env_id.substr(sizeof(kAtariPrefix) - 1);
    if (!absl::EndsWith(rest, kAtariSuffix) ||
        !IsAtariName(rest.substr(0, rest.size() - 3))) {
      return absl::InvalidArgumentError(
          "an Atari game is written ALE/<Game>-v5, as in ALE/Breakout-v5");
    }
  }
  if (IsGym(env_id)) {
    const std::vector<std::string> parts = absl::StrSplit(env_id, ':');
    const bool whole =
        std::none_of(parts.begin(), parts.end(),
                     [](const std::string& part) { return part.empty(); });
    if (!whole || parts.size() > 3) {
      return absl::InvalidArgumentError(
          "a Gymnasium environment is written gym:ID or gym:package:ID, as in "
          "gym:Acrobot-v1, one of PettingZoo pettingzoo:MODULE or "
          "pettingzoo:MODULE:NAME, as in pettingzoo:classic/connect_four_v3");
    }
  }
  return absl::OkStatus();
}

absl::Status NoSuchEnvironment(const std::string& env_id,
                               const std::vector<std::string>& known) {
  // First: Breakout-v5 is not our Breakout.
  const std::string guess = AtariGuess(env_id);
  const std::string meant =
      std::find(known.begin(), known.end(), guess) != known.end()
          ? absl::StrCat("; did you mean \"", guess, "\"?")
          : DidYouMean(env_id, known);
  return absl::NotFoundError(absl::StrCat(
      "there is no environment \"", env_id, "\" here", meant,
      " (`flotilla envs` lists them; gym:", env_id, " asks Gymnasium for it)"));
}

}  // namespace flotilla
