#ifndef FLOTILLA_LEARNER_NN_INITIALIZE_H_
#define FLOTILLA_LEARNER_NN_INITIALIZE_H_

#include <cstdint>
#include <vector>

#include "learner/nn/layers.h"

namespace flotilla {

// torch.nn's own start, for networks of values (DQN, SAC): weights and biases
// uniform within 1 / sqrt(inputs), embeddings normal. The same numbers on every
// device and rank, drawn layer after layer.
void InitializeUniformly(const std::vector<Layer*>& layers, uint64_t seed);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_NN_INITIALIZE_H_
