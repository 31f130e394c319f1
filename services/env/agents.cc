#include "services/env/agents.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "services/base/config_rules.h"

namespace flotilla {

int SlotsOf(const v1::EnvSpec& spec) { return std::max(1, spec.agents()); }

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
  const int agents = SlotsOf(spec), theirs = OpponentSlots(config);
  if (config.has_selfplay() && agents == 1) {
    return absl::InvalidArgumentError(
        "selfplay is set, and the environment has one agent: there is no slot "
        "for an earlier self; leave selfplay out");
  }
  if (theirs >= agents) {
    return absl::InvalidArgumentError(absl::StrCat(
        "selfplay.opponent_slots is ", theirs, ", and the environment has ",
        agents, " agents, one of whom has to learn: use at most ", agents - 1));
  }
  const v1::EnvConfig& env = config.env();
  const int64_t unit = int64_t{agents} * env.num_workers() * env.groups();
  if (agents > 1 && env.num_envs() % unit != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "env.num_envs is ", env.num_envs(), " with env.num_workers ",
        env.num_workers(), " and env.groups ", env.groups(),
        ", and the environment has ", agents,
        " agents: ", NearbyMultiples(env.num_envs(), unit)));
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
