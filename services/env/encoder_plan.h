#ifndef FLOTILLA_SERVICES_ENV_ENCODER_PLAN_H_
#define FLOTILLA_SERVICES_ENV_ENCODER_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "flotilla/v1/config.pb.h"
#include "services/env/spaces.h"

namespace flotilla {

// What one leaf of an observation goes through.
struct LeafEncoder {
  int leaf = 0;  // of Spaces.observation
  // MLP, NATURE_CNN, RESNET or EMBEDDING. An MLP of no width passes it on.
  v1::Encoder encoder = v1::MLP;
  std::vector<int64_t> hidden;    // widths; the last linear's for a CNN
  std::vector<int64_t> channels;  // NATURE_CNN: of its three convolutions
};

// How the observation becomes features:
//
//   one vector or image   its encoder is all there is; `trunk` is empty
//   else                  each leaf's encoder, laid end to end, then an MLP of
//                         the widths `trunk`
struct EncoderPlan {
  std::vector<LeafEncoder> leaf;
  std::vector<int64_t> trunk;
  bool merged() const { return !trunk.empty(); }
};

// The plan that `model` has for an observation. Defaults: NATURE_CNN for images,
// RESNET for those under 36 x 36; a vector beside others is passed on as it is;
// embeddings have width 64. With a network of the user's own, every leaf is passed on.
// Errors: kInvalidArgument, naming leaf, encoder and what would fit.
absl::StatusOr<EncoderPlan> PlanEncoders(const Spaces& spaces,
                                         const v1::ModelConfig& model);

// The side of an image of `size` behind NATURE_CNN's convolutions; below 1 if it
// is too small for them.
int64_t NatureCnnOut(int64_t size);

// Numbers that come out of a leaf's convolutions, embedding or nothing, before
// the linear layers of its encoder.
int64_t FlatWidth(const LeafSpec& leaf, const LeafEncoder& encoder);

// Numbers that come out of a leaf's encoder.
int64_t EncodedWidth(const LeafSpec& leaf, const LeafEncoder& encoder);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_ENCODER_PLAN_H_
