#include "services/env/recorded_games.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "services/base/atomic_file.h"
#include "services/base/printable.h"
#include "services/base/sha256.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"
#include "services/env/agents.h"
#include "services/env/group_layout.h"

namespace flotilla {
namespace {

constexpr absl::string_view kMagic = "flotilla games ";
constexpr absl::string_view kVersion = "1";

size_t DTypeBytes(v1::DType dtype) {
  return dtype == v1::UINT8 ? 1 : dtype == v1::INT64 ? 8 : 4;
}

// Everything that replays rely on. Errors: what is wrong.
absl::Status Check(const v1::RecordedGames& games) {
  // Leaves are checked as an environment's are.
  v1::EnvSpec spec;
  *spec.mutable_action() = games.action();
  for (v1::Leaf& leaf : *spec.mutable_action()) leaf.clear_mask_path();
  spec.add_observation()->set_dtype(v1::UINT8);
  spec.set_agents(games.agents());
  if (games.agents() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("agents is ", games.agents(), ", want 1 or more"));
  }
  RETURN_IF_ERROR(MakeGroupLayout(spec, games.agents(), 1).status());
  for (int g = 0; g < games.game_size(); ++g) {
    const v1::RecordedGame& game = games.game(g);
    if (game.episode_size() == 0 || game.slot_size() != games.agents()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "game ", g, " has ", game.episode_size(), " episodes and ",
          game.slot_size(), " slots, want 1 or more and ", games.agents()));
    }
    for (int k = 0; k < game.episode_size(); ++k) {
      const v1::RecordedEpisode& episode = game.episode(k);
      bool fits = episode.steps() > 0 && episode.steps() < (int64_t{1} << 40) &&
                  episode.action_size() == games.action_size();
      for (int i = 0; fits && i < games.action_size(); ++i) {
        const RecordedLeaf leaf = RecordedAs(games.action(i));
        // MakeGroupLayout bounds the bytes of a step, nobody those of all steps.
        const size_t step =
            static_cast<size_t>(games.agents()) * leaf.elements * leaf.bytes;
        const size_t size = episode.action(i).size();
        fits = size % step == 0 &&
               size / step == static_cast<size_t>(episode.steps());
      }
      if (!fits) {
        return absl::InvalidArgumentError(
            absl::StrCat("the actions of game ", g, ", episode ", k,
                         " are not those of ", episode.steps(), " steps"));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::RecordedGames> Parse(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, kMagic)) {
    return absl::InvalidArgumentError("it is no file of recorded games");
  }
  const size_t line = text.find('\n');
  const absl::string_view version = text.substr(0, std::min(line, size_t{20}));
  if (line == text.npos || version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("its layout has version \"", PrintableLine(version),
                     "\", and this program reads ", kVersion));
  }
  text.remove_prefix(line + 1);
  const size_t sum = text.find('\n');
  if (sum == text.npos ||
      Sha256Hex(std::string(text.substr(sum + 1))) != text.substr(0, sum)) {
    return absl::InvalidArgumentError("it is cut, or was changed");
  }
  text.remove_prefix(sum + 1);
  v1::RecordedGames games;
  if (!games.ParseFromArray(text.data(), static_cast<int>(text.size()))) {
    return absl::InvalidArgumentError("it holds no RecordedGames");
  }
  RETURN_IF_ERROR(Check(games));
  return games;
}

}  // namespace

RecordedLeaf RecordedAs(const v1::Leaf& leaf) {
  RecordedLeaf recorded;
  for (const int64_t n : leaf.shape()) {
    recorded.elements *= static_cast<size_t>(n);
  }
  recorded.wire_bytes = recorded.bytes = DTypeBytes(leaf.dtype());
  const auto small = [](int64_t values) { return values > 0 && values <= 256; };
  const bool each = leaf.num_values_each_size() > 0 &&
                    std::all_of(leaf.num_values_each().begin(),
                                leaf.num_values_each().end(), small);
  if (leaf.dtype() == v1::INT64 && (small(leaf.num_values()) || each)) {
    recorded.bytes = 1;
  }
  return recorded;
}

v1::RecordedGames GamesOf(const v1::EnvConfig& env, const v1::EnvSpec& spec) {
  v1::RecordedGames games;
  games.set_env_id(env.id());
  *games.mutable_options() = env.options();
  games.set_env_server(env.server());
  *games.mutable_action() = spec.action();
  games.set_agents(SlotsOf(spec));
  return games;
}

absl::Status WriteGames(const std::string& path,
                        const v1::RecordedGames& games) {
  const std::string message = games.SerializeAsString();
  return WriteFileAtomically(
      path,
      absl::StrCat(kMagic, kVersion, "\n", Sha256Hex(message), "\n", message));
}

absl::StatusOr<v1::RecordedGames> ReadGames(const std::string& path) {
  const std::optional<std::string> text = WholeFile(path);
  if (!text) {
    return absl::NotFoundError(absl::StrCat("there is no file ", path));
  }
  auto games = Parse(*text);
  if (games.ok()) return games;
  return absl::InvalidArgumentError(absl::StrCat(
      path,
      " cannot be played again: ", std::string(games.status().message())));
}

v1::ReplayRequest ReplayOf(const v1::RecordedGames& games,
                           const v1::RecordedGame& game, bool frames) {
  v1::ReplayRequest request;
  request.set_env_id(games.env_id());
  *request.mutable_options() = games.options();
  request.set_frames(frames);
  for (const v1::RecordedEpisode& episode : game.episode()) {
    v1::ReplayEpisode* again = request.add_episode();
    again->set_seed(episode.seed());
    for (int i = 0; i < episode.action_size(); ++i) {
      const RecordedLeaf leaf = RecordedAs(games.action(i));
      const std::string& recorded = episode.action(i);
      std::string* action = again->add_action();
      if (leaf.bytes == leaf.wire_bytes) {
        *action = recorded;
        continue;
      }
      action->resize(recorded.size() * leaf.wire_bytes, '\0');
      for (size_t at = 0; at < recorded.size(); ++at) {
        (*action)[at * leaf.wire_bytes] = recorded[at];  // little-endian
      }
    }
  }
  return request;
}

std::vector<int64_t> EvaluationsIn(const RunFolder& run) {
  std::vector<int64_t> rounds;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(run.episodes(), error)) {
    const std::string name = entry.path().filename();
    absl::string_view number = name;
    int64_t round = 0;
    if (absl::ConsumePrefix(&number, "evaluation_") &&
        absl::ConsumeSuffix(&number, ".games") &&
        absl::SimpleAtoi(number, &round)) {
      rounds.push_back(round);
    }
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds;
}

int64_t StepsOf(const v1::RecordedGame& game) {
  int64_t steps = 0;
  for (const v1::RecordedEpisode& e : game.episode()) steps += e.steps();
  return steps;
}

}  // namespace flotilla
