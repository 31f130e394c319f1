#include "envserver/registry.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "envserver/batch_vector_env.h"
#include "envserver/env_ids.h"
#include "envserver/envs/ale_emulator.h"
#include "envserver/envs/atari.h"
#include "envserver/envs/breakout.h"
#include "envserver/envs/cartpole.h"
#include "envserver/envs/connect4.h"
#include "envserver/envs/diagnostic.h"
#include "envserver/envs/invaders.h"
#include "envserver/envs/maze.h"
#include "envserver/envs/pendulum.h"
#include "envserver/envs/point_nav.h"
#include "envserver/envs/pong.h"
#include "envserver/envs/sleep.h"
#include "envserver/envs/snake.h"
#include "envserver/guard.h"
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
  AddBatch("Breakout", Breakout::Make, Breakout::Options());
  Add("Bandit", [](auto&) { return MakeBandit(); });
  Add("Connect4", [](auto& a) { return Connect4::Make(a.Text("opponent")); },
      {{"opponent", "",
        "who plays the other side: random, one_ply or two_ply; else an "
        "agent"}});
  Add("Continuous", [](auto&) { return MakeContinuous(); });
  AddBatch("Invaders", Invaders::Make, Invaders::Options());
  Add("Mask", [](auto& a) { return MakeMask(a.Switch("hide_mask")); },
      {{"hide_mask", false, "show a mask that forbids nothing"}});
  Add("Memory", [](auto&) { return MakeMemory(); });
  Add("Multiagent", [](auto&) { return MakeMultiagent(); });
  Add("Password", [](auto&) { return MakePassword(); });
  AddBatch("Pong", Pong::Make, Pong::Options());
  Add("Selfplay", [](auto& a) { return MakeSelfplay(a.Text("opponent")); },
      {{"opponent", "",
        "who plays the other side: best, without a mistake; else an agent"}});
  AddBatch("Snake", Snake::Make, Snake::Options());
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

void EnvironmentRegistry::AddBatch(const std::string& env_id, BatchMaker make,
                                   std::vector<EnvironmentOption> options) {
  Add(
      env_id,
      [make](const EnvironmentArguments& arguments) -> EnvironmentOr {
        ASSIGN_OR_RETURN(auto batch, make(arguments, 1));
        return AsMultiAgent(std::move(batch));
      },
      std::move(options));
  entries_[env_id].make_batch = std::move(make);
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
  ASSIGN_OR_RETURN(const EnvironmentArguments arguments,
                   ArgumentsOf(*entry, env_id, options, worker_id));
  return Guard([&] { return entry->make(arguments); });
}

absl::StatusOr<std::unique_ptr<BatchEnvironment>>
EnvironmentRegistry::MakeBatch(const std::string& env_id,
                               const v1::EnvOptions& options,
                               uint64_t worker_id, size_t environments) const {
  ASSIGN_OR_RETURN(const Entry* entry, Find(env_id));
  CHECK(entry->make_batch != nullptr) << env_id << " steps on its own";
  ASSIGN_OR_RETURN(const EnvironmentArguments arguments,
                   ArgumentsOf(*entry, env_id, options, worker_id));
  return Guard([&] { return entry->make_batch(arguments, environments); });
}

absl::StatusOr<EnvironmentArguments> EnvironmentRegistry::ArgumentsOf(
    const Entry& entry, const std::string& env_id,
    const v1::EnvOptions& options, uint64_t worker_id) {
  RETURN_IF_ERROR(CheckOptions(env_id, entry.part, options));
  return EnvironmentArguments::Read(env_id, entry.options, options, worker_id);
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

bool EnvironmentRegistry::IsBatch(const std::string& env_id) const {
  const auto entry = Find(env_id);
  return entry.ok() && (*entry)->make_batch != nullptr;
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
  spec.set_renders(environment->renders());
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
  const auto make_batch = [&](size_t environments) {
    return registry_->MakeBatch(hello.env_id(), hello.options(),
                                hello.worker_id(), environments);
  };
  if (registry_->IsBatch(hello.env_id())) {
    BatchVectorEnv::Options options;
    ASSIGN_OR_RETURN(options.stated,
                     registry_->Stated(hello.env_id(), hello.options()));
    options.num_envs = hello.num_envs();
    options.num_groups = hello.num_groups();
    options.seed = hello.seed();
    options.worker_id = hello.worker_id();
    options.incarnation = hello.incarnation();
    options.threads = threads_;
    return BatchVectorEnv::Make(options, make_batch, listener);
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

absl::StatusOr<std::unique_ptr<VectorEnv>> RegistryFactory::MakeReplay(
    const std::string& env_id, const v1::EnvOptions& options,
    std::vector<uint64_t> seeds, bool frames,
    VectorEnv::Listener* listener) const {
  if (IsGym(env_id)) {
    return absl::UnimplementedError(absl::StrCat(
        env_id,
        " is played again by a Python server, which env.server=\"\" "
        "starts"));
  }
  ThreadVectorEnv::Options one;
  ASSIGN_OR_RETURN(one.stated, registry_->Stated(env_id, options));
  one.num_envs = 0;
  one.seeds = std::move(seeds);
  one.draws = frames;
  ASSIGN_OR_RETURN(
      std::unique_ptr<ThreadVectorEnv> made,
      ThreadVectorEnv::Make(
          one,
          [&] { return registry_->Make(env_id, options, /*worker_id=*/0); },
          listener));
  if (frames && !made->spec().renders()) {
    return absl::FailedPreconditionError(
        absl::StrCat(env_id, " cannot be seen: it draws nothing"));
  }
  return made;
}

}  // namespace flotilla
