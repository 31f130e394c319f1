#include "learner/kernels/mlp_actor_critic.h"

#include "glog/logging.h"

namespace flotilla {

MlpActorCritic::MlpActorCritic(const MlpShape& shape,
                               const KernelTable& kernels)
    : shape_(shape), kernels_(kernels), workspace_(shape, /*training=*/false) {
  CHECK(shape.output == MlpOutput::kActorCritic) << "that is no actor-critic";
}

void MlpActorCritic::SetParameters(const float* parameters) {
  kernels_.pack(workspace_.plan(), parameters, workspace_.data());
}

void MlpActorCritic::Forward(const float* observations, int64_t rows,
                             float* policy, float* value) {
  kernels_.forward(workspace_.plan(), workspace_.data(), observations, rows,
                   policy, value);
}

void MlpActorCritic::DecideDiscrete(const float* observations,
                                    const uint8_t* mask, int64_t rows,
                                    const float* uniforms, int64_t* action,
                                    float* log_prob, float* value) {
  CHECK(!shape_.continuous) << "the policy's actions are continuous";
  kernels_.decide_discrete(workspace_.plan(), workspace_.data(), observations,
                           mask, rows, uniforms, action, log_prob, value);
}

void MlpActorCritic::DecideContinuous(const float* observations, int64_t rows,
                                      const float* normals, float* action,
                                      float* log_prob, float* value) {
  CHECK(shape_.continuous) << "the policy's actions are discrete";
  kernels_.decide_continuous(workspace_.plan(), workspace_.data(), observations,
                             rows, normals, action, log_prob, value);
}

}  // namespace flotilla
