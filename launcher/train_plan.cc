#include "launcher/train_plan.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/numbers.h"
#include "services/algorithms/algorithm_traits.h"
#include "services/base/config.h"
#include "services/base/device_choice.h"
#include "services/base/global_sizes.h"
#include "services/base/precision.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

std::string Row(const std::string& name, const std::string& first,
                const std::string& second, const std::string& note = "") {
  std::string row =
      absl::StrFormat("  %-18s %-12s %-12s %s", name, first, second, note);
  while (row.back() == ' ') row.pop_back();
  return row + "\n";
}

// "cpu", "cuda:0, cuda:1": without UUIDs, and a CPU once.
std::string Devices(std::vector<std::string> devices) {
  for (std::string& device : devices) {
    device = device.substr(0, device.find(' '));
  }
  if (devices.front() == "cpu") return "the CPU";
  return absl::StrJoin(devices, ", ");
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

absl::StatusOr<v1::RunConfig> PlanSizes(const v1::RunConfig& config,
                                        const Topology& topology) {
  if (config.distributed().sizes() == v1::GLOBAL && topology.elastic()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "distributed.sizes is GLOBAL, but --nnodes ", topology.min_nodes, ":",
        topology.max_nodes,
        " lets learners come and go, and environments that run cannot be "
        "shared out anew; use PER_LEARNER, or a fixed number of nodes"));
  }
  return SizesOfLearner(config, topology.max_world_size);
}

TrainPlan MakePlan(const v1::RunConfig& given, const Topology& topology) {
  // What does not divide was refused, or is not to run with these learners.
  const v1::RunConfig config =
      SizesOfLearner(given, topology.min_world_size).value_or(given);
  TrainPlan plan;
  plan.world_size = topology.min_world_size;
  plan.num_envs = config.env().num_envs();
  plan.batch = plan.num_envs * config.rollout().length();
  plan.envs_per_worker = plan.num_envs / config.env().num_workers();
  const UpdatePlan update = TraitsOf(config).PlanOf(config);
  plan.minibatch = update.minibatch;
  plan.gradient_steps = update.gradient_steps;
  const int64_t global = plan.batch * plan.world_size;
  plan.updates = config.has_total_updates()
                     ? config.total_updates()
                     : config.total_env_steps() / global +
                           (config.total_env_steps() % global != 0);
  plan.steps = config.has_total_updates() ? plan.updates * global
                                          : config.total_env_steps();
  return plan;
}

std::string LengthWarning(const v1::RunConfig& config,
                          const Topology& topology) {
  const int64_t starts = TraitsOf(config).ReplayOf(config).learning_starts;
  const TrainPlan plan = MakePlan(config, topology);
  // Steps before the last update's rollout.
  if (starts <= (plan.updates - 1) * plan.batch * plan.world_size) return "";
  const std::string field =
      absl::StrCat(AlgorithmName(config), ".learning_starts");
  return absl::StrCat(field, " is ", WithCommas(starts), ", and the run is of ",
                      WithCommas(plan.steps),
                      " steps: nothing is learned in it; make it longer, or "
                      "--set ",
                      field, "=0");
}

std::string DescribePlan(const v1::RunConfig& config, const Topology& topology,
                         const std::vector<std::string>& devices) {
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
  absl::StrAppend(
      &text, Row("ranks here", Ranks(topology), ""),
      Row("device", Devices(devices), ""),
      Row("precision", v1::Precision_Name(config.runtime().precision()), ""),
      "\n");
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
                                env.dial_listen().empty()
                                    ? "flotilla serve-envs --coordinator"
                                    : "flotilla serve-envs --coordinator, or "
                                      "dialled in"));
  }
  return text;
}

absl::StatusOr<std::vector<std::string>> PlanDevices(
    const v1::RunConfig& config, const Topology& topology,
    const std::vector<int>& ids, const std::vector<Gpu>& gpus) {
  const DeviceRequest request = {.device = config.runtime().device(),
                                 .ids = ids,
                                 .local_world_size = topology.local_world_size,
                                 .given_rank = topology.one_rank};
  const bool nccl = config.distributed().backend() == v1::NCCL;
  std::vector<std::string> devices;
  for (int i = 0; i < topology.num_learners; ++i) {
    ASSIGN_OR_RETURN(const std::optional<int> gpu,
                     ChooseGpu(request, topology.first_local_rank + i, gpus));
    if (nccl && !gpu) {
      return absl::InvalidArgumentError(absl::StrCat(
          "distributed.backend is NCCL, which needs a GPU for each learner, "
          "but ",
          gpus.empty() ? "there is none to use here"
                       : "runtime.device is \"cpu\"",
          "; use --backend gloo"));
    }
    devices.push_back(DeviceName(gpu, gpus));
  }
  if (nccl && std::set<int>(ids.begin(), ids.end()).size() < ids.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--device-ids ", absl::StrJoin(ids, ","),
        " gives one GPU to two learners, which NCCL refuses; use --backend "
        "gloo, or a GPU for each"));
  }
  return devices;
}

absl::StatusOr<v1::Precision> PlanPrecision(
    const v1::RunConfig& config, const std::vector<std::string>& devices,
    const std::vector<Gpu>& gpus) {
  v1::Precision wanted = config.runtime().precision();
  // A TorchScript module computes as it was saved, and that an MLP is faster in BF16
  // was not measured.
  const v1::ModelConfig& model = config.model();
  const bool mlp =
      model.encoder() == v1::MLP && model.plugin().empty() &&
      absl::c_none_of(model.leaf(), [](const v1::LeafConfig& l) {
        return l.encoder() == v1::NATURE_CNN || l.encoder() == v1::RESNET;
      });
  if (wanted == v1::PRECISION_AUTO && (mlp || !model.torchscript().empty())) {
    wanted = v1::FP32;
  }
  v1::Precision chosen = wanted;
  for (const std::string& device : devices) {
    const auto gpu = std::ranges::find_if(gpus, [&](const Gpu& g) {
      return !g.uuid.empty() && absl::EndsWith(device, g.uuid);
    });
    const bool cpu = !absl::StartsWith(device, "cuda");
    Arithmetic arithmetic = ArithmeticOfCpu();
    if (!cpu) arithmetic = ArithmeticOf(gpu == gpus.end() ? Gpu() : *gpu);
    ASSIGN_OR_RETURN(const v1::Precision here,
                     ChoosePrecision(wanted, arithmetic));
    if (chosen == v1::PRECISION_AUTO || here == v1::FP32) chosen = here;
  }
  return chosen;
}

}  // namespace flotilla
