#include "learner/rollout/memory_needs.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "services/base/config.h"

namespace flotilla {
namespace {

constexpr double kFloat = sizeof(float);
// Of each parameter: itself, its gradient, two moments, a snapshot to go back
// to, what is being saved, and the policy that acts or is evaluated.
constexpr double kCopies = 7;

double D(int64_t value) { return static_cast<double>(value); }

// Bytes of one stored observation: the newest frame, or the vector.
double ObservationBytes(const Spaces& s) {
  return D(s.features) * (s.frames ? 1 : kFloat);
}

// Values that the first layer behind the encoder's convolutions sees, at least.
double EncodedWidth(const v1::ModelConfig& model, const Spaces& s) {
  if (!s.frames) return D(s.features);
  if (model.encoder() == v1::RESNET) {
    return 32 * std::ceil(D(s.height) / 8) * std::ceil(D(s.width) / 8);
  }
  const double channels =
      model.conv_channels_size() == 3 ? model.conv_channels(2) : 64;
  const auto out = [](double size) {
    return std::max(1.0, std::floor((std::floor((size - 8) / 4) - 3) / 2) - 1);
  };
  return channels * out(D(s.height)) * out(D(s.width));
}

double Parameters(const v1::RunConfig& config, const Spaces& s) {
  const v1::ModelConfig& model = config.model();
  double inputs = EncodedWidth(model, s);
  double trunk = 0;
  // Where none are given, a small one: the defaults are small.
  std::vector<int64_t> widths(model.hidden().begin(), model.hidden().end());
  if (widths.empty()) widths = {64, 64};
  for (const int64_t width : widths) {
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
  const double heads = (inputs + 1) * (D(s.actions) + 1);
  const bool apart = !config.has_dqn() && !model.share_trunk() && !s.frames &&
                     model.recurrent() == v1::NONE;
  return (apart ? 2 : 1) * trunk + heads;
}

// Steps that go through the network at once.
double MinibatchSteps(const v1::RunConfig& config) {
  const double all = D(config.rollout().length()) * config.env().num_envs();
  if (config.has_dqn()) return config.dqn().batch_size();
  if (config.has_impala()) {
    return all / std::max(1, config.impala().minibatches());
  }
  const double some = all / std::max(1, config.ppo().minibatches());
  const double most = D(config.ppo().max_minibatch());
  return most > 0 ? std::min(some, most) : some;
}

}  // namespace

std::vector<MemoryNeed> MemoryNeeds(const v1::RunConfig& config,
                                    const Spaces& s) {
  const double T = config.rollout().length(), B = config.env().num_envs();
  const double observation = ObservationBytes(s);
  const double action = s.continuous ? kFloat * D(s.actions) : sizeof(int64_t);
  std::vector<MemoryNeed> needs;

  const double parameters = Parameters(config, s);
  needs.push_back(
      {absl::StrCat("the network: ", parameters, " parameters, for ", s.actions,
                    " actions and ", s.features, " values of an observation"),
       kCopies * kFloat * parameters});

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
           ((T + D(s.stack)) * observation + T * (action + 6 * kFloat + 4))});

  // Whole stacks, as float32, and what the policy says of each action.
  const double steps = MinibatchSteps(config);
  const double stacks = D(s.stack) * D(s.features) * kFloat;
  needs.push_back(
      {absl::StrCat("a minibatch of ", steps, " steps, ", stacks,
                    " bytes an observation and ", s.actions, " actions"),
       steps * (stacks + 4 * kFloat * D(s.actions))});

  if (config.has_dqn()) {
    // Beside observations, 12 bytes a step and two nodes of the sum tree.
    const double capacity = D(config.dqn().replay_capacity());
    needs.push_back({absl::StrCat("dqn's replay: ", capacity,
                                  " steps (dqn.replay_capacity) of ",
                                  observation, " bytes an observation"),
                     (capacity + B * D(s.stack)) * (observation + 12 + 32)});
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
  const std::vector<MemoryNeed> needs = MemoryNeeds(config, spaces);
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
