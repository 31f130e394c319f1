#include "launcher/train_plan.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/numbers.h"
#include "services/base/config.h"

namespace flotilla {
namespace {

std::string Row(const std::string& name, const std::string& first,
                const std::string& second, const std::string& note = "") {
  std::string row =
      absl::StrFormat("  %-18s %-12s %-12s %s", name, first, second, note);
  while (row.back() == ' ') row.pop_back();
  return row + "\n";
}

std::string Device(const v1::RunConfig& config, int gpus) {
  const std::string& device = config.runtime().device();
  if (device != "auto") return device;
  return gpus > 0 ? absl::StrCat("auto: ", gpus, " GPUs") : "auto: the CPU";
}

std::string Ranks(const Topology& topology) {
  const int last = topology.first_rank + topology.num_learners - 1;
  const std::string here = topology.num_learners == 1
                               ? absl::StrCat(topology.first_rank)
                               : absl::StrCat(topology.first_rank, "-", last);
  return topology.elastic()
             ? absl::StrCat(here, " of ", topology.min_world_size, " to ",
                            topology.max_world_size)
             : absl::StrCat(here, " of ", topology.max_world_size);
}

// When they are collected, if not when the learner asks.
std::string Rollouts(const v1::RunConfig& config) {
  const v1::RolloutConfig& rollout = config.rollout();
  switch (CollectionOf(config)) {
    case Collection::kWhenAsked:
      break;
    case Collection::kOneAhead:
      return Row("rollouts", "one ahead", "", "one update of lag");
    case Collection::kFreeRunning:
      return Row("rollouts", "free running", "",
                 absl::StrCat(rollout.queue_capacity(),
                              " waiting, dropped beyond a lag of ",
                              rollout.max_policy_lag(), " updates"));
  }
  return "";
}

}  // namespace

TrainPlan MakePlan(const v1::RunConfig& config, const Topology& topology) {
  TrainPlan plan;
  plan.world_size = topology.min_world_size;
  plan.num_envs = config.env().num_envs();
  plan.batch = plan.num_envs * config.rollout().length();
  plan.envs_per_worker = plan.num_envs / config.env().num_workers();
  if (config.has_dqn()) {
    plan.minibatch = config.dqn().batch_size();
    plan.gradient_steps = config.dqn().updates_per_rollout();
  } else {
    const int64_t epochs =
        config.has_ppo() ? config.ppo().epochs() : config.impala().epochs();
    const int64_t minibatches = config.has_ppo()
                                    ? config.ppo().minibatches()
                                    : config.impala().minibatches();
    plan.minibatch = plan.batch / minibatches;
    plan.gradient_steps = epochs * minibatches;
  }
  const int64_t global = plan.batch * plan.world_size;
  plan.updates = config.has_total_updates()
                     ? config.total_updates()
                     : (config.total_env_steps() + global - 1) / global;
  plan.steps = config.has_total_updates() ? plan.updates * global
                                          : config.total_env_steps();
  return plan;
}

std::string DescribePlan(const v1::RunConfig& config, const Topology& topology,
                         int gpus) {
  const TrainPlan plan = MakePlan(config, topology);
  const auto both = [&](const std::string& name, int64_t size,
                        const std::string& note = "") {
    return Row(name, WithCommas(size), WithCommas(size * plan.world_size),
               note);
  };
  const int64_t global = plan.batch * plan.world_size;
  std::string text = "topology\n";
  for (const Topology::Source& source : topology.sources) {
    absl::StrAppendFormat(&text, "  %-18s %-25s (%s)\n", source.name,
                          source.value, source.source);
  }
  absl::StrAppend(&text, Row("ranks here", Ranks(topology), ""),
                  Row("device", Device(config, gpus), ""), "\n");
  absl::StrAppend(&text, Row("sizes", "a learner", "global"));
  absl::StrAppend(
      &text, both("environments", plan.num_envs),
      both("batch", plan.batch, "rollout.length * env.num_envs"),
      both("minibatch", plan.minibatch),
      Row("gradient steps", absl::StrCat(plan.gradient_steps), "", "an update"),
      Row("updates", "", WithCommas(plan.updates),
          absl::StrCat("for ", WithCommas(plan.steps), " steps",
                       plan.steps % global == 0
                           ? ""
                           : absl::StrCat(": ", WithCommas(plan.updates - 1),
                                          " and one that passes them"))),
      Rollouts(config));
  const v1::EnvConfig& env = config.env();
  absl::StrAppend(
      &text, "\n",
      both("env workers", env.num_workers(),
           absl::StrCat(plan.envs_per_worker, " environments each, in ",
                        env.groups(), env.groups() == 1 ? " group" : " groups",
                        " of ", plan.envs_per_worker / env.groups())));
  if (env.remote_workers() > 0) {
    absl::StrAppend(&text, both("of other hosts", env.remote_workers(),
                                "flotilla serve-envs --coordinator"));
  }
  return text;
}

absl::Status CheckDevices(const v1::RunConfig& config, const Topology& topology,
                          int gpus) {
  const std::string& device = config.runtime().device();
  const bool on_gpu = absl::StartsWith(device, "cuda");
  const bool nccl = config.distributed().backend() == v1::NCCL;
  const auto refuse = [](const std::string& message) {
    return absl::InvalidArgumentError(message);
  };
  if (on_gpu && gpus == 0) {
    return refuse(absl::StrCat("runtime.device is \"", device,
                               "\", but this machine has no GPU; use --set "
                               "runtime.device=cpu (see `flotilla doctor`)"));
  }
  if (!nccl) return absl::OkStatus();
  if (gpus == 0 || device == "cpu") {
    return refuse(absl::StrCat(
        "distributed.backend is NCCL, which needs a GPU for each learner, but ",
        gpus == 0 ? "this machine has none" : "runtime.device is \"cpu\"",
        "; use --backend gloo"));
  }
  if (topology.local_world_size > gpus ||
      (absl::StartsWith(device, "cuda:") && topology.local_world_size > 1)) {
    return refuse(absl::StrCat(
        "distributed.backend is NCCL, which refuses two learners on one GPU: ",
        topology.local_world_size, " learners here, ", gpus,
        gpus == 1 ? " GPU" : " GPUs", ", runtime.device \"", device,
        "\"; use --nproc-per-node gpu with runtime.device auto, or --backend "
        "gloo"));
  }
  return absl::OkStatus();
}

}  // namespace flotilla
