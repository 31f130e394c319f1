#include "learner/rollout/memory_needs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "services/algorithms/algorithm_traits.h"
#include "services/base/config.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr double kFloat = sizeof(float);
// Of each parameter: itself, its gradient, two moments, a snapshot to go back
// to, what is being saved, and the policy that acts or is evaluated.
constexpr double kCopies = 7;
// Of each earlier self: its weights, the same to go back to and as they are saved, and
// the policy that plays.
constexpr double kCopiesOfEarlier = 4;

double D(int64_t value) { return static_cast<double>(value); }

// Of one row without its stack.
double Elements(const LeafSpec& leaf) {
  double n = 1;
  for (const int64_t d : leaf.shape) n *= D(d);
  return n;
}

// Bytes of one stored observation: of each leaf the newest.
double ObservationBytes(const Spaces& s) {
  double bytes = 0;
  for (const LeafSpec& leaf : s.observation) {
    bytes += Elements(leaf) * (leaf.dtype == v1::UINT8   ? 1
                               : leaf.dtype == v1::INT64 ? 8
                                                         : kFloat);
  }
  return bytes;
}

double ActionBytes(const ActionSpace& action) {
  return kFloat * D(action.continuous) + 8 * D(action.choices());
}

// What one leaf's encoder holds; `width`: what comes out of it.
double EncoderParameters(const LeafSpec& leaf, const LeafEncoder& encoder,
                         double* width) {
  double parameters = 0, inputs = Elements(leaf) * D(leaf.stack);
  std::vector<int64_t> widths = encoder.hidden;
  if (encoder.encoder == v1::EMBEDDING) {
    double values = 0;
    for (const int64_t n : leaf.num_values) values += D(n);
    parameters += values * D(widths[0]);
    inputs *= D(widths[0]);
    widths.erase(widths.begin());
  } else if (encoder.encoder == v1::RESNET) {
    inputs = 32 * std::ceil(D(leaf.height) / 8) * std::ceil(D(leaf.width) / 8);
  } else if (encoder.encoder == v1::NATURE_CNN) {
    inputs = D(encoder.channels[2]) * D(NatureCnnOut(leaf.height)) *
             D(NatureCnnOut(leaf.width));
  }
  for (const int64_t n : widths) {
    parameters += (inputs + 1) * D(n);
    inputs = D(n);
  }
  *width = inputs;
  return parameters;
}

// Of a TorchScript network, whose file is its parameters and little else, in the
// type they are trained in. 0: there is none.
double FileBytes(const std::string& path) {
  std::error_code error;
  const auto bytes = path.empty() ? 0 : std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<double>(bytes);
}

double Parameters(const v1::RunConfig& config, const Spaces& s,
                  const EncoderPlan& plan) {
  const v1::ModelConfig& model = config.model();
  double trunk = 0, inputs = 0;
  for (const LeafEncoder& encoder : plan.leaf) {
    double width = 0;
    trunk += EncoderParameters(s.observation[encoder.leaf], encoder, &width);
    inputs += width;
  }
  for (const int64_t width : plan.trunk) {
    trunk += (inputs + 1) * D(width);
    inputs = D(width);
  }
  if (model.recurrent() != v1::NONE) {
    for (int i = 0; i < model.recurrent_layers(); ++i) {
      trunk += (model.recurrent() == v1::LSTM ? 4 : 3) *
               (inputs + model.recurrent_size() + 2) * model.recurrent_size();
      inputs = model.recurrent_size();
    }
  }
  const double heads = (inputs + 1) * (D(s.action.outputs()) + 1);
  const bool may_split =
      !plan.merged() &&
      s.observation[plan.leaf[0].leaf].kind == LeafKind::kVector &&
      model.recurrent() == v1::NONE;
  return TraitsOf(config).Trunks(config, may_split) * trunk + heads;
}

}  // namespace

