#include "services/env/agents.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "services/base/config_rules.h"

namespace flotilla {

int AgentsOf(const v1::EnvSpec& spec) { return std::max(1, spec.agents()); }

int OpponentSlots(const v1::RunConfig& config) {
  return config.has_selfplay() ? config.selfplay().opponent_slots() : 0;
}

bool SameLeaves(const v1::EnvSpec& one, const v1::EnvSpec& other) {
  const auto same = [](const v1::Leaf& a, const v1::Leaf& b) {
    return a.SerializeAsString() == b.SerializeAsString();
  };
  return std::ranges::equal(one.observation(), other.observation(), same) &&
         std::ranges::equal(one.action(), other.action(), same);
}

absl::StatusOr<v1::RunConfig> LearnedConfig(const v1::RunConfig& config,
                                            const v1::EnvSpec& spec) {
  const int agents = AgentsOf(spec), theirs = OpponentSlots(config);
  if (theirs >= agents) {
    return absl::InvalidArgumentError(absl::StrCat(
        "selfplay.opponent_slots is ", theirs, ", and env \"", spec.env_id(),
        "\" has ", agents, agents == 1 ? " agent" : " agents",
        agents == 1 ? ": remove selfplay"
                    : absl::StrCat("; want at most ", agents - 1)));
  }
  const v1::EnvConfig& env = config.env();
  const int64_t unit = int64_t{agents} * env.num_workers() * env.groups();
  if (agents > 1 && env.num_envs() % unit != 0) {
    const int64_t below = env.num_envs() / unit * unit;
    return absl::InvalidArgumentError(absl::StrCat(
        "env.num_envs is ", env.num_envs(), ", and env \"", spec.env_id(),
        "\" has ", agents, " agents, each of which counts: want a multiple of ",
        agents, " * env.num_workers * env.groups = ", unit, "; use ",
        below > 0 ? absl::StrCat(below, " or ") : "", below + unit));
  }
  if (theirs == 0) return config;
  v1::RunConfig learned = config;
  learned.mutable_env()->set_num_envs(env.num_envs() / agents *
                                      (agents - theirs));
  for (const ConfigProblem& problem : FindProblems(learned)) {
    if (problem.path == "env.num_envs") continue;  // of what is played
    return absl::InvalidArgumentError(
        absl::StrCat(problem.path, " ", problem.message, ". Of env.num_envs = ",
                     env.num_envs(), " slots, selfplay's opponents play ",
                     env.num_envs() - learned.env().num_envs()));
  }
  return learned;
}

}  // namespace flotilla
