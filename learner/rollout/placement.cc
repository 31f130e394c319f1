#include "learner/rollout/placement.h"

#include <ATen/DeviceAccelerator.h>

#include <cstdint>

#include "services/algorithms/algorithm_traits.h"
#include "services/base/config.h"

namespace flotilla {
namespace {

double ExperienceBytes(const v1::RunConfig& config, const Spaces& spaces) {
  // What is no observation: of a replay up to 64 bytes of a sum tree, and what the
  // transition is; of a rollout less.
  const ActionSpace& action = spaces.action;
  double step =
      80 + 4 * static_cast<double>(action.choices() + action.continuous);
  for (const LeafSpec& spec : spaces.observation) {
    step += static_cast<double>(spec.bytes());
  }
  const double rollouts = CollectionOf(config) == Collection::kWhenAsked
                              ? 1
                              : config.rollout().queue_capacity() + 2;
  const double rows = config.env().num_envs();
  const auto stack = static_cast<double>(spaces.max_stack());
  const auto capacity =
      static_cast<double>(TraitsOf(config).ReplayOf(config).capacity);
  const double replay = capacity > 0 ? step * (capacity + rows * stack) : 0;
  return rollouts * step * rows * (config.rollout().length() + stack) + replay;
}

}  // namespace

v1::RolloutsOn PlaceRollouts(const v1::RunConfig& config, const Spaces& spaces,
                             torch::Device device) {
  if (device.is_cpu()) return v1::HOST;  // where the network is
  if (config.runtime().rollouts_on() != v1::ROLLOUTS_AUTO) {
    return config.runtime().rollouts_on();
  }
  if (!device.is_cuda()) return v1::DEVICE;
  const size_t free = at::accelerator::getMemoryInfo(device.index()).first;
  const double needed = ExperienceBytes(config, spaces);
  if (needed <= 0.5 * static_cast<double>(free)) return v1::DEVICE;
  LOG(INFO) << "rollouts and replay of " << needed
            << " bytes stay on the host: " << device << " has " << free
            << " free";
  return v1::HOST;
}

torch::Device MemoryOf(const v1::RunConfig& config, torch::Device device) {
  return config.runtime().rollouts_on() == v1::HOST ? torch::Device(torch::kCPU)
                                                    : device;
}

}  // namespace flotilla
