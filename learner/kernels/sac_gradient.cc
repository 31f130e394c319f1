#include "learner/kernels/sac_gradient.h"

#include "glog/logging.h"

namespace flotilla {

SacGradient::SacGradient(const MlpShape& actor, const MlpShape& critics,
                         const KernelTable& kernels)
    : kernels_(kernels),
      actor_(actor, /*training=*/true),
      critics_(critics, /*training=*/true),
      targets_(critics, /*training=*/false) {
  CHECK(actor.output == MlpOutput::kSquashedGaussian) << "that is no SAC actor";
  CHECK(critics.output == MlpOutput::kTwinCritics) << "those are no critics";
  CHECK_EQ(critics.observations, actor.observations + actor.actions)
      << "critics see the observation and then the action";
}

SacSums SacGradient::Critics(const Parameters& parameters,
                             const SacSamples& samples,
                             const ActionRange& range, float alpha,
                             float* gradient) {
  kernels_.pack(actor_.plan(), parameters.actor, actor_.data());
  kernels_.pack(critics_.plan(), parameters.critics, critics_.data());
  kernels_.pack(targets_.plan(), parameters.targets, targets_.data());
  return kernels_.sac_critics(
      {actor_.plan(), actor_.data()}, {targets_.plan(), targets_.data()},
      {critics_.plan(), critics_.data()}, samples, range, alpha, gradient);
}

SacSums SacGradient::Policy(const Parameters& parameters,
                            const SacSamples& samples, const ActionRange& range,
                            float alpha, float* gradient) {
  kernels_.pack(actor_.plan(), parameters.actor, actor_.data());
  kernels_.pack(critics_.plan(), parameters.critics, critics_.data());
  return kernels_.sac_policy({actor_.plan(), actor_.data()},
                             {critics_.plan(), critics_.data()}, samples, range,
                             alpha, gradient);
}

}  // namespace flotilla
