#include "services/base/global_sizes.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/config_rules.h"

namespace flotilla {
namespace {

// The multiples of `unit` around `value`: "8 or 12".
std::string Nearby(int64_t value, int64_t unit) {
  const int64_t below = value / unit * unit;
  return below == 0 ? absl::StrCat(unit)
                    : absl::StrCat(below, " or ", below + unit);
}

class Division {
 public:
  explicit Division(int learners) : learners_(learners) {}

  // A learner's share of `value`, which has to be a multiple of `unit` of its
  // own; `unit_name` is what that is made of.
  int64_t Share(const std::string& path, int64_t value, int64_t unit = 1,
                const std::string& unit_name = "") {
    const int64_t all = learners_ * unit;
    if (value % all != 0) {
      problems_.push_back(absl::StrCat(
          path, " is ", value, " for all learners (distributed.sizes GLOBAL), ",
          "not divisible by ", learners_, " learners",
          unit == 1 ? "" : absl::StrCat(" * ", unit_name, " = ", all), "; use ",
          Nearby(value, all)));
    }
    return value / learners_;
  }

  std::vector<std::string>& problems() { return problems_; }

 private:
  const int64_t learners_;
  std::vector<std::string> problems_;
};

}  // namespace

absl::StatusOr<v1::RunConfig> SizesOfLearner(const v1::RunConfig& config,
                                             int world_size) {
  if (config.distributed().sizes() == v1::PER_LEARNER) return config;
  v1::RunConfig share = config;
  share.mutable_distributed()->set_sizes(v1::PER_LEARNER);
  Division division(world_size);
  v1::EnvConfig& env = *share.mutable_env();
  env.set_num_envs(static_cast<int32_t>(division.Share(
      "env.num_envs", env.num_envs(),
      std::max<int64_t>(1, int64_t{env.num_workers()} * env.groups()),
      absl::StrCat("env.num_workers * env.groups (", env.num_workers(), " * ",
                   env.groups(), ")"))));
  if (share.has_dqn()) {
    v1::DqnConfig& dqn = *share.mutable_dqn();
    dqn.set_batch_size(static_cast<int32_t>(
        division.Share("dqn.batch_size", dqn.batch_size())));
    dqn.set_replay_capacity(
        division.Share("dqn.replay_capacity", dqn.replay_capacity()));
  }
  if (division.problems().empty()) {
    for (const ConfigProblem& problem : FindProblems(share)) {
      division.problems().push_back(
          absl::StrCat("a share of one in ", world_size,
                       " learners "
                       "(distributed.sizes GLOBAL): ",
                       problem.path, " ", problem.message));
    }
  }
  if (division.problems().empty()) return share;
  return absl::InvalidArgumentError(absl::StrJoin(division.problems(), "\n"));
}

}  // namespace flotilla
