#include "services/env/playable.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/algorithms/algorithm_traits.h"
#include "services/base/status_macros.h"
#include "services/env/agents.h"
#include "services/env/encoder_plan.h"
#include "services/env/group_layout.h"
#include "services/env/spaces.h"

namespace flotilla {
namespace {

// Values from which on a UINT8 array of two dimensions or more is an image.
constexpr int64_t kLeastPixels = 256;

bool AskedForMlp(const v1::ModelConfig& model, const std::string& path) {
  return std::any_of(model.leaf().begin(), model.leaf().end(),
                     [&](const v1::LeafConfig& leaf) {
                       return leaf.path() == path && leaf.encoder() == v1::MLP;
                     });
}

// The first image that goes in number by number; "" if there is none.
std::string ImageAsNumbers(const v1::ModelConfig& model,
                           const v1::EnvSpec& spec, const Spaces& spaces) {
  for (const LeafSpec& seen : spaces.observation) {
    if (seen.kind != LeafKind::kVector) continue;
    for (const LeafSpec::Part& part : seen.parts) {
      const v1::Leaf& leaf = spec.observation(part.leaf);
      if (leaf.dtype() != v1::UINT8 || leaf.shape_size() < 2 ||
          leaf.num_values() > 0 || leaf.num_values_each_size() > 0 ||
          part.elements < kLeastPixels || AskedForMlp(model, leaf.path())) {
        continue;
      }
      return absl::StrCat(
          "the observation",
          leaf.path().empty() ? "" : absl::StrCat(" \"", leaf.path(), "\""),
          " is UINT8 [", absl::StrJoin(leaf.shape(), ", "), "], and its ",
          part.elements,
          " values go into an MLP, one by one. If it is an image, say so: "
          "--set 'model.leaf={path: \"",
          leaf.path(), "\" encoder: RESNET}'; if not, encoder: MLP");
    }
  }
  return "";
}

// Numbers beside those that a running mean and variance scale; "" if there are
// none, or nothing is to be scaled. Bytes of images are not meant.
std::string NotNormalized(const v1::ModelConfig& model, const Spaces& spaces) {
  if (!model.normalize_observations()) return "";
  std::vector<std::string> left;
  for (size_t i = 0; i < spaces.observation.size(); ++i) {
    const LeafSpec& leaf = spaces.observation[i];
    const bool numbers =
        leaf.kind == LeafKind::kVector
            ? leaf.numbers > 0
            : leaf.kind == LeafKind::kImage && leaf.dtype == v1::FLOAT32;
    if (numbers && (i > 0 || spaces.normalized() == 0)) {
      left.push_back(LeafTitle(leaf));
    }
  }
  if (left.empty() && spaces.normalized() > 0) return "";
  const std::string scaled =
      spaces.normalized() == 0
          ? "scales nothing of its observation"
          : absl::StrCat("scales ", LeafTitle(spaces.observation[0]), " alone");
  return absl::StrCat(
      "model.normalize_observations ", scaled,
      left.empty() ? "; leave it out"
                   : absl::StrCat("; ", absl::StrJoin(left, ", "),
                                  left.size() > 1 ? " go" : " goes",
                                  " in as sent. Numbers without a model.leaf "
                                  "of their own, and of one frame, are scaled "
                                  "together"));
}

// A network that is so small, and decides for so few environments at a time, that
// every decision takes a GPU longer to begin than a CPU to make; "" of any other, and
// where a device was named. Measured of cartpole_ppo, on one H200:
// tests/bench/results/gpu-2026-11-26-h200.md.
std::string SmallOnGpu(const v1::RunConfig& config, const Spaces& spaces) {
  constexpr int kFewRows = 16;
  constexpr int kNarrow = 256;
  const v1::ModelConfig& model = config.model();
  const v1::EnvConfig& env = config.env();
  const int rows = env.num_envs() / (env.num_workers() * env.groups());
  const bool small = config.has_ppo() && spaces.observation.size() == 1 &&
                     spaces.observation[0].kind == LeafKind::kVector &&
                     model.recurrent() == v1::NONE &&
                     model.torchscript().empty() && model.plugin().empty() &&
                     std::all_of(model.hidden().begin(), model.hidden().end(),
                                 [](int width) { return width <= kNarrow; });
  if (config.runtime().device() != "auto" || !small || rows > kFewRows) {
    return "";
  }
  return absl::StrCat("decisions of so small a network, for ", rows,
                      rows == 1 ? " row" : " rows",
                      " at a time, are made sooner on a CPU than on a GPU "
                      "(cartpole_ppo: 295,000 "
                      "steps/s, and 62,000 on an H200); use --set "
                      "runtime.device=cpu, or cuda to "
                      "mean it");
}

// A precision that the network does not take; "" if it does, or may.
std::string UnusedPrecision(const v1::RunConfig& config, const Spaces& spaces,
                            bool on_gpu) {
  const v1::ModelConfig& model = config.model();
  if (config.runtime().precision() != v1::BF16 || !model.plugin().empty()) {
    return "";
  }
  if (!model.torchscript().empty()) {
    return "runtime.precision is BF16, and model.torchscript computes as it "
           "was saved: convert in its forward(), or leave the precision out";
  }
  const std::vector<int> seen = spaces.encoded();
  const auto leaf = [&](int index) -> const LeafSpec& {
    return spaces.observation[index];
  };
  const bool images = std::ranges::any_of(
      seen, [&](int index) { return leaf(index).kind == LeafKind::kImage; });
  const bool by_kernels = !on_gpu && !config.has_dqn() && !config.has_sac() &&
                          model.encoder() == v1::MLP &&
                          model.recurrent() == v1::NONE && seen.size() == 1 &&
                          leaf(seen[0]).kind == LeafKind::kVector &&
                          leaf(seen[0]).stack == 1;
  const bool muon = !on_gpu && config.optimizer().type() == v1::MUON;
  if (images || by_kernels || muon) return "";
  return "runtime.precision is BF16, named or chosen by AUTO, and nothing of "
         "this network is computed in it: networks of images are, and, on a "
         "CPU, those of PPO, IMPALA "
         "and own algorithms with model.encoder: MLP; leave it out";
}

// Widths that the encoder which was chosen for an image leaves out.
std::string UnusedWidths(const v1::ModelConfig& model, const Spaces& spaces) {
  const absl::StatusOr<EncoderPlan> plan = PlanEncoders(spaces, model);
  if (!plan.ok() || plan->merged() || plan->leaf.size() != 1) return "";
  const LeafEncoder& e = plan->leaf[0];
  const bool cnn = e.encoder == v1::NATURE_CNN || e.encoder == v1::RESNET;
  if (!cnn || e.hidden.size() < 2) return "";
  return absl::StrCat("model.hidden is [", absl::StrJoin(model.hidden(), ", "),
                      "], and ", v1::Encoder_Name(e.encoder),
                      " takes one width, of its last linear layer: ",
                      e.hidden.back(), "; leave the others out");
}

// Weights of an earlier self go with the scale that they learned to see.
std::string RescaledSelves(const v1::RunConfig& config, const Spaces& spaces) {
  if (!config.has_selfplay() || !config.model().normalize_observations() ||
      spaces.normalized() == 0) {
    return "";
  }
  return "model.normalize_observations scales what earlier selves (selfplay) "
         "see by the newest means and variances, not by those that they "
         "learned with: their strength drifts; leave it out, or scale in the "
         "environment";
}

}  // namespace

absl::Status CheckPlayable(const v1::RunConfig& config,
                           const v1::EnvSpec& spec) {
  ASSIGN_OR_RETURN(const int agents, AgentsOf(spec));
  RETURN_IF_ERROR(
      MakeGroupLayout(spec, /*num_envs=*/agents, /*num_groups=*/1).status());
  RETURN_IF_ERROR(LearnedConfig(config, spec).status());
  ASSIGN_OR_RETURN(const Spaces spaces, DescribeSpaces(spec, config.model()));
  RETURN_IF_ERROR(PlanEncoders(spaces, config.model()).status());
  const std::string problem =
      ActionsProblem(TraitsOf(config), spaces.action.choices() > 0,
                     spaces.action.low, spaces.action.high);
  return problem.empty() ? absl::OkStatus()
                         : absl::InvalidArgumentError(problem);
}

std::vector<std::string> PlayableWarnings(const v1::RunConfig& config,
                                          const v1::EnvSpec& spec,
                                          bool on_gpu) {
  const absl::StatusOr<Spaces> spaces = DescribeSpaces(spec, config.model());
  if (!spaces.ok()) return {};
  std::vector<std::string> warnings;
  for (const std::string& what :
       {ImageAsNumbers(config.model(), spec, *spaces),
        NotNormalized(config.model(), *spaces),
        UnusedPrecision(config, *spaces, on_gpu),
        RescaledSelves(config, *spaces), UnusedWidths(config.model(), *spaces),
        on_gpu ? SmallOnGpu(config, *spaces) : ""}) {
    if (what.empty()) continue;
    warnings.push_back(absl::StrCat("env \"", spec.env_id(), "\": ", what));
  }
  return warnings;
}

}  // namespace flotilla