std::vector<MemoryNeed> MemoryNeeds(const v1::RunConfig& config,
                                    const Spaces& s, const EncoderPlan& plan) {
  const double T = config.rollout().length(), B = config.env().num_envs();
  const double observation = ObservationBytes(s);
  const double action = ActionBytes(s.action);
  const int64_t outputs = s.action.outputs();
  double values = 0, stacks = 0;
  for (const LeafSpec& leaf : s.observation) {
    values += Elements(leaf);
    stacks += Elements(leaf) * D(leaf.stack) * kFloat;
  }
  std::vector<MemoryNeed> needs;

  const double own = FileBytes(config.model().torchscript());
  const double parameters = Parameters(config, s, plan);
  needs.push_back(own > 0
                      ? MemoryNeed{absl::StrCat("the network of ",
                                                config.model().torchscript(),
                                                ": ", own, " bytes"),
                                   kCopies * own}
                      : MemoryNeed{absl::StrCat("the network: ", parameters,
                                                " parameters, for ", outputs,
                                                " actions and ", values,
                                                " values of an observation"),
                                   kCopies * kFloat * parameters});

  if (config.has_selfplay()) {
    const double pool = D(config.selfplay().pool_size());
    needs.push_back(
        {absl::StrCat(pool, " earlier selves (selfplay.pool_size) of ",
                      parameters, " parameters"),
         pool * kCopiesOfEarlier * (own > 0 ? own : kFloat * parameters)});
  }

  const double rollouts = CollectionOf(config) == Collection::kWhenAsked
                              ? 1
                              : config.rollout().queue_capacity() + 2;
  // Beside them, six float32 and four bytes a step.
  needs.push_back(
      {absl::StrCat(rollouts, rollouts == 1 ? " rollout" : " rollouts", " of ",
                    T, " steps (rollout.length) of ", B,
                    " environments (env.num_envs), ", observation,
                    " bytes an observation and ", action, " an action"),
       rollouts * B *
           ((T + D(s.max_stack())) * observation +
            T * (action + 6 * kFloat + 4))});

  // Whole stacks, as float32, and what the policy says of each action.
  const double steps = TraitsOf(config).StepsAtOnce(config);
  needs.push_back(
      {absl::StrCat(steps, " steps at once through the network, ", stacks,
                    " bytes an observation and ", outputs, " actions"),
       steps * (stacks + 4 * kFloat * D(outputs))});

  const AlgorithmTraits& algorithm = TraitsOf(config);
  const ReplayPlan replay = algorithm.ReplayOf(config);
  if (replay.capacity > 0) {
    const std::string name = algorithm.name();
    const double capacity = D(replay.capacity);
    // Choices as int32, values as float32.
    const double kept = 4 * D(s.action.choices() + s.action.continuous);
    // On a device that has the observations, the rest is the host's.
    const double seen =
        config.runtime().rollouts_on() == v1::DEVICE ? 0 : observation;
    needs.push_back(
        {absl::StrCat(name, "'s replay: ", capacity, " steps (", name,
                      ".replay_capacity) of ", seen, " bytes an observation"),
         (capacity + B * D(s.max_stack())) *
             (seen + kept + replay.step_bytes)});
    if (config.checkpoint().replay()) {
      needs.push_back({absl::StrCat("a copy of ", name,
                                    "'s replay while it is saved "
                                    "(checkpoint.replay)"),
                       capacity * (observation + kept + 14)});
    }
  }

  // In a shared slot or a message, and again where an episode ended.
  needs.push_back(
      {absl::StrCat("messages of ", B, " environments, ", observation,
                    " bytes an observation and ", action, " an action"),
       B * (3 * observation + 2 * action)});
  return needs;
}

absl::Status CheckMemory(const v1::RunConfig& config, const Spaces& spaces,
                         const MemoryBudget& budget) {
  ASSIGN_OR_RETURN(const EncoderPlan plan,
                   PlanEncoders(spaces, config.model()));
  const std::vector<MemoryNeed> needs = MemoryNeeds(config, spaces, plan);
  double all = 0;
  const MemoryNeed* largest = &needs[0];
  for (const MemoryNeed& need : needs) {
    all += need.bytes;
    if (need.bytes > largest->bytes) largest = &need;
  }
  if (all <= budget.bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "env \"", config.env().id(), "\": ", largest->what, ", would take ",
      FormatBytes(largest->bytes), ", and a learner in all ", FormatBytes(all),
      "; it may take ", FormatBytes(budget.bytes), " (", budget.origin, ")"));
}

}  // namespace flotilla
