#include "learner/kernels/ppo_gradient.h"

#include <cmath>

#include "glog/logging.h"

namespace flotilla {
namespace {

bool IsValid(const PpoSamples& samples, int32_t row) {
  return samples.valid == nullptr || samples.valid[row] != 0;
}

}  // namespace

AdvantageScale NormalizeAdvantages(const PpoSamples& samples,
                                   std::span<const int32_t> rows) {
  double sum = 0;
  int64_t count = 0;
  for (const int32_t row : rows) {
    if (!IsValid(samples, row)) continue;
    sum += samples.advantage[row];
    ++count;
  }
  if (count == 0) return {};
  const double mean = sum / count;
  double squares = 0;
  for (const int32_t row : rows) {
    if (!IsValid(samples, row)) continue;
    const double difference = samples.advantage[row] - mean;
    squares += difference * difference;
  }
  const double deviation = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
  return {.mean = static_cast<float>(mean),
          .scale = count > 1 ? static_cast<float>(1 / (deviation + 1e-8)) : 0};
}

PpoGradient::PpoGradient(const MlpShape& shape, const KernelTable& kernels)
    : kernels_(kernels), workspace_(shape, /*training=*/true) {
  CHECK(shape.output == MlpOutput::kActorCritic) << "that is no actor-critic";
}

PpoSums PpoGradient::Compute(const float* parameters, const PpoSamples& samples,
                             std::span<const int32_t> rows, const PpoLoss& loss,
                             bool accumulate, float* gradient) {
  const MlpPlan& plan = workspace_.plan();
  CHECK(plan.continuous ? samples.continuous_actions != nullptr
                        : samples.discrete_actions != nullptr)
      << "the samples have no actions of the policy's kind";
  CHECK_GT(loss.divisor, 0) << "the loss is divided by it";
  kernels_.pack(plan, parameters, workspace_.data());
  return kernels_.ppo_gradient(plan, workspace_.data(), samples, rows.data(),
                               static_cast<int64_t>(rows.size()), loss,
                               accumulate, gradient);
}

}  // namespace flotilla
