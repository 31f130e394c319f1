#include "envserver/registry.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "envserver/env_ids.h"
#include "envserver/envs/atari.h"
#include "envserver/envs/atari_emulator.h"
#include "envserver/envs/cartpole.h"
#include "envserver/envs/connect4.h"
#include "envserver/envs/diagnostic.h"
#include "envserver/envs/maze.h"
#include "envserver/envs/pendulum.h"
#include "envserver/envs/point_nav.h"
#include "envserver/envs/sleep.h"
#include "envserver/gym_vector_env.h"
#include "envserver/thread_vector_env.h"
#include "glog/logging.h"
#include "services/base/config_rules.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using EnvironmentOr = absl::StatusOr<std::unique_ptr<MultiAgentEnvironment>>;

EnvironmentOr MakeAtari(const EnvironmentArguments& arguments) {
  const v1::AtariOptions& options = arguments.options().atari();
  ASSIGN_OR_RETURN(auto emulator, OpenAleEmulator(arguments.env_id(), options));
  return Atari::Make(arguments.env_id(), options, std::move(emulator));
}

// Every part of `options` but `read` has to be unset.
absl::Status CheckOptions(const std::string& env_id, const std::string& read,
                          const v1::EnvOptions& options) {
  const std::pair<const char*, bool> parts[] = {
      {"atari", options.has_atari()},
      {"sleep", options.has_sleep()},
      {"maze", options.has_maze()},
      {"gym_kwargs", !options.gym_kwargs().empty()}};
  for (const auto& [part, is_set] : parts) {
    if (is_set && part != read) {
      return absl::InvalidArgumentError(
          absl::StrCat("env.options.", part, " is set, but ", env_id,
                       " does not read it; remove it"));
    }
  }
  if (!read.empty() && !options.kwargs().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "env.options.kwargs.", options.kwargs().begin()->first, " is set, but ",
        env_id, " reads env.options.", read, " instead"));
  }
  if (options.max_episode_steps() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "env.options.max_episode_steps is ", options.max_episode_steps(),
        ", want 0 (the environment's own limit) or more"));
  }
  return absl::OkStatus();
}

}  // namespace

// To add an environment to flotilla-envserver, add its line.
EnvironmentRegistry::EnvironmentRegistry()
    : atari_({MakeAtari, {}, StepCost::kHeavy, "atari"}) {
  AddOurs(
      "CartPole-v1", [](auto&) { return std::make_unique<CartPole>(); }, "");
  AddOurs(
      "Maze", [](auto& a) { return Maze::Make(a.options().maze()); }, "maze");
  AddOurs(
      "Pendulum-v1", [](auto&) { return std::make_unique<Pendulum>(); }, "");
  Add(
      "PointNav",
      [scenes = std::make_shared<SceneLibrary>()](auto& a) -> EnvironmentOr {
        return PointNav::Make(a, scenes);
      },
      PointNav::Options());
  AddOurs(
      "Sleep",
      [](auto& a) { return Sleep::Make(a.options().sleep(), a.worker_id()); },
      "sleep");
  Add("Bandit", [](auto&) { return MakeBandit(); });
  Add("Connect4", [](auto& a) { return Connect4::Make(a.Text("opponent")); },
      {{"opponent", "",
        "who plays the other side: random, one_ply or two_ply; else an "
        "agent"}});
  Add("Continuous", [](auto&) { return MakeContinuous(); });
  Add("Mask", [](auto& a) { return MakeMask(a.Switch("hide_mask")); },
      {{"hide_mask", false, "show a mask that forbids nothing"}});
  Add("Memory", [](auto&) { return MakeMemory(); });
  Add("Multiagent", [](auto&) { return MakeMultiagent(); });
  Add("Password", [](auto&) { return MakePassword(); });
  Add("Selfplay", [](auto& a) { return MakeSelfplay(a.Text("opponent")); },
      {{"opponent", "",
        "who plays the other side: best, without a mistake; else an agent"}});
  Add("Spaces", [](auto& a) { return MakeSpaces(a.Text("hide")); },
      {{"hide", "", "the leaf to leave blank: flags or image"}});
  Add("Squared", [](auto&) { return MakeSquared(); });
  Add("Stochastic", [](auto&) { return MakeStochastic(); });
}

void EnvironmentRegistry::AddOurs(const std::string& env_id,
                                  EnvironmentMaker make,
                                  const std::string& part) {
  Add(env_id, std::move(make));
  entries_[env_id].part = part;
}

