#include "envserver/registry.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "envserver/envs/atari.h"
#include "envserver/envs/atari_emulator.h"
#include "envserver/envs/cartpole.h"
#include "envserver/envs/maze.h"
#include "envserver/envs/pendulum.h"
#include "envserver/envs/sleep.h"
#include "envserver/gym_vector_env.h"
#include "envserver/thread_vector_env.h"
#include "services/base/config_rules.h"
#include "services/base/nearest_name.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using EnvironmentOr = absl::StatusOr<std::unique_ptr<Environment>>;

// Whether rows are worth threads: a step takes much longer than waking one.
enum class Cost { kCheap, kHeavy };

struct Entry {
  const char* id;
  const char* option;  // the part of EnvOptions it reads; "": none
  Cost cost;
  EnvironmentOr (*make)(const std::string& env_id, const v1::EnvOptions&,
                        uint64_t worker_id);
};

template <typename T>
EnvironmentOr MakePlain(const std::string&, const v1::EnvOptions&, uint64_t) {
  return std::make_unique<T>();
}

EnvironmentOr MakeMaze(const std::string&, const v1::EnvOptions& options,
                       uint64_t) {
  return Maze::Make(options.maze());
}

EnvironmentOr MakeSleep(const std::string&, const v1::EnvOptions& options,
                        uint64_t worker_id) {
  return Sleep::Make(options.sleep(), worker_id);
}

EnvironmentOr MakeAtari(const std::string& env_id,
                        const v1::EnvOptions& options, uint64_t) {
  ASSIGN_OR_RETURN(auto emulator, OpenAleEmulator(env_id, options.atari()));
  return Atari::Make(env_id, options.atari(), std::move(emulator));
}

// To add an environment, add its line.
constexpr Entry kEntries[] = {
    {"CartPole-v1", "", Cost::kCheap, MakePlain<CartPole>},
    {"Maze", "maze", Cost::kCheap, MakeMaze},
    {"Pendulum-v1", "", Cost::kCheap, MakePlain<Pendulum>},
    {"Sleep", "sleep", Cost::kCheap, MakeSleep},
};

// Every game of the emulator.
constexpr char kAtariPrefix[] = "ALE/";
constexpr Entry kAtari = {kAtariPrefix, "atari", Cost::kHeavy, MakeAtari};

absl::StatusOr<const Entry*> FindEntry(const std::string& env_id) {
  if (absl::StartsWith(env_id, kAtariPrefix)) return &kAtari;
  for (const Entry& entry : kEntries) {
    if (env_id == entry.id) return &entry;
  }
  return absl::NotFoundError(
      absl::StrCat("there is no environment \"", env_id, "\" here",
                   DidYouMean(env_id, ListEnvironments()),
                   " (`flotilla envs` lists them all)"));
}

// Every part of `options` but the one `entry` reads has to be unset.
absl::Status CheckOptions(const std::string& env_id, const Entry& entry,
                          const v1::EnvOptions& options) {
  const std::pair<const char*, bool> parts[] = {
      {"atari", options.has_atari()},
      {"sleep", options.has_sleep()},
      {"maze", options.has_maze()},
      {"gym_kwargs", !options.gym_kwargs().empty()}};
  for (const auto& [part, is_set] : parts) {
    if (is_set && std::string(part) != entry.option) {
      return absl::InvalidArgumentError(
          absl::StrCat("env.options.", part, " is set, but ", env_id,
                       " does not read it; remove it"));
    }
  }
  if (options.max_episode_steps() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "env.options.max_episode_steps is ", options.max_episode_steps(),
        ", want 0 (the environment's own limit) or more"));
  }
  return absl::OkStatus();
}

// With the step limit that `options` ask for.
v1::EnvSpec WithLimit(v1::EnvSpec spec, const v1::EnvOptions& options) {
  if (options.max_episode_steps() > 0) {
    spec.set_max_episode_steps(options.max_episode_steps());
  }
  return spec;
}

}  // namespace

std::vector<std::string> ListEnvironments() {
  std::vector<std::string> ids = ListAtariGames();
  for (const Entry& entry : kEntries) ids.push_back(entry.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

absl::StatusOr<std::unique_ptr<Environment>> MakeEnvironment(
    const std::string& env_id, const v1::EnvOptions& options,
    uint64_t worker_id) {
  ASSIGN_OR_RETURN(const Entry* entry, FindEntry(env_id));
  RETURN_IF_ERROR(CheckOptions(env_id, *entry, options));
  return entry->make(env_id, options, worker_id);
}

std::vector<std::string> RegistryFactory::ListEnvironments() const {
  return flotilla::ListEnvironments();
}

absl::StatusOr<v1::EnvSpec> RegistryFactory::Describe(
    const std::string& env_id, const v1::EnvOptions& options) const {
  if (IsGym(env_id)) return DescribeGym(env_id, options);
  ASSIGN_OR_RETURN(const auto environment, MakeEnvironment(env_id, options, 0));
  return WithLimit(environment->spec(), options);
}

absl::StatusOr<std::unique_ptr<VectorEnv>> RegistryFactory::Make(
    const v1::Hello& hello, VectorEnv::Listener* listener) const {
  if (IsGym(hello.env_id())) {
    return GymVectorEnv::Make(
        hello, {.retry_wait = retry_wait_, .renew_failed = renew_failed_},
        listener);
  }
  ASSIGN_OR_RETURN(const Entry* entry, FindEntry(hello.env_id()));
  ThreadVectorEnv::Options options;
  options.num_envs = hello.num_envs();
  options.num_groups = hello.num_groups();
  options.seed = hello.seed();
  options.worker_id = hello.worker_id();
  options.incarnation = hello.incarnation();
  options.max_episode_steps = hello.options().max_episode_steps();
  options.threads = entry->cost == Cost::kHeavy ? threads_ : 1;
  options.retry_wait = retry_wait_;
  options.renew_failed = renew_failed_;
  return ThreadVectorEnv::Make(
      options,
      [hello] {
        return MakeEnvironment(hello.env_id(), hello.options(),
                               hello.worker_id());
      },
      listener);
}

}  // namespace flotilla
