#ifndef FLOTILLA_LEARNER_NN_MLP_SHAPE_OF_H_
#define FLOTILLA_LEARNER_NN_MLP_SHAPE_OF_H_

#include <optional>

#include "learner/kernels/mlp_shape.h"
#include "learner/nn/actor_critic.h"

namespace flotilla {

// The network as learner/kernels runs it; nullopt if they cannot: frames,
// recurrent, or not on the CPU.
std::optional<MlpShape> MlpShapeOf(const ActorCritic& net);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_MLP_SHAPE_OF_H_