void EnvironmentRegistry::Add(const std::string& env_id, EnvironmentMaker make,
                              std::vector<EnvironmentOption> options,
                              StepCost cost) {
  CHECK(!env_id.empty()) << "an environment needs an id";
  std::sort(options.begin(), options.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  const bool added =
      entries_
          .emplace(env_id, Entry{std::move(make), std::move(options), cost, ""})
          .second;
  CHECK(added) << "there are two environments \"" << env_id << "\"";
}

absl::StatusOr<const EnvironmentRegistry::Entry*> EnvironmentRegistry::Find(
    const std::string& env_id) const {
  const auto found = entries_.find(env_id);
  if (found != entries_.end()) return &found->second;
  RETURN_IF_ERROR(CheckEnvId(env_id));
  if (IsAtari(env_id)) return &atari_;
  return NoSuchEnvironment(env_id, List());
}

std::vector<std::string> EnvironmentRegistry::List() const {
  std::vector<std::string> ids = ListAtariGames();
  for (const auto& [id, entry] : entries_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

EnvironmentOr EnvironmentRegistry::Make(const std::string& env_id,
                                        const v1::EnvOptions& options,
                                        uint64_t worker_id) const {
  ASSIGN_OR_RETURN(const Entry* entry, Find(env_id));
  RETURN_IF_ERROR(CheckOptions(env_id, entry->part, options));
  ASSIGN_OR_RETURN(
      const EnvironmentArguments arguments,
      EnvironmentArguments::Read(env_id, entry->options, options, worker_id));
  return entry->make(arguments);
}

absl::StatusOr<v1::EnvSpec> EnvironmentRegistry::Stated(
    const std::string& env_id, const v1::EnvOptions& options) const {
  ASSIGN_OR_RETURN(const Entry* entry, Find(env_id));
  v1::EnvSpec spec;
  spec.set_env_id(env_id);
  spec.set_max_episode_steps(options.max_episode_steps());
  for (const EnvironmentOption& declared : entry->options) {
    v1::EnvOption* option = spec.add_option();
    option->set_name(declared.name);
    option->set_default_json(FormatJson(declared.default_value));
    option->set_help(declared.help);
  }
  return spec;
}

StepCost EnvironmentRegistry::CostOf(const std::string& env_id) const {
  const auto entry = Find(env_id);
  return entry.ok() ? (*entry)->cost : StepCost::kCheap;
}

std::vector<std::string> RegistryFactory::ListEnvironments() const {
  return registry_->List();
}

absl::StatusOr<v1::EnvSpec> RegistryFactory::Describe(
    const std::string& env_id, const v1::EnvOptions& options) const {
  if (IsGym(env_id)) {
    RETURN_IF_ERROR(CheckEnvId(env_id));
    return DescribeGym(env_id, options);
  }
  ASSIGN_OR_RETURN(const auto environment,
                   registry_->Make(env_id, options, /*worker_id=*/0));
  v1::EnvSpec spec = environment->spec();
  ASSIGN_OR_RETURN(const v1::EnvSpec stated,
                   registry_->Stated(env_id, options));
  spec.MergeFrom(stated);
  return spec;
}

absl::StatusOr<std::unique_ptr<VectorEnv>> RegistryFactory::Make(
    const v1::Hello& hello, VectorEnv::Listener* listener) const {
  if (IsGym(hello.env_id())) {
    RETURN_IF_ERROR(CheckEnvId(hello.env_id()));
    return GymVectorEnv::Make(
        hello, {.retry_wait = retry_wait_, .renew_failed = renew_failed_},
        listener);
  }
  ThreadVectorEnv::Options options;
  ASSIGN_OR_RETURN(options.stated,
                   registry_->Stated(hello.env_id(), hello.options()));
  options.num_envs = hello.num_envs();
  options.num_groups = hello.num_groups();
  options.seed = hello.seed();
  options.worker_id = hello.worker_id();
  options.incarnation = hello.incarnation();
  options.threads =
      registry_->CostOf(hello.env_id()) == StepCost::kHeavy ? threads_ : 1;
  options.retry_wait = retry_wait_;
  options.renew_failed = renew_failed_;
  return ThreadVectorEnv::Make(
      options,
      [hello, registry = registry_] {
        return registry->Make(hello.env_id(), hello.options(),
                              hello.worker_id());
      },
      listener);
}

}  // namespace flotilla
